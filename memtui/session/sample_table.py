"""The scalars of all samples, in memory: columns in the order of time, which grow with a recording."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from memtui.session.schema import SampleColumns, SampleRecord, columns_of

COLUMNS = columns_of(SampleRecord)
INTEGERS, OPTIONAL_INTEGERS, TEXTS = (
    tuple(name for name, kind in COLUMNS.items() if kind == wanted) for wanted in "iIt"
)


@dataclass(frozen=True, slots=True, eq=False)
class SampleTable(SampleColumns[NDArray[np.int64], NDArray[np.float64], Sequence[str]]):
    """The scalars of all samples of the tree, a value per sample; nan where it could not be measured."""

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def newest(self) -> int:
        """Number of the last sample; -1 without any."""
        return int(self.sample[-1]) if len(self) else -1

    @property
    def has_budget(self) -> bool:
        """Whether a budget moved the interval."""
        return bool(np.isfinite(self.budgeted_ns).any())

    def intervals_ns(self, of: slice = slice(None)) -> NDArray[np.int64]:
        """Return the interval of each window: the requested one, or what the budget made of it."""
        budgeted_ns, asked_ns = self.budgeted_ns[of], self.asked_ns[of]
        return np.where(np.isnan(budgeted_ns), asked_ns, budgeted_ns).astype(np.int64)


class Texts(Sequence[str]):
    """A sequence of texts with few distinct ones: four bytes for each, and each distinct text once."""

    def __init__(self) -> None:
        self._codes = array("I")
        self._texts: list[str] = []
        self._code_of: dict[str, int] = {}

    def extend(self, texts: Sequence[str]) -> None:
        """Append texts."""
        for text in dict.fromkeys(texts):
            if text not in self._code_of:
                self._code_of[text] = len(self._texts)
                self._texts.append(text)
        self._codes.extend(map(self._code_of.__getitem__, texts))

    def __len__(self) -> int:
        return len(self._codes)

    def __iter__(self) -> Iterator[str]:
        return (self._texts[code] for code in self._codes)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._texts[code] for code in self._codes[index]]
        return self._texts[self._codes[index]]


class SampleTableBuilder:
    """Adds rows to a table without copying the rows it has: its arrays have room for as many again.

    A column of one value, as a third of them are in most sessions, is stored as that value: a session may have hours of
    windows, and every column is eight bytes of each.
    """

    def __init__(self) -> None:
        self._columns: dict[str, NDArray[Any]] = {}
        self._constant: dict[str, NDArray[Any]] = {name: np.empty(0, np.int64) for name in INTEGERS}
        # One value each; none before the first row.
        self._constant |= {name: np.empty(0, np.float64) for name in OPTIONAL_INTEGERS}
        self._texts: dict[str, Texts] = {name: Texts() for name in TEXTS}
        self.table = self._head(0)

    def add(self, rows: list[tuple[Any, ...]]) -> SampleTable:
        """Return the table with more rows, in the order of ``COLUMNS``. The texts of earlier tables grow with it.

        Raises:
            ValueError: samples or their ends do not rise, or a sample ends before it starts.
        """
        if not rows:
            return self.table
        have, total = len(self.table), len(self.table) + len(rows)
        columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
        for name in (*INTEGERS, *OPTIONAL_INTEGERS):
            self._add(name, columns[name], have, total)
        since = slice(max(have - 1, 0), total)
        sample, end_ns, start_ns = (self._column(name, total)[since] for name in ("sample", "end_ns", "start_ns"))
        # Every search in time relies on this.
        rising = (sample[1:] > sample[:-1]).all() and (end_ns[1:] > end_ns[:-1]).all()
        if not rising or (start_ns > end_ns).any():
            raise ValueError("its samples are not in the order of time")
        for name, texts in self._texts.items():
            texts.extend(columns[name])
        self.table = self._head(total)
        return self.table

    def _add(self, name: str, values: Sequence[Any], have: int, total: int) -> None:
        same = self._constant.get(name)
        if same is not None:
            new = np.array(values, same.dtype)  # None becomes nan
            value = same if have else new[:1]
            if np.array_equal(new, np.broadcast_to(value, len(new)), equal_nan=new.dtype.kind == "f"):
                self._constant[name] = value.copy()
                return
            del self._constant[name]
            column = _array_with_room(total, new.dtype)
            column[:have] = value
        else:
            column = self._columns[name]
            new = np.array(values, column.dtype)
            if total > len(column):
                longer = _array_with_room(total, column.dtype)
                longer[:have] = column[:have]
                column = longer
        column[have:total] = new
        self._columns[name] = column

    def _column(self, name: str, total: int) -> NDArray[Any]:
        same = self._constant.get(name)
        return self._columns[name][:total] if same is None else np.broadcast_to(same, total) if total else same[:0]

    def _head(self, total: int) -> SampleTable:
        columns: dict[str, Any] = {name: self._column(name, total) for name in (*INTEGERS, *OPTIONAL_INTEGERS)}
        return SampleTable(**(columns | self._texts))


def _array_with_room(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array for twice as many values, in a mapping of its own.

    Unused room is not resident there, and the whole mapping is returned to the kernel: arrays of a heap that are
    replaced by larger ones leave holes in it, which took twice what a session of an hour has in its columns.
    """
    return np.frombuffer(mmap.mmap(-1, 2 * count * dtype.itemsize), dtype)
