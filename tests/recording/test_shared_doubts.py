"""What the window of one process says of pages that others map, too."""

from __future__ import annotations

import numpy as np

from memtui.core.page_set import PageSet
from memtui.core.samples import Status
from memtui.probes.pages.tracker import PageWindow
from memtui.recording.sampler.shared_doubts import shared_doubts

MIB = 1 << 20
TAKEN = "DAMON (kdamond 0) took accessed bits: about 398 MiB more may have been touched"


def window(mib: int, reason: str = "") -> PageWindow:
    pages = PageSet.from_pages(np.arange(mib * 256))
    return PageWindow(pages, status=Status.APPROXIMATE if reason else Status.OK, reason=reason)


def test_a_process_that_shares_the_memory_may_have_touched_it_too():
    doubts = shared_doubts({1: window(1, TAKEN), 2: window(95), 3: window(95)}, {2: 400 * MIB, 3: MIB // 2})
    of_second = "DAMON (kdamond 0) took accessed bits of memory that pid 1 has, too"
    assert doubts == {2: f"{of_second}: about 398 MiB more may have been touched"}, "of the third one little is shared"


def test_what_is_shared_bounds_what_is_missing():
    doubts = shared_doubts({1: window(1, f"a hole; {TAKEN}"), 2: window(10)}, {2: 40 * MIB})
    assert doubts[2].endswith("about 40.0 MiB more may have been touched")
    assert "398 MiB" in shared_doubts({1: window(1, TAKEN), 2: window(10)}, {})[2], "it is not read yet"


def test_a_window_that_says_so_itself_and_one_alone_are_left_as_they_are():
    assert shared_doubts({1: window(1, TAKEN), 2: window(1, TAKEN)}, {}) == {}
    assert shared_doubts({1: window(1, TAKEN)}, {}) == {}
    assert shared_doubts({1: window(1), 2: window(1)}, {}) == {}
    other = "about 9.0 MiB more may have been touched: it was given back with MADV_FREE, which leaves no trace"
    assert shared_doubts({1: window(1, other), 2: window(1)}, {}) == {}
