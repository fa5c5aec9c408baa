"""Touched bytes of tensors over several windows: each by itself, and added up by layer and by kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.tensor_pages import TensorMap


class Identity(NamedTuple):
    """Properties that identify a tensor; ``which`` counts tensors that are equal in all else, by address."""

    category: int
    layer: str
    part: str
    size_bytes: int
    which: int


class TensorNumbers:
    """A number for every tensor, which it keeps after it has moved: kind, name and size identify it."""

    def __init__(self) -> None:
        self.identities: list[Identity] = []
        self._number: dict[Identity, int] = {}

    def __len__(self) -> int:
        return len(self.identities)

    def of(self, tensors: TensorMap) -> NDArray[np.intp]:
        """Return the numbers of a map's tensors, all different: i8[n]."""
        numbers, alike = [], dict[tuple[int, str, str, int], int]()
        columns = tensors.category.tolist(), tensors.names, tensors.parts, tensors.size_bytes.tolist()
        for key in zip(*columns, strict=True):
            which = alike[key] = alike.get(key, -1) + 1
            identity = Identity(*key, which)
            number = self._number.setdefault(identity, len(self.identities))
            if number == len(self.identities):
                self.identities.append(identity)
            numbers.append(number)
        return np.array(numbers, np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Touched bytes of the tensors that existed in one window.

    Attributes:
        sample: number of the window.
        number: i8[n], number of each tensor in ``TensorNumbers``.
        touched_bytes: i8[n], bytes of each tensor that lie in touched pages.
        rest_bytes: i8[len(REST)].
    """

    sample: int
    number: NDArray[np.intp]
    touched_bytes: NDArray[np.int64]
    rest_bytes: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TensorSums:
    """Sums over windows by number of the tensor.

    Attributes:
        touched_bytes: i8[n], touched bytes of all windows together.
        windows: i8[n], number of windows in which the tensor existed.
        touched_windows: i8[n], number of windows in which a page of the tensor was touched.
        last_sample: i8[n], the last window in which it was touched; -1: never.
    """

    touched_bytes: NDArray[np.int64]
    windows: NDArray[np.int64]
    touched_windows: NDArray[np.int64]
    last_sample: NDArray[np.int64]

    @classmethod
    def zero(cls, count: int) -> TensorSums:
        """Return the sums of no window."""
        touched_bytes, windows, touched_windows = np.zeros((3, count), np.int64)
        return cls(touched_bytes, windows, touched_windows, np.full(count, -1, np.int64))

    @classmethod
    def of(cls, windows: Iterable[Window], count: int) -> TensorSums:
        """Add up windows in any order, of ``count`` tensors."""
        sums = cls.zero(count)
        for window in windows:
            sums.add(window)
        return sums

    def add(self, window: Window) -> None:
        """Count one more window."""
        number, touched = window.number, window.touched_bytes
        self.touched_bytes[number] += touched
        self.windows[number] += 1
        some = number[touched > 0]
        self.touched_windows[some] += 1
        self.last_sample[some] = np.maximum(self.last_sample[some], window.sample)

    def mean_bytes(self) -> NDArray[np.float64]:
        """Return f8[n]: mean touched bytes over the windows in which the tensor existed; 0 where it never did."""
        return self.touched_bytes / np.maximum(self.windows, 1)


class Grouping(StrEnum):
    """Key by which tensors are added up."""

    KIND = "kind"
    LAYER = "layer"
    BOTH = "layer and kind"
    TENSOR = "tensor"


def groups(category: Sequence[int], layers: Sequence[str], by: Grouping) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return which tensors go together: (group of each, i8[n]; first tensor of each group, i8[groups])."""
    if by is Grouping.TENSOR:
        return np.arange(len(layers)), np.arange(len(layers))
    keys: dict[tuple[object, ...], int] = {}
    group: list[int] = []
    first: list[int] = []
    for index, (kind, layer) in enumerate(zip(category, layers, strict=True)):
        key = {Grouping.KIND: (kind,), Grouping.LAYER: (layer,), Grouping.BOTH: (layer, kind)}[by]
        number = keys.setdefault(key, len(keys))
        if number == len(first):
            first.append(index)
        group.append(number)
    return np.array(group, np.intp), np.array(first, np.intp)


def grouped(values: NDArray[np.int64], group: NDArray[np.intp], count: int) -> NDArray[np.int64]:
    """Return the sums by group: i8[count]."""
    return np.bincount(group, values, count).astype(np.int64)  # exact: bytes of a process are fewer than 2**53
