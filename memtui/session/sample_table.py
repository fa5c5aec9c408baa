"""The scalars of all samples, in memory: an answer in the order of time, and one that grows with a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any

import numpy as np
from numpy.typing import NDArray

INTEGERS = ("sample", "start_ns", "end_ns", "asked_ns", "sampler_cpu_ns", "recorder_cpu_ns", "gaps")
MAYBE = (
    "budgeted_ns",
    "next_ns",
    "paused_ns",
    "wss_bytes",
    "stored_bytes",
    "faulted_in_bytes",
    "unknown_bytes",
    "shared_bytes",
    "rss_bytes",
    "processes",
    "pss_bytes",
    "pss_ns",
    "wss_low_bytes",
    "wss_high_bytes",
    "lost_ns",
    "set_again_ns",
)
TEXTS = ("disturbed", "status", "reason")


@dataclass(frozen=True, slots=True, eq=False)
class SampleTable:
    """The scalars of all samples of the tree, a value per sample; nan where it could not be measured."""

    sample: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    asked_ns: NDArray[np.int64]
    sampler_cpu_ns: NDArray[np.int64]
    recorder_cpu_ns: NDArray[np.int64]
    gaps: NDArray[np.int64]
    budgeted_ns: NDArray[np.float64]
    next_ns: NDArray[np.float64]
    paused_ns: NDArray[np.float64]
    wss_bytes: NDArray[np.float64]
    stored_bytes: NDArray[np.float64]
    faulted_in_bytes: NDArray[np.float64]
    unknown_bytes: NDArray[np.float64]
    shared_bytes: NDArray[np.float64]
    rss_bytes: NDArray[np.float64]
    processes: NDArray[np.float64]  # how many; not known in old sessions
    pss_bytes: NDArray[np.float64]
    pss_ns: NDArray[np.float64]  # when it was read
    wss_low_bytes: NDArray[np.float64]  # of an estimate
    wss_high_bytes: NDArray[np.float64]
    lost_ns: NDArray[np.float64]
    set_again_ns: NDArray[np.float64]
    disturbed: Sequence[str]
    status: Sequence[str]
    reason: Sequence[str]

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
        """Return the interval of each window: what the budget made of the one asked for, where there is a budget."""
        budgeted_ns, asked_ns = self.budgeted_ns[of], self.asked_ns[of]
        return np.where(np.isnan(budgeted_ns), asked_ns, budgeted_ns).astype(np.int64)


class SampleTableBuilder:
    """A table that takes rows in without copying all that it has: there is room for as many again.

    A column of one value, as a third of them are in most sessions, is kept as that value: hours of windows are looked
    at, and every column is eight bytes of each.
    """

    def __init__(self) -> None:
        self._columns: dict[str, NDArray[Any]] = {}
        self._constant: dict[str, NDArray[Any]] = {name: np.empty(0, np.int64) for name in INTEGERS}
        self._constant |= {name: np.empty(0, np.float64) for name in MAYBE}  # one value each; none before the first row
        self._texts: dict[str, list[str]] = {name: [] for name in TEXTS}
        self.table = self._first(0)

    def add(self, rows: list[tuple[Any, ...]]) -> SampleTable:
        """Return the table with more rows, columns in the order of its fields. The texts of the last one grow with it.

        Raises:
            ValueError: samples or their ends do not rise, or one ends before it begins.
        """
        if not rows:
            return self.table
        have, total = len(self.table), len(self.table) + len(rows)
        columns = dict(zip((*INTEGERS, *MAYBE, *TEXTS), zip(*rows, strict=True), strict=True))
        for name in (*INTEGERS, *MAYBE):
            self._add(name, columns[name], have, total)
        since = slice(max(have - 1, 0), total)
        sample, end_ns, start_ns = (self._column(name, total)[since] for name in ("sample", "end_ns", "start_ns"))
        # Every search in time relies on this.
        rising = (sample[1:] > sample[:-1]).all() and (end_ns[1:] > end_ns[:-1]).all()
        if not rising or (start_ns > end_ns).any():
            raise ValueError("its samples are not in the order of time")
        for name, texts in self._texts.items():
            texts.extend(map(intern, columns[name]))  # the same few, thousands of times
        self.table = self._first(total)
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
            column = np.empty(2 * total, new.dtype)
            column[:have] = value
        else:
            column = self._columns[name]
            new = np.array(values, column.dtype)
            if total > len(column):
                longer = np.empty(2 * total, column.dtype)
                longer[:have] = column[:have]
                column = longer
        column[have:total] = new
        self._columns[name] = column

    def _column(self, name: str, total: int) -> NDArray[Any]:
        same = self._constant.get(name)
        return self._columns[name][:total] if same is None else np.broadcast_to(same, total) if total else same[:0]

    def _first(self, total: int) -> SampleTable:
        plain: dict[str, Any] = {name: self._column(name, total) for name in (*INTEGERS, *MAYBE)}
        return SampleTable(**(plain | self._texts))
