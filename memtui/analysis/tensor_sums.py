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
    """What tells a tensor from others; ``which`` of those that are alike in all else, by address."""

    category: int
    layer: str
    part: str
    size_bytes: int
    which: int


class TensorNumbers:
    """A number for every tensor, the same one after it has moved: it is told by kind, name and size."""

    def __init__(self) -> None:
        self.identities: list[Identity] = []
        self._number: dict[Identity, int] = {}

    def __len__(self) -> int:
        return len(self.identities)

    def of(self, tensors: TensorMap) -> NDArray[np.intp]:
        """Return the numbers of a map's tensors, each another: i8[n]."""
        found, alike = [], dict[tuple[int, str, str, int], int]()
        columns = tensors.category.tolist(), tensors.names, tensors.parts, tensors.size_bytes.tolist()
        for one in zip(*columns, strict=True):
            which = alike[one] = alike.get(one, -1) + 1
            identity = Identity(*one, which)
            number = self._number.setdefault(identity, len(self.identities))
            if number == len(self.identities):
                self.identities.append(identity)
            found.append(number)
        return np.array(found, np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """What one window touched of the tensors there were.

    Attributes:
        sample: its number.
        number: i8[n], of ``TensorNumbers``.
        touched_bytes: i8[n], of each that lie in touched pages.
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
        touched_bytes: i8[n], of all windows together.
        windows: i8[n], in how many it existed.
        touched_windows: i8[n], in how many any page of it was touched.
        last_sample: i8[n], the last of those; -1: none.
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
        found = cls.zero(count)
        for window in windows:
            found.add(window)
        return found

    def add(self, window: Window) -> None:
        """Count one more window."""
        number, touched = window.number, window.touched_bytes
        self.touched_bytes[number] += touched
        self.windows[number] += 1
        some = number[touched > 0]
        self.touched_windows[some] += 1
        self.last_sample[some] = np.maximum(self.last_sample[some], window.sample)

    def mean_bytes(self) -> NDArray[np.float64]:
        """Return f8[n]: touched in a window, mean over those in which it existed; 0 where it never did."""
        return self.touched_bytes / np.maximum(self.windows, 1)


class Grouping(StrEnum):
    """What tensors are added up by."""

    KIND = "kind"
    LAYER = "layer"
    BOTH = "layer and kind"
    TENSOR = "tensor"


def groups(category: Sequence[int], layers: Sequence[str], by: Grouping) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return which tensors go together: (group of each, i8[n]; first tensor of each group, i8[groups])."""
    if by is Grouping.TENSOR:
        return np.arange(len(layers)), np.arange(len(layers))
    keys: dict[tuple[object, ...], int] = {}
    place: list[int] = []
    first: list[int] = []
    for at, (kind, layer) in enumerate(zip(category, layers, strict=True)):
        key = {Grouping.KIND: (kind,), Grouping.LAYER: (layer,), Grouping.BOTH: (layer, kind)}[by]
        number = keys.setdefault(key, len(keys))
        if number == len(first):
            first.append(at)
        place.append(number)
    return np.array(place, np.intp), np.array(first, np.intp)


def grouped(values: NDArray[np.int64], group: NDArray[np.intp], count: int) -> NDArray[np.int64]:
    """Return the sums by group: i8[count]."""
    return np.bincount(group, values, count).astype(np.int64)  # exact: bytes of a process are fewer than 2**53
