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
        """The interval of each window: what the budget made of the one asked for, where there is a budget."""
        budgeted_ns, asked_ns = self.budgeted_ns[of], self.asked_ns[of]
        return np.where(np.isnan(budgeted_ns), asked_ns, budgeted_ns).astype(np.int64)


class Growing:
    """A table that takes rows in without copying all that it has: there is room for as many again."""

    def __init__(self) -> None:
        self._columns: dict[str, NDArray[Any]] = {name: np.empty(0, np.int64) for name in INTEGERS}
        self._columns |= {name: np.empty(0, np.float64) for name in MAYBE}
        self._texts: dict[str, list[str]] = {name: [] for name in TEXTS}
        self.table = self._first(0)

    def add(self, rows: list[tuple[Any, ...]]) -> SampleTable:
        """The table with more rows, columns in the order of its fields. The texts of the last one grow with it.

        Raises:
            ValueError: samples or their ends do not rise, or one ends before it begins.
        """
        if not rows:
            return self.table
        have, total = len(self.table), len(self.table) + len(rows)
        columns = dict(zip((*INTEGERS, *MAYBE, *TEXTS), zip(*rows, strict=True), strict=True))
        for name, column in self._columns.items():
            if total > len(column):
                longer = np.empty(2 * total, column.dtype)
                longer[:have] = column[:have]
                self._columns[name] = column = longer
            column[have:total] = np.array(columns[name], column.dtype)  # None becomes nan
        since = slice(max(have - 1, 0), total)
        sample, end_ns = self._columns["sample"][since], self._columns["end_ns"][since]
        # Every search in time relies on this.
        rising = (sample[1:] > sample[:-1]).all() and (end_ns[1:] > end_ns[:-1]).all()
        if not rising or (self._columns["start_ns"][since] > end_ns).any():
            raise ValueError("its samples are not in the order of time")
        for name, texts in self._texts.items():
            texts.extend(map(intern, columns[name]))  # the same few, thousands of times
        self.table = self._first(total)
        return self.table

    def _first(self, total: int) -> SampleTable:
        plain: dict[str, Any] = {name: column[:total] for name, column in self._columns.items()}
        return SampleTable(**(plain | self._texts))
