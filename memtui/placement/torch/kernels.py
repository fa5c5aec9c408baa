"""Calling one operator so that its results come to lie where they are to. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

_OF_NEW = ("dtype", "layout", "device", "pin_memory")
# What the backward pass needs of them they leave only while gradients are recorded.
_RECORDED = ("aten.mkldnn_rnn_layer.default",)
Out = tuple[Any, tuple[str, ...]]  # an overload, and the names of its out arguments


def is_recorded(target: Any) -> bool:
    """Return whether an operator does in a training step what it does not while gradients are off."""
    return str(target) in _RECORDED


def called(target: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Return what an operator returns in a training step, of tensors that have no gradients."""
    if not is_recorded(target):
        return target(*arguments, **keywords)
    with torch.enable_grad():
        return target(*arguments, **keywords)


@lru_cache(512)
def out_variant(target: Any) -> Out | None:
    """Return the overload of an operator that writes its results where it is told to; None where there is none.

    It takes the same arguments as the operator does, and beside them one for each result; what says how a new tensor
    is made may be missing, as the results are there.
    """
    own = [_kind(argument) for argument in target._schema.arguments]
    results = sum(str(each.type) == "Tensor" for each in target._schema.returns)
    packet = target.overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        written = [a for a in other._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        taken = [_kind(a) for a in other._schema.arguments if a not in written]
        needed = [kind for kind in own if kind in taken or kind[0] not in _OF_NEW]
        if written and all(a.kwarg_only for a in written) and len(written) == results and taken == needed:
            return other, tuple(a.name for a in written)
    return None


def _kind(argument: Any) -> tuple[str, str]:
    return argument.name, str(argument.type)


def has_to_copy(
    target: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    places: Sequence[torch.Tensor | None],
) -> bool:
    """Return whether results can only be copied to where they are to lie, which takes time of its own.

    Overloads that write where they are told to take no result that is thrown away (None). Some make room there for more
    than the result (the mean of mse_loss does), which would be in the memory of others; so it is tried out.

    Args:
        target: the operator.
        arguments: of a call with tensors of its own.
        keywords: of it.
        places: places for its results, each of them all of a memory.
    """
    variant = out_variant(target)
    if (
        variant is None
        or any(place is None for place in places)
        or len(places) != len(variant[1])
        or is_recorded(target)
    ):
        return True
    sizes = [place.untyped_storage().nbytes() for place in places if place is not None]
    try:
        _direct(variant, arguments, keywords, places)()
    except (RuntimeError, ArithmeticError, LookupError):  # it does not like the numbers: to copy is always right
        return True
    return sizes != [place.untyped_storage().nbytes() for place in places if place is not None]


def _direct(
    variant: Out, arguments: Sequence[Any], keywords: Mapping[str, Any], places: Sequence[torch.Tensor | None]
) -> Callable[[], object]:
    other, names = variant
    accepted = {argument.name for argument in other._schema.arguments}
    passed = {name: value for name, value in keywords.items() if name in accepted}
    passed |= dict(zip(names, places, strict=True))
    return lambda: other(*arguments, **passed)


def caller(
    target: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    places: Sequence[torch.Tensor | None],
    copies: bool,
) -> Callable[[], object]:
    """Return a call of an operator with everything in it.

    Args:
        target: the operator.
        arguments: of the call.
        keywords: of the call.
        places: where its results go, one after another; None: thrown away, or written in place.
        copies: as ``has_to_copy`` said.
    """
    if not copies:
        variant = out_variant(target)
        if variant is None or any(place is None for place in places):  # it writes what it was given
            return lambda: target(*arguments, **keywords)
        return _direct(variant, arguments, keywords, places)

    def copied() -> None:
        results, _ = tree_flatten(called(target, arguments, keywords))
        for place, result in zip(places, results, strict=True):
            if place is not None and result is not None:  # gradients that nobody asked for are not made
                place.copy_(result)

    return copied
