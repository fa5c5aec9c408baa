"""Calls of an operator whose results are written to given places. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

_OF_NEW = ("dtype", "layout", "device", "pin_memory")
# These operators store the data of the backward pass only while gradients are recorded.
_RECORDED = ("aten.mkldnn_rnn_layer.default",)
Out = tuple[Any, tuple[str, ...]]  # an overload, and the names of its out arguments


def is_recorded(target: Any) -> bool:
    """Return whether an operator does more in a training step than with gradients off."""
    return str(target) in _RECORDED


def called(target: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Call an operator as in a training step, on tensors without gradients."""
    if not is_recorded(target):
        return target(*arguments, **keywords)
    with torch.enable_grad():
        return target(*arguments, **keywords)


@lru_cache(512)
def out_variant(target: Any) -> Out | None:
    """Return the overload of an operator that writes its results to given tensors; None where there is none.

    The overload takes the arguments of the operator, and an out argument for each result; arguments that describe a new
    tensor may be missing, as the results exist already.
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
    """Return whether results have to be copied to their places, which takes additional time.

    An out overload needs a place for every result, also for one that is not used (None). Some overloads enlarge their
    out tensors (as mse_loss with a mean does), and would write into the memory of others; so a call is tried out.

    Args:
        target: the operator.
        arguments: positional arguments of a call, with separate tensors.
        keywords: keyword arguments of the call.
        places: tensors for its results, each of which has its storage for itself.
    """
    variant = out_variant(target)
    if (
        variant is None
        or any(destination is None for destination in places)
        or len(places) != len(variant[1])
        or is_recorded(target)
    ):
        return True
    sizes = [destination.untyped_storage().nbytes() for destination in places if destination is not None]
    try:
        _direct(variant, arguments, keywords, places)()
    except (RuntimeError, ArithmeticError, LookupError):  # it refuses these values: copying is always right
        return True
    return sizes != [destination.untyped_storage().nbytes() for destination in places if destination is not None]


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
    """Return a function without arguments that calls an operator.

    Args:
        target: the operator.
        arguments: positional arguments of the call.
        keywords: keyword arguments of the call.
        places: a tensor for each result; None: the result is not used, or written in place.
        copies: result of ``has_to_copy``.
    """
    if not copies:
        variant = out_variant(target)
        if variant is None or any(destination is None for destination in places):  # it writes its arguments
            return lambda: target(*arguments, **keywords)
        return _direct(variant, arguments, keywords, places)

    def copied() -> None:
        results, _ = tree_flatten(called(target, arguments, keywords))
        for destination, result in zip(places, results, strict=True):
            if destination is not None and result is not None:  # gradients that are not needed are None
                destination.copy_(result)

    return copied
