"""The scalars of all samples, in memory: columns in the order of time, which grow with a recording."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from memtui.session.columns import columns_of
from memtui.session.packed_column import Column, Slabs
from memtui.session.tables.samples import SampleColumns, SampleRecord

COLUMNS = columns_of(SampleRecord)
INTEGERS, OPTIONAL_INTEGERS, TEXTS = (
    tuple(name for name, kind in COLUMNS.items() if kind == wanted) for wanted in "iIt"
)


@dataclass(frozen=True, slots=True, eq=False)
class SampleArrays(SampleColumns[Column[np.int64], Column[np.float64], Sequence[str]]):
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
        return self.budgeted_ns.any_known

    @property
    def are_estimates(self) -> bool:
        """Whether working sets are estimates with an interval, from a part of the memory in each window."""
        return self.wss_high_bytes.any_known

    def intervals_ns(self, of: slice = slice(None)) -> NDArray[np.int64]:
        """Return the interval of each window: the requested one, or what the budget made of it."""
        budgeted_ns, asked_ns = self.budgeted_ns[of], self.asked_ns[of]
        return np.where(np.isnan(budgeted_ns), asked_ns, budgeted_ns).astype(np.int64)


class Texts(Sequence[str]):
    """A sequence of texts, most of which are like the one before: stored is where they change, each text once."""

    def __init__(self) -> None:
        self._count = 0
        self._starts = array("q")  # of the runs of one text
        self._codes = array("I")
        self._texts: list[str] = []
        self._code_of: dict[str, int] = {}

    def extend(self, texts: Sequence[str]) -> None:
        """Append texts."""
        for number, text in enumerate(texts, self._count):
            if self._codes and self._texts[self._codes[-1]] == text:
                continue
            if text not in self._code_of:
                self._code_of[text] = len(self._texts)
                self._texts.append(text)
            self._starts.append(number)
            self._codes.append(self._code_of[text])
        self._count += len(texts)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self[:])

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if not isinstance(index, slice):
            if not -self._count <= index < self._count:
                raise IndexError(index)
            return self._texts[self._codes[bisect_right(self._starts, index % self._count) - 1]]
        first, last, step = index.indices(self._count)
        if step != 1:
            return self[:][index]
        texts: list[str] = []
        run = bisect_right(self._starts, first) - 1
        while first < last:
            end = min(self._starts[run + 1] if run + 1 < len(self._starts) else last, last)
            texts += [self._texts[self._codes[run]]] * (end - first)
            first, run = end, run + 1
        return texts


class SampleArraysBuilder:
    """Adds rows to a table without copying the rows it has. A session may have hours of windows: they are packed."""

    def __init__(self) -> None:
        self._texts: dict[str, Texts] = {name: Texts() for name in TEXTS}
        slabs = Slabs()
        columns: dict[str, Any] = {name: Column.empty(np.int64, slabs) for name in INTEGERS}
        columns |= {name: Column.empty(np.float64, slabs) for name in OPTIONAL_INTEGERS}
        self.table = SampleArrays(**(columns | self._texts))

    def add(self, rows: list[tuple[Any, ...]]) -> SampleArrays:
        """Return the table with more rows, in the order of ``COLUMNS``. The texts of earlier tables grow with it.

        Raises:
            ValueError: samples or their ends do not rise, or a sample ends before it starts.
        """
        if not rows:
            return self.table
        values = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
        new: dict[str, Any] = {
            name: np.array(values[name], getattr(self.table, name).dtype)  # None becomes nan
            for name in (*INTEGERS, *OPTIONAL_INTEGERS)
        }
        # Every search in time relies on this.
        rising = all(
            (np.diff(np.concatenate((getattr(self.table, name)[-1:], new[name]))) > 0).all()
            for name in ("sample", "end_ns")
        )
        if not rising or (new["start_ns"] > new["end_ns"]).any():
            raise ValueError("its samples are not in the order of time")
        columns: dict[str, Any] = {name: getattr(self.table, name).extended(added) for name, added in new.items()}
        for name, texts in self._texts.items():
            texts.extend(values[name])
        self.table = SampleArrays(**(columns | self._texts))
        return self.table
