"""Rows of a table that are made when they come into sight."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class LazyRows(Sequence[T], Generic[T]):
    """A row for each of some numbers, which are the keys of the rows.

    Args:
        numbers: i8[rows], rising.
        make: the row of a number; asked for rows in sight only.
    """

    def __init__(self, numbers: NDArray[np.int64], make: Callable[[int], T]) -> None:
        self.numbers, self._make = numbers, make

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self._make(number) for number in self.numbers[place].tolist()]
        return self._make(int(self.numbers[place]))

    def place(self, number: object) -> int | None:
        """Where the row of a number is."""
        if not isinstance(number, int):
            return None
        found = self.last_until(number)
        return found if found >= 0 and self.numbers[found] == number else None

    def last_until(self, number: int) -> int:
        """Place of the last row whose number is not above that; -1: there is none."""
        return int(np.searchsorted(self.numbers, number, side="right")) - 1


def place_of(rows: Sequence[Any], key: Hashable) -> int | None:
    """Where the row with a key is; None: nowhere."""
    if isinstance(rows, LazyRows):
        return rows.place(key)
    return next((place for place, row in enumerate(rows) if row.key == key), None)
