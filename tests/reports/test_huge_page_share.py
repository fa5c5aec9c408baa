"""The share of huge pages in a working set. Of a real process: tests/end_to_end/test_kinds_of_memory.py."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.reports.huge_page_share import MOST_WINDOWS, huge_page_lines, huge_page_share


def pages(small: int, huge: int) -> PageSet:
    one = PageSet.from_pages(np.arange(small))
    return PageSet(one.blocks, one.bits, np.arange(1000, 1000 + huge, dtype=np.uint64), one.giant)


def source(
    sets: dict[tuple[int, int], PageSet | None], read: list[int]
) -> tuple[SimpleNamespace, list[dict[str, int]]]:
    """A session with these pages by sample and process, and the rows of its processes."""

    def page_set(sample: int, process: int) -> PageSet | None:
        read.append(sample)
        return sets[sample, process]

    return SimpleNamespace(page_set=page_set), [{"sample": s, "process": p} for s, p in sets]


def test_the_share_is_of_all_processes_in_the_windows_that_count():
    reader, rows = source({(1, 1): pages(512, 1), (1, 2): pages(512, 1), (2, 1): pages(0, 9)}, [])
    assert huge_page_share(reader, rows, {1}) == 0.5
    assert huge_page_share(reader, rows, {2}) == 1.0
    assert huge_page_share(reader, rows, {3}) is None


def test_without_stored_pages_it_is_not_known():
    reader, rows = source({(1, 1): None, (2, 1): PageSet.empty()}, [])
    assert huge_page_share(reader, rows, {1, 2}) is None


def test_of_a_long_session_few_windows_are_read_from_the_first_to_the_last():
    read: list[int] = []
    reader, rows = source({(n, 1): pages(512, 1) for n in range(1000)}, read)
    assert huge_page_share(reader, rows, set(range(1000))) == 0.5
    assert len(read) == MOST_WINDOWS
    assert (read[0], read[-1]) == (0, 999)


@pytest.mark.parametrize(("share", "lines"), [(None, 0), (0.0, 0), (0.09, 0), (0.1, 1), (1.0, 1)])
def test_a_small_share_is_not_said(share, lines):
    assert len(huge_page_lines(share)) == lines
