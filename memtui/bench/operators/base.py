"""What an operator is to the bench: the shapes it takes, what it computes and moves, and how it is called.

A new operator is one small class in one of these modules and its name in ``CATALOGUE``. Nothing here imports torch: the
worker that measures hands the module in, so operators can be listed and grids be checked where it is not installed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

Value = int | float | bool | str
Parameters = Mapping[str, Value]
Shape = tuple[int, ...]
Call = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]  # (inputs, weights) -> output
INDEX_BYTES = 8  # of a whole number that says where to look


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that an operator reads.

    Attributes:
        shape: its size.
        below: whole numbers from 0 to this, this excluded; 0: normally distributed numbers.
        positive: magnitudes, such as variances, instead of numbers of both signs.
    """

    shape: Shape
    below: int = 0
    positive: bool = False

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def size_bytes(self, item_bytes: int) -> int:
        """Return its size. ``item_bytes``: of a number that is not an index."""
        return self.elements * (INDEX_BYTES if self.below else item_bytes)


class Operator(ABC):
    """One operator. Parameters are those that ``resolve`` returned.

    Attributes:
        name: on the command line.
        summary: what it is, in a few words.
        defaults: its parameters; also what type a value of each has.
        choices: the words that a parameter may be, where it is a word.
        trains: whether it has a backward pass.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    defaults: ClassVar[Parameters]
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    trains: ClassVar[bool] = True
    may_be_zero: ClassVar[tuple[str, ...]] = ()  # whole numbers that need not be above 0

    def resolve(self, given: Parameters) -> dict[str, Value]:
        """Return all parameters: the given ones, and defaults for the others.

        Raises:
            ValueError: a key it lacks, a value of another type, or shapes that cannot be.
        """
        for key in given:
            if key not in self.defaults:
                raise ValueError(f"{self.name} has no parameter {key}; it has {', '.join(self.defaults)}")
        parameters = {key: given.get(key, default) for key, default in self.defaults.items()}
        parameters |= self.derived(parameters)
        for key, value in parameters.items():
            self._check_value(key, value)
        self.check(parameters)
        if any(size < 1 for size in self.output(parameters)):
            raise ValueError(f"the output would have the shape {'x'.join(map(str, self.output(parameters)))}")
        return parameters

    def _check_value(self, key: str, value: Value) -> None:
        """Raise ValueError for a value that the parameter cannot have."""
        default = self.defaults[key]
        if key in self.choices:
            if value not in self.choices[key]:
                raise ValueError(f"{key} is one of {', '.join(self.choices[key])}, not {value}")
        elif isinstance(default, bool) or isinstance(value, bool):
            if not (isinstance(value, bool) and isinstance(default, bool)):
                raise ValueError(f"{key} is {_kind(default)}, not {value}")
        elif not isinstance(value, int):
            raise ValueError(f"{key} is {_kind(default)}, not {value}")
        elif value < (0 if key in self.may_be_zero else 1):
            raise ValueError(f"{key}={value} is too small")

    def derived(self, p: Parameters) -> Parameters:
        """Return the values in the place of words that stand for one, such as ``p=same``. They are not checked yet."""
        return {}

    def check(self, p: Any) -> None:  # noqa: B027 (most have nothing to check)
        """Raise ValueError for parameters that cannot go together."""

    @abstractmethod
    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        """Return what is new with every call."""

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        """Return what belongs to the operator."""
        return ()

    @abstractmethod
    def output(self, p: Any) -> Shape:
        """Return the shape of the output of a forward pass."""

    @abstractmethod
    def flops(self, p: Any) -> int:
        """Return the operations of a forward pass; a multiplication with an addition counts as two."""

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Return the least that a forward pass moves: inputs, weights and output once each."""
        read = sum(t.size_bytes(item_bytes) for t in (*self.inputs(p), *self.weights(p)))
        return read + prod(self.output(p)) * item_bytes

    @abstractmethod
    def bind(self, torch: Any, p: Any) -> Call:
        """Return a function that calls it once. ``torch`` is the module."""


def _kind(default: Value) -> str:
    return "true or false" if isinstance(default, bool) else "a whole number"
