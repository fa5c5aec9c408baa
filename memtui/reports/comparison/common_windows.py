"""Sessions of different intervals in windows of one length: the shorter ones are merged (``analysis.merged_windows``).

What a window of k times the length would have seen is the union of k neighbours. That is known of stored pages of one
process at a time, so here both sides are those of the process with the most touched pages, without what a filter kept
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from memtui.analysis.reuse_distance import ReuseTracker
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.statistics import quantile
from memtui.analysis.window_merging import merge_windows
from memtui.core.page_set import PageSet
from memtui.core.units import between, duration
from memtui.reports.comparison.load import NOTHING, held, reuse_of
from memtui.reports.comparison.model import Memory, SameWindows, letters
from memtui.reports.source import ReportSource
from memtui.session.page_windows import PageWindows, busiest

MOST_TIMES = 5  # of the longest interval
NEARLY = 0.01  # of the length that a whole number of windows may miss it by


def common_interval_s(intervals_s: Sequence[float]) -> float | None:
    """Return the shortest multiple of the longest interval that is a whole number of each, within ``NEARLY`` of it.

    None where there is none up to ``MOST_TIMES`` of it.
    """
    longest = max(intervals_s)
    for times in range(1, MOST_TIMES + 1):
        length = times * longest
        if all(abs(round(length / one) * one - length) <= NEARLY * length for one in intervals_s):
            return length
    return None


def differ(memories: Sequence[Memory | None]) -> bool:
    """Whether sessions have windows of different lengths."""
    return len({memory.interval_s for memory in memories if memory is not None}) > 1


def in_same_windows(readers: Sequence[ReportSource], memories: Sequence[Memory | None]) -> SameWindows:
    """All sessions in windows of one length. Raises SessionError.

    Args:
        readers: the sessions.
        memories: of each, as it was recorded.
    """
    steady: list[float] = []
    reasons: dict[int, str] = {}
    for place, memory in enumerate(memories):
        if memory is None:
            reasons[place] = "no window was recorded"
        elif memory.interval_s[0] != memory.interval_s[1]:
            reasons[place] = f"its windows took {between(*map(duration, memory.interval_s))}"
        elif busiest(readers[place]) is None:
            reasons[place] = "no page sets are stored"
        else:
            steady.append(memory.interval_s[0])
    if len(steady) < 2:
        return SameWindows(0.0, (), reasons, "; ".join(f"{letters([at])}: {why}" for at, why in reasons.items()))
    length_s = common_interval_s(steady)
    if length_s is None:
        lengths = ", ".join(f"{one:g} s" for one in sorted(set(steady)))
        return SameWindows(0.0, (), reasons, f"no length is a whole number of {lengths}")
    found: list[Memory | None] = []
    for place, (reader, memory) in enumerate(zip(readers, memories, strict=True)):
        if place in reasons or memory is None:
            found.append(None)
            continue
        found.append(merged(reader, round(length_s / memory.interval_s[0]), length_s))
    return SameWindows(length_s, found, reasons)


def merged(reader: ReportSource, count: int, length_s: float) -> Memory | None:
    """Return the stored pages of the process with the most of them, ``count`` windows in one. Raises SessionError."""
    process = busiest(reader)
    if process is None:
        return None
    tracker, exact = ReuseTracker(), ExactReuse()
    places, sizes = [], []
    for place, pages in _groups(PageWindows(reader, process.key), count):
        places.append(place)
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
    first = np.searchsorted(samples.sample, int(samples.sample[0]) + np.array([*places, count * len(places)], np.int64))
    begins_ns = np.append(samples.start_ns, samples.end_ns[-1])[first] - samples.start_ns[0]
    line = held(begins_ns[:-1], wss, begins_ns[-1])
    return Memory((length_s, length_s), line, NOTHING, NOTHING, curve, figures, reasons)


def _groups(windows: PageWindows, count: int) -> Iterator[tuple[int, PageSet | None]]:
    """(place of its first window, pages) of each long window; None where one of its parts is not known."""
    for first in range(0, len(windows) - count + 1, count):
        yield first, next(merge_windows(windows[first : first + count], count), None)
