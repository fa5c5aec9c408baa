"""Longer windows made of shorter ones: what a window of k times the length would have seen.

A page was touched in a long window when it was touched in one of the short ones that it consists of, so the union of k
neighbours is the page set of the long window, exactly, as far as sampling does not change what the program does and
the program gives no page back. A window reports pages that are there when it ends: of those that are given back before,
short windows see more, and their union is larger than what a recording at the longer interval has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

from memtui.analysis.reuse_distance import ReuseTracker, one_size_each
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.core.page_set import PageSet


def union(sets: Iterable[PageSet]) -> PageSet:
    """Return the pages of any of them; a page that was seen in two sizes counts in the larger one."""
    return one_size_each(reduce(PageSet.union, sets, PageSet.empty()))


def merge_windows(windows: Sequence[PageSet | None], count: int) -> Iterator[PageSet]:
    """Yield the page sets of windows of ``count`` times the length.

    Args:
        windows: page sets of neighbouring windows, in order of time; None where one is not known.
        count: neighbours in each; 1 or more.

    Yields:
        The union of each ``count`` neighbours. A rest at the end that is not whole, and every group that has a window
        which is not known, is left out.

    Raises:
        ValueError: ``count`` below 1.
    """
    if count < 1:
        raise ValueError(f"{count} windows cannot be merged")
    for first in range(0, len(windows) - count + 1, count):
        known = [pages for pages in windows[first : first + count] if pages is not None]
        if len(known) == count:
            yield union(known)


def reuse_of(windows: Iterable[PageSet]) -> ExactReuse:
    """Return the reuse distances of one process over windows in order of time; see ``analysis.reuse_distance``."""
    tracker, exact = ReuseTracker(), ExactReuse()
    for pages in windows:
        exact.add(tracker.touch(pages))
    return exact


def similarity(one: PageSet, other: PageSet) -> float | None:
    """Return the Jaccard index of two page sets: bytes shared over touched in either; None when both are empty."""
    both = union((one, other)).size_bytes
    if not both:
        return None
    return max(one.size_bytes + other.size_bytes - both, 0) / both
