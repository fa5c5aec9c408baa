"""The interface of an operator: the shapes it takes, its operations and bytes, and how it is called.

A new operator is one small class in one of these modules and its name in ``CATALOGUE``. Nothing here imports torch: the
worker passes the module in, so operators can be listed and grids validated where torch is not installed.
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
INDEX_BYTES = 8  # of a whole number that is an index
NO_FP8 = "{} has no fp8: PyTorch has it for linear"


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
        """Return the size of the tensor. ``item_bytes``: size of a number that is not an index."""
        return self.elements * (INDEX_BYTES if self.below else item_bytes)


class Operator(ABC):
    """One operator. Parameters are those that ``resolve`` returned.

    Attributes:
        name: name on the command line.
        summary: a short description.
        defaults: its parameters and their defaults, which have the type of the parameter.
        choices: the choices of a parameter that is a text.
        trains: whether the operator has a backward pass.
        may_be_zero: whole numbers that need not be above 0.
        texts: parameters that are any text.
        later: parameters that came after databases were written. Where they have their usual value, the canonical text
            of a configuration is that of before.
        unlabelled: parameters that the title of a configuration leaves out.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    defaults: ClassVar[Parameters]
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    trains: ClassVar[bool] = True
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    texts: ClassVar[tuple[str, ...]] = ()
    later: ClassVar[tuple[str, ...]] = ()
    unlabelled: ClassVar[tuple[str, ...]] = ()

    def resolve(self, given: Parameters) -> dict[str, Value]:
        """Return all parameters: the given ones, and defaults for the others.

        Raises:
            ValueError: an unknown key, a value of another type, or impossible shapes.
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
        if key in self.texts:
            if not isinstance(value, str):
                raise ValueError(f"{key} is a text, not {value}")
        elif key in self.choices:
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
        """Return the values of symbolic parameters, such as ``p=same``, before they are checked.

        Where the default is the name of another parameter, as in ``w=h``, its value is meant.
        """
        return {
            key: p[word]
            for key, word in self.defaults.items()
            if isinstance(word, str) and word in self.defaults and p[key] == word
        }

    def check(self, p: Any) -> None:  # noqa: B027 (most have nothing to check)
        """Raise ValueError for parameters that exclude each other."""

    @abstractmethod
    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        """Return the tensors that are new with every call."""

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        """Return the tensors that belong to the operator."""
        return ()

    @abstractmethod
    def output(self, p: Any) -> Shape:
        """Return the shape of the output of a forward pass."""

    @abstractmethod
    def flops(self, p: Any) -> int:
        """Return the operations of a forward pass; a multiplication with an addition counts as two."""

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Return the least bytes that a forward pass moves: inputs, weights and output once each."""
        read = sum(t.size_bytes(item_bytes) for t in (*self.inputs(p), *self.weights(p)))
        return read + prod(self.output(p)) * item_bytes

    @abstractmethod
    def bind(self, torch: Any, p: Any) -> Call:
        """Return a function that calls the operator once. ``torch`` is the module."""

    def weight_count(self, p: Any) -> int:
        """Return the number of parameters of a network."""
        return sum(t.elements for t in self.weights(p))

    def check_fp8(self, p: Any) -> None:
        """Raise ValueError where PyTorch cannot multiply numbers of 8 bits."""
        raise ValueError(NO_FP8.format(self.name))

    def check_compressed(self, p: Any) -> None:
        """Raise ValueError where PyTorch cannot multiply weights that are stored without their zeros."""
        raise ValueError(f"{self.name} has no semi_structured weights: PyTorch has them for linear")

    def bind_fp8(self, torch: Any, p: Any, device: str) -> Call:
        """Return what ``bind`` does, for numbers of 8 bits, where ``check_fp8`` allows it.

        Raises RuntimeError where this PyTorch, or this operator, has none.
        """
        raise RuntimeError(NO_FP8.format(self.name))


def _kind(default: Value) -> str:
    return "true or false" if isinstance(default, bool) else "a whole number"
