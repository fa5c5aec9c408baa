"""Explain in one line why a step cannot be captured: the operator that prevents it, and the user's line that calls it.

Imports torch.
"""

from __future__ import annotations

import linecache
import os
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_NOT_THE_USERS = tuple(
    f"{Path(root).resolve()}{os.sep}" for root in (Path(torch.__file__).parent, Path(__file__).parents[2])
)
_LONGEST = 300


def why(error: Exception, step: Callable[..., Any], state: tuple[Any, ...]) -> str:
    """Return a line of text for an error of ``make_fx``."""
    # torch's exceptions of tensors without data carry it: fake_tensor.DataDependentOutputException.
    func = getattr(error, "func", None)
    if func is not None:
        return f"{func} needs to know the values of a tensor{where(error.__traceback__)}"
    # A condition on values; its symbols stand for the results of operators.
    symbols = getattr(getattr(error, "cond", None), "free_symbols", None)
    if symbols:
        sources = values_from(step, state)
        source = next((sources[symbol] for symbol in map(str, symbols) if symbol in sources), None)
        if source is not None:
            return f"what it does depends on values that {source[0]} takes from a tensor{where(error.__traceback__)}"
    line = next(filter(None, (line.strip() for line in str(error).splitlines())), "")
    return f"{type(error).__name__}: {line[:_LONGEST]}{where(error.__traceback__)}"


def first_of_values(step: Callable[..., Any], state: tuple[Any, ...]) -> str:
    """Return the user's line that first turns values into a number or shape: `` (FILE:LINE: code)``, or ""."""
    return next((line for _, line in values_from(step, state).values()), "")


def values_from(step: Callable[..., Any], state: tuple[Any, ...]) -> dict[str, tuple[str, str]]:
    """Return operator and line by the symbol of every value that the step reads from tensors, in their order.

    The step is recorded once more, as far as possible, with a mode that sees every operator.
    """
    watch = _Watch()

    def watched(*given: Any) -> Any:
        with watch:
            return step(*given)

    try:
        make_fx(watched, tracing_mode="fake", _allow_non_fake_inputs=True)(*state)
    except Exception:
        pass  # the error is known already
    return watch.sources


class _Watch(TorchDispatchMode):
    """Records the operator that each symbol comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, tuple[str, str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for symbol in _symbols(tree_leaves(result)):
            if symbol not in self.sources:
                self.sources[symbol] = str(func), _last(traceback.extract_stack())
        return result


def _symbols(values: Iterable[Any]) -> Iterable[str]:
    """Return the symbols in numbers and in shapes."""
    for value in values:
        numbers = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        for number in numbers:
            node = getattr(number, "node", None)
            yield from map(str, getattr(getattr(node, "expr", None), "free_symbols", ()))


def where(trace: TracebackType | None) -> str:
    """Return the innermost line of the user's code in a traceback: `` (FILE:LINE: code)``; empty without one."""
    return _last(traceback.extract_tb(trace))


def _last(frames: Iterable[traceback.FrameSummary]) -> str:
    """Return the innermost frame that is not torch's, memtui's or the interpreter's."""
    location = ""
    for frame in frames:
        path = Path(os.path.realpath(frame.filename))
        if path.is_file() and not str(path).startswith(_NOT_THE_USERS):
            code = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
            location = f" ({path.name}:{frame.lineno}: {code[:_LONGEST]})"
    return location
