"""Longer windows built from shorter ones: the pages that a window of k times the length would have seen.

A page was touched in a long window when it was touched in one of its short windows, so the union of k neighbours is
exactly the page set of the long window, as long as sampling does not change what the program does and the program
releases no page. A window reports the pages that exist when it ends: short windows see more of the pages that are
released, so their union is larger than the page set of a recording at the longer interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

from memtui.analysis.reuse_distance import ReuseTracker, drop_nested_pages
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.core.page_set import PageSet


def union(sets: Iterable[PageSet]) -> PageSet:
    """Return the pages of any of them; a page that was seen in two sizes counts in the larger one."""
    return drop_nested_pages(reduce(PageSet.union, sets, PageSet.empty()))


def merge_windows(windows: Sequence[PageSet | None], count: int) -> Iterator[PageSet]:
    """Yield the page sets of windows of ``count`` times the length.

    Args:
        windows: page sets of neighbouring windows, in order of time; None where a page set is not known.
        count: neighbours in each long window; 1 or more.

    Yields:
        The union of each ``count`` neighbours. An incomplete group at the end, and every group with a window that is
        not known, is left out.

    Raises:
        ValueError: ``count`` below 1.
    """
    if count < 1:
        raise ValueError(f"{count} windows cannot be merged")
    for first in range(0, len(windows) - count + 1, count):
        sets = [pages for pages in windows[first : first + count] if pages is not None]
        if len(sets) == count:
            yield union(sets)


def reuse_of(windows: Iterable[PageSet]) -> ExactReuse:
    """Return the reuse distances of one process over windows in order of time; see ``analysis.reuse_distance``."""
    tracker, exact = ReuseTracker(), ExactReuse()
    for pages in windows:
        exact.add(tracker.touch(pages))
    return exact


def similarity(first: PageSet, second: PageSet) -> float | None:
    """Return the Jaccard index of two page sets: bytes shared over touched in either; None when both are empty."""
    both = union((first, second)).size_bytes
    if not both:
        return None
    return max(first.size_bytes + second.size_bytes - both, 0) / both
