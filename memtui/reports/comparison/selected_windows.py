"""Sessions of which a budget moved the interval, in windows of nearly one length: those that took about as long in all.

A working set grows with the length of its window, so only windows are held against each other of which the longest took
``RATIO`` of the shortest. Which lengths that are follows from the sessions: those of which each has the most windows.
Reuse is that of all windows of a session, and no part of it belongs to some of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.statistics import quantile
from memtui.reports.comparison.load import NOTHING, over_time, reuse_of
from memtui.reports.comparison.model import CommonWindows, RecordedMemory
from memtui.reports.source import ReportSource

RATIO = 2**0.5  # of the longest to the shortest of these windows
LEAST_WINDOWS = 3  # of each session, of which there is a median
OF_ALL_WINDOWS = "reuse is that of windows of all lengths"
HOW = "record with one --interval and --max-overhead none for windows of one length"


def in_selected_windows(
    readers: Sequence[ReportSource], memories: Sequence[RecordedMemory | None]
) -> CommonWindows | None:
    """Return all sessions in windows that took nearly the same time; None where there are too few of them.

    Args:
        readers: the sessions.
        memories: memory of each session, as recorded.
    """
    if None in memories:
        return None
    lengths_s = [_measured_lengths_s(reader) for reader in readers]
    bounds_s = common_lengths_s([lengths[~np.isnan(lengths)] for lengths in lengths_s])
    if bounds_s is None:
        return None
    selected = [
        _memory(reader, (bounds_s[0] <= lengths) & (lengths <= bounds_s[1]), bounds_s, memory.lower_bound)
        for reader, lengths, memory in zip(readers, lengths_s, memories, strict=True)
        if memory is not None
    ]
    return CommonWindows(0.0, selected, selected_s=bounds_s)


def common_lengths_s(lengths_s: Sequence[NDArray[np.float64]]) -> tuple[float, float] | None:
    """Return the shortest and longest of the windows of which each session has the most; None: too few.

    ``lengths_s``: f8[n], seconds that the windows of a session took.
    """
    ordered = [np.sort(lengths) for lengths in lengths_s]
    every = np.unique(np.concatenate(ordered))
    if not len(every):
        return None
    first = [np.searchsorted(lengths, every, "left") for lengths in ordered]
    after = [np.searchsorted(lengths, every * RATIO, "right") for lengths in ordered]
    fewest = np.min([last - start for start, last in zip(first, after, strict=True)], axis=0)
    best = int(fewest.argmax())
    if fewest[best] < LEAST_WINDOWS:
        return None
    chosen = every[(every >= every[best]) & (every <= every[best] * RATIO)]
    return float(chosen[0]), float(chosen[-1])


def _measured_lengths_s(reader: ReportSource) -> NDArray[np.float64]:
    """Return what each window took; nan for one without a working set."""
    samples = reader.samples
    return np.where(np.isnan(samples.wss_bytes[:]), np.nan, (samples.end_ns - samples.start_ns) / 1e9)


def _memory(
    reader: ReportSource, selected: NDArray[np.bool_], bounds_s: tuple[float, float], lower_bound: bool
) -> RecordedMemory:
    curve, no_reuse, reasons = reuse_of(ExactReuse(), OF_ALL_WINDOWS)
    wss = np.where(selected, reader.samples.wss_bytes[:], np.nan)
    figures = {
        "windows": float(selected.sum()),
        "wss_median_bytes": quantile(wss, 0.5),
        "wss_p95_bytes": quantile(wss, 0.95),
        **no_reuse,
    }
    line = over_time(reader, wss)
    return RecordedMemory(bounds_s, line, NOTHING, NOTHING, curve, figures, reasons, lower_bound=lower_bound)
