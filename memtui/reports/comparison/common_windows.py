"""Sessions of different intervals in windows of one length: the shorter ones are merged (``analysis.window_merging``).

Where the interval of a session changed while it was recorded, windows are selected (``selected_windows``).

A window of k times the length would have the union of the pages of k neighbours. Only the stored pages of one process
can be merged, so the figures here are those of the process with the most touched pages, without filtered ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from memtui.analysis.reuse_distance import ReuseTracker
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.statistics import quantile
from memtui.analysis.window_merging import merge_windows
from memtui.core.page_set import PageSet
from memtui.core.units import between, duration
from memtui.reports.comparison.load import NOTHING, reuse_of, stepped
from memtui.reports.comparison.model import CommonWindows, RecordedMemory, letters
from memtui.reports.comparison.selected_windows import HOW, in_selected_windows
from memtui.reports.source import ReportSource
from memtui.session.page_windows import PageWindows, busiest

MOST_TIMES = 5  # of the longest interval
NEARLY = 0.01  # relative difference that a multiple of a window may have to the length


def common_interval_s(intervals_s: Sequence[float]) -> float | None:
    """Return the shortest multiple of the longest interval that is a whole number of each, within ``NEARLY`` of it.

    None where there is none up to ``MOST_TIMES`` of it.
    """
    longest = max(intervals_s)
    for times in range(1, MOST_TIMES + 1):
        length = times * longest
        if all(abs(round(length / interval) * interval - length) <= NEARLY * length for interval in intervals_s):
            return length
    return None


def differ(memories: Sequence[RecordedMemory | None]) -> bool:
    """Return whether sessions have windows of different lengths."""
    return len({memory.interval_s for memory in memories if memory is not None}) > 1


def in_same_windows(readers: Sequence[ReportSource], memories: Sequence[RecordedMemory | None]) -> CommonWindows:
    """Return all sessions in windows of one length. Raises SessionError.

    Args:
        readers: the sessions.
        memories: memory of each session, as recorded.
    """
    steady: list[float] = []
    reasons: dict[int, str] = {}
    for index, memory in enumerate(memories):
        if memory is None:
            reasons[index] = "no window was recorded"
        elif memory.interval_s[0] != memory.interval_s[1]:
            reasons[index] = f"its windows took {between(*map(duration, memory.interval_s))}"
        elif busiest(readers[index]) is None:
            reasons[index] = "no page sets are stored"
        else:
            steady.append(memory.interval_s[0])
    have_moved = any(memory is not None and memory.interval_s[0] != memory.interval_s[1] for memory in memories)
    if have_moved and (selected := in_selected_windows(readers, memories)) is not None:
        return selected
    if len(steady) < 2:
        why_not = "; ".join(f"{letters([index])}: {why}" for index, why in reasons.items())
        return CommonWindows(0.0, (), reasons, f"{why_not} ({HOW})" if have_moved else why_not)
    length_s = common_interval_s(steady)
    if length_s is None:
        lengths = ", ".join(f"{interval:g} s" for interval in sorted(set(steady)))
        return CommonWindows(0.0, (), reasons, f"no length is a whole number of {lengths}")
    long = [
        None if index in reasons or memory is None else _merged_as(reader, memory, length_s)
        for index, (reader, memory) in enumerate(zip(readers, memories, strict=True))
    ]
    return CommonWindows(length_s, long, reasons)


def _merged_as(reader: ReportSource, memory: RecordedMemory, length_s: float) -> RecordedMemory | None:
    """Return the windows of a session merged to a length; they lack what its own windows lack."""
    long = merged(reader, round(length_s / memory.interval_s[0]), length_s)
    return None if long is None else replace(long, lower_bound=memory.lower_bound)


def merged(reader: ReportSource, count: int, length_s: float) -> RecordedMemory | None:
    """Return the stored pages of the process with the most of them, ``count`` windows in one. Raises SessionError."""
    process = busiest(reader)
    if process is None:
        return None
    tracker, exact = ReuseTracker(), ExactReuse()
    firsts, sizes = [], []
    for first, pages in _groups(PageWindows(reader, process.key), count):
        firsts.append(first)
        sizes.append(np.nan if pages is None else pages.size_bytes)
        if pages is not None:
            exact.add(tracker.touch(pages))
    curve, figures, reasons = reuse_of(exact, "no page was touched in two windows")
    wss = np.array(sizes, np.float64)
    figures = {
        "windows": float(np.isfinite(wss).sum()),
        "wss_median_bytes": quantile(wss, 0.5),
        "wss_p95_bytes": quantile(wss, 0.95),
        **figures,
    }
    if not np.isfinite(wss).any():
        reasons |= dict.fromkeys(("wss_median_bytes", "wss_p95_bytes"), "no such window is whole")
    samples = reader.samples
    edges = int(samples.sample[0]) + np.array([*firsts, count * len(firsts)], np.int64)
    indices = np.searchsorted(samples.sample, edges)
    edges_ns = np.append(samples.start_ns, samples.end_ns[-1])[indices] - samples.start_ns[0]
    line = stepped(edges_ns[:-1], wss, edges_ns[-1])
    return RecordedMemory((length_s, length_s), line, NOTHING, NOTHING, curve, figures, reasons)


def _groups(windows: PageWindows, count: int) -> Iterator[tuple[int, PageSet | None]]:
    """Yield (index of its first window, pages) of each long window; None where one of its parts is unknown."""
    for first in range(0, len(windows) - count + 1, count):
        yield first, next(merge_windows(windows[first : first + count], count), None)
