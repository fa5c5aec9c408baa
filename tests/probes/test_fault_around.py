"""File pages that a first fault maps around the one that was touched are counted apart."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.samples import Status, Vma
from memtui.probes.pages import fault_around
from memtui.probes.pages.fault_around import FirstMappings, file_edges
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.tracker import PageWindow
from tests.support.pagetable_targets import Observer, Target, need_pagetable, vmas_of, within

pytestmark = pytest.mark.real_clock

FILE = Vma(0x10000, 0x90000, "r--p", "/usr/lib/x.so")
HEAP = Vma(0x90000, 0xF0000, "rw-p", "[heap]")


def pages(*numbers) -> PageSet:
    return PageSet.from_pages(np.array(numbers, np.uint64))


def counted(first: FirstMappings, touched: PageSet, resident: PageSet | None, vmas, generation: int) -> int | None:
    return first.update(PageWindow(touched, resident, generation=generation), vmas)[1]


@given(
    st.lists(st.sets(st.integers(0, 3000), max_size=50), min_size=1, max_size=4),
    st.lists(st.integers(0, 3000), max_size=8, unique=True).map(sorted),
)
def test_as_many_as_counted_one_by_one(windows, edges):
    extents = list(zip(edges[::2], edges[1::2], strict=False))
    vmas = tuple(Vma(a * 4096, b * 4096, "r--p", "/x" if n % 3 else "") for n, (a, b) in enumerate(extents))
    first, mapped = FirstMappings(), None
    for numbers in windows:
        touched = {n for n in numbers for v in vmas if v.name and v.start <= n * 4096 < v.end}
        wanted = None if mapped is None else 4096 * len(touched - mapped)
        assert counted(first, pages(*numbers), None, vmas, 0) == wanted
        mapped = touched | (mapped or set())


def test_only_files_are_counted_and_only_once():
    first = FirstMappings()
    vmas = (FILE, HEAP)
    assert counted(first, pages(0x10, 0x90), None, vmas, 0) is None
    assert counted(first, pages(0x10, 0x11, 0x91), None, vmas, 0) == 4096
    assert counted(first, pages(0x10, 0x11, 0x91), None, vmas, 0) == 0


def test_what_was_unmapped_is_new_again():
    first = FirstMappings()
    counted(first, pages(0x10, 0x11), pages(0x10, 0x11), (FILE,), 0)
    counted(first, pages(), pages(0x10), (FILE,), 0)
    assert counted(first, pages(0x10, 0x11), None, (FILE,), 0) == 4096


def test_after_an_exec_every_file_page_is_new():
    first = FirstMappings()
    counted(first, pages(0x10), None, (FILE,), 0)
    assert counted(first, pages(0x10, 0x11), None, (FILE,), 1) == 2 * 4096


@pytest.fixture
def with_damon(monkeypatch):
    """x86, and another observer of accessed bits."""
    monkeypatch.setattr(fault_around, "ACCESSED_WHEN_MAPPED", True)
    monkeypatch.setattr(fault_around, "other_observers", lambda: ("DAMON (damon_stat)",))


def test_a_page_that_was_mapped_in_a_window_is_in_it_though_its_accessed_bit_is_gone(with_damon):
    first = FirstMappings()
    first.update(PageWindow(pages(0x10), pages(0x10, 0x90)), (FILE, HEAP))
    resident = pages(0x10, 0x11, 0x12, 0x90, 0x91)  # nothing is known of memory without a file
    window, mapped_bytes = first.update(PageWindow(pages(0x11), resident), (FILE, HEAP))
    assert (window.pages.pages().tolist(), mapped_bytes, window.status) == ([0x11, 0x12], 2 * 4096, Status.OK)
    window, mapped_bytes = first.update(PageWindow(pages(), resident), (FILE, HEAP))
    assert (window.pages.page_count, mapped_bytes) == (0, 0), "they were mapped before"


def test_where_it_is_not_known_in_which_window_a_page_was_mapped_more_may_have_been_touched(with_damon):
    file = Vma(0, 1 << 32, "r--p", "/data")
    first = FirstMappings()
    first.update(PageWindow(pages(0x10), pages(0x10)), (file,))
    first.update(PageWindow(pages(0x10)), (file,))
    window, mapped_bytes = first.update(PageWindow(pages(0x10), pages(*range(0x10, 0x210))), (file,))
    assert (window.pages.page_count, mapped_bytes, window.status) == (1, 0, Status.APPROXIMATE)
    assert window.reason == f"about 2.00 MiB more may have been touched: {fault_around.TAKEN}"


@pytest.mark.parametrize(
    ("name", "value"), [("ACCESSED_WHEN_MAPPED", False), ("other_observers", tuple)], ids=["arm64", "a moved mapping"]
)
def test_where_a_mapped_page_need_not_be_accessed_nothing_is_added(with_damon, monkeypatch, name, value):
    monkeypatch.setattr(fault_around, name, value)
    first = FirstMappings()
    first.update(PageWindow(pages(0x10), pages(0x10)), (FILE,))
    window, mapped_bytes = first.update(PageWindow(pages(0x11), pages(0x10, 0x11, 0x12)), (FILE,))
    assert (window.pages.page_count, mapped_bytes, window.status) == (1, 4096, Status.OK)


def test_edges_of_files():
    assert file_edges((FILE, HEAP)).tolist() == [0x10000, 0x90000]


@pytest.mark.parametrize("folder", ["/dev/shm", "/var/tmp"])
def test_a_real_file_is_exact_from_the_second_touch_on(folder):
    """One page in 64 is read: the first time its neighbours come with it, the second time it comes alone."""
    need_pagetable()
    path = f"{folder}/memtui-{os.getpid()}"
    with Path(path).open("wb") as file:
        file.write(os.urandom(448 * 4096))
    try:
        with Target() as target, PageTableTracker() as tracker:
            address = target.do(
                f"f = open({path!r}, 'rb'); a = libc.mmap(None, 448 * 4096, 1, 2, f.fileno(), 0); "
                "libc.madvise(a, 448 * 4096, 1); v = view(a, 448); answer = a"
            )
            observer, first = Observer(tracker), FirstMappings()
            observer.start(target.pid)
            window = observer.window(target.pid, want_resident=True)
            assert first.update(window, vmas_of(target.pid))[1] is None
            target.do("v[8::64].sum()")
            window = observer.window(target.pid)
            seen = within(window.pages, address, 448)
            assert set(range(8, 448, 64)) <= set(seen)
            around = first.update(window, vmas_of(target.pid))[1]
            assert around >= len(seen) * 4096 >= 7 * 4096
            target.do("v[8::64].sum()")
            window = observer.window(target.pid)
            assert within(window.pages, address, 448) == list(range(8, 448, 64))
            assert first.update(window, vmas_of(target.pid))[1] < 7 * 4096
            observer.close()
    finally:
        Path(path).unlink()


def test_a_file_that_is_mapped_by_2_mib_has_pages_of_2_mib():
    """Where the page cache has large folios (ext4 since Linux 6.16), the kernel maps them whole, and so they count."""
    need_pagetable()
    path = f"/var/tmp/memtui-huge-{os.getpid()}"
    with Path(path).open("wb") as file:
        file.write(os.urandom(8 << 20))
    try:
        with Target() as target, PageTableTracker() as tracker:
            address = target.do(
                f"f = open({path!r}, 'rb'); a = libc.mmap(None, 10 << 20, 0, 0x22, -1, 0); a = -(-a >> 21) << 21; "
                "libc.mmap(a, 8 << 20, 1, 0x12, f.fileno(), 0); libc.madvise(a, 8 << 20, 14); "
                "v = view(a, 2048); v[::512].sum(); answer = a"
            )
            observer = Observer(tracker)
            observer.start(target.pid)
            target.do("v[512:600].sum()")
            window = observer.window(target.pid, want_resident=True)
            blocks = {(address >> 21) + i for i in range(4)}
            if not blocks & set(window.resident.huge.tolist()):
                pytest.skip("this kernel or file system maps files by 4 KiB only")
            assert blocks & set(window.pages.huge.tolist()) == {(address >> 21) + 1}
            assert not within(window.pages, address, 2048)
            assert not blocks & set(observer.window(target.pid).pages.huge.tolist())
            observer.close()
    finally:
        Path(path).unlink()
