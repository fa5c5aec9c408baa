"""Values of one range or one process over time: fetched in batches, within a time budget, and cached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from memtui.session.session import Session
from memtui.tui.presenters.time_budget import TimeBudget
from memtui.widgets.views.memory import Floats

POINTS = 1024  # of a line at most: more than the dots of a wide terminal
KEEP_POINTS = 8 * POINTS
BATCH_SAMPLES = 64  # of a query
Values = tuple[float, ...]
Fetch = Callable[[Session, int, int], Mapping[int, Values]]


def range_wss(key: int) -> Fetch:
    """Return touched bytes of a range by sample: (WSS,)."""

    def fetch(reader: Session, first: int, last: int) -> dict[int, Values]:
        samples, ids, touched = reader.vmas.wss(first, last)
        by_sample: dict[int, Values] = {}
        for sample, value in zip(samples[ids == key].tolist(), touched[ids == key].tolist(), strict=True):
            by_sample[sample] = (by_sample.get(sample, (0.0,))[0] + (value if value >= 0 else np.nan),)
        return by_sample

    return fetch


def process_sizes(keys: frozenset[int]) -> Fetch:
    """Return working set and resident set of a process (all its generations) by sample: (WSS, RSS)."""

    def fetch(reader: Session, first: int, last: int) -> dict[int, Values]:
        by_sample: dict[int, Values] = {}
        for row in reader.processes.samples(first, last):
            if row["process"] in keys:
                sizes = (row["wss_bytes"], row["rss_bytes"])
                by_sample[row["sample"]] = tuple(np.nan if size is None else float(size) for size in sizes)
        return by_sample

    return fetch


class Series:
    """Lines of several values a sample. Samples without data have the values of ``absent``."""

    def __init__(self, fetch: Fetch, absent: Values) -> None:
        self._fetch, self._absent = fetch, absent
        self._values: dict[int, Values] = {}

    def view(self, reader: Session, first: int, last: int, index: int, budget: TimeBudget) -> tuple[list[Floats], bool]:
        """Return an array per value for the samples ``first`` to before ``last``, and whether it is complete.

        A long session is read in even steps, the newest first; the sample at ``index`` is always among them.
        """
        numbers = reader.samples.sample[first:last].tolist()
        # Steps of a power of two on a fixed grid: no sample is fetched twice as a session grows.
        stride = 1 << max(0, -(-len(numbers) // POINTS) - 1).bit_length()
        wanted = [n for n in numbers if n % stride == 0]
        if first <= index < last:
            wanted.append(numbers[index - first])
        missing = sorted({n for n in wanted if n not in self._values}, reverse=True)
        complete = True
        for low, high in _runs(missing):
            self._values |= {n: self._absent for n in missing if low <= n <= high} | dict(
                self._fetch(reader, low, high)
            )
            if budget.spent:
                complete = low == missing[-1]
                break
        if len(self._values) > KEEP_POINTS:  # of a live session: drop samples that have left the picture
            inside = set(numbers)
            self._values = {n: values for n, values in self._values.items() if n in inside}
        nothing = (np.nan,) * len(self._absent)
        table = np.array([self._values.get(n, nothing) for n in numbers], float).reshape(-1, len(self._absent))
        return [table[:, n] for n in range(len(self._absent))], complete


def _runs(falling: list[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of neighbours, each at most ``BATCH_SAMPLES`` long: (first, last)."""
    start = 0
    for n in range(1, len(falling) + 1):
        if n == len(falling) or falling[n] != falling[n - 1] - 1 or n - start >= BATCH_SAMPLES:
            yield falling[n - 1], falling[start]
            start = n
