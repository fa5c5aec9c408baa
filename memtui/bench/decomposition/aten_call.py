"""A call of PyTorch's library (ATen), and what rules ask of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from memtui.bench.operators.base import Value

FoundOperator = tuple[str, dict[str, Value]]
MISSING = "there is no such operator"


class NotAnOperator(Exception):
    """The call is not an operator here; the message says why."""


@dataclass(frozen=True)
class AtenCall:
    """One call.

    Attributes:
        name: of the function, without overload and without the underscore of one that works in place.
        arguments: by name, defaults included.
        result: what it returned.
        is_weight: whether a tensor is a parameter or buffer of the network.
    """

    name: str
    arguments: Mapping[str, Any]
    result: Any
    is_weight: Callable[[Any], bool]

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)


Operators = Sequence[FoundOperator] | None  # None: the call is seen in its parts
Rule = Callable[[AtenCall], Operators]


def single(value: Any, what: str, count: int = 2) -> int:
    """Return the number of a list in which all are alike, as ``[3, 3]``."""
    values = [value] if isinstance(value, int) else list(value)
    if len(set(values)) > 1:
        raise NotAnOperator(f"its {what} is {'x'.join(map(str, values))}")
    return int(values[0]) if values else 0


def images(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return n, c, h, w of a tensor with any number of sides behind its channels."""
    n, c, *sides = shape
    return n, c, prod(sides[:-1]), sides[-1] if sides else 1


def is_channels_last(x: Any) -> bool:
    strides, (_, c, h, w) = x.stride(), x.shape
    return bool(c > 1 and h * w > 1 and strides[1] == 1)
