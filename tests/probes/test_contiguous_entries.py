"""arm64: 16 contiguous entries of a page table are one translation, of which the processor marks any one."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from memtui.probes.pages.pagetable.tracker import PageTableTracker
from tests.support.pagetable_targets import Observer, Target, need_pagetable, within

pytestmark = pytest.mark.real_clock

KNOB = Path("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled")
PAGES = 256


@pytest.fixture
def folios_of_64_kib():
    if platform.machine() != "aarch64":
        pytest.skip("only arm64 has contiguous entries")
    if not KNOB.exists():
        pytest.skip("this kernel has no folios of 64 KiB (Linux 6.9)")
    need_pagetable()
    before = KNOB.read_text().partition("[")[2].partition("]")[0]
    KNOB.write_text("always")
    yield
    KNOB.write_text(before)


def test_with_one_page_its_sixteen_are_touched(folios_of_64_kib):
    with Target() as target, PageTableTracker() as tracker:
        observer = Observer(tracker)
        try:
            address = target.do(
                f"a = anonymous({PAGES}, 14, align=1 << 16); v = view(a, {PAGES}); v[:] = 1; answer = a"
            )
            observer.start(target.pid)
            target.do("v[[5, 40]] += 1")
            assert within(observer.window(target.pid).pages, address, PAGES) == [*range(16), *range(32, 48)]
            assert within(observer.window(target.pid).pages, address, PAGES) == []
            # What is made a mapping of its own has entries of its own.
            target.do("libc.mprotect(a + 4096 * 64, 4096, 1)")
            target.do("v[[64, 70, 255]].sum()")
            assert within(observer.window(target.pid).pages, address, PAGES) == [64, 70, *range(240, 256)]
        finally:
            observer.close()
