"""File pages that a first fault maps around the one that was touched are counted apart."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.samples import Vma
from memtui.probes.pages.fault_around import FirstMappings, file_edges
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from tests.support.pagetable_targets import Observer, Target, need_pagetable, vmas_of, within

pytestmark = pytest.mark.real_clock

FILE = Vma(0x10000, 0x90000, "r--p", "/usr/lib/x.so")
HEAP = Vma(0x90000, 0xF0000, "rw-p", "[heap]")


def pages(*numbers) -> PageSet:
    return PageSet.from_pages(np.array(numbers, np.uint64))


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
        assert first.update(pages(*numbers), None, vmas, 0) == wanted
        mapped = touched | (mapped or set())


def test_only_files_are_counted_and_only_once():
    first = FirstMappings()
    vmas = (FILE, HEAP)
    assert first.update(pages(0x10, 0x90), None, vmas, 0) is None
    assert first.update(pages(0x10, 0x11, 0x91), None, vmas, 0) == 4096
    assert first.update(pages(0x10, 0x11, 0x91), None, vmas, 0) == 0


def test_what_was_unmapped_is_new_again():
    first = FirstMappings()
    first.update(pages(0x10, 0x11), pages(0x10, 0x11), (FILE,), 0)
    first.update(pages(), pages(0x10), (FILE,), 0)
    assert first.update(pages(0x10, 0x11), None, (FILE,), 0) == 4096


def test_after_an_exec_every_file_page_is_new():
    first = FirstMappings()
    first.update(pages(0x10), None, (FILE,), 0)
    assert first.update(pages(0x10, 0x11), None, (FILE,), 1) == 2 * 4096


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
            assert first.update(window.pages, window.resident, vmas_of(target.pid), window.generation) is None
            target.do("v[8::64].sum()")
            window = observer.window(target.pid)
            seen = within(window.pages, address, 448)
            assert set(range(8, 448, 64)) <= set(seen)
            around = first.update(window.pages, None, vmas_of(target.pid), window.generation)
            assert around >= len(seen) * 4096 >= 7 * 4096
            target.do("v[8::64].sum()")
            window = observer.window(target.pid)
            assert within(window.pages, address, 448) == list(range(8, 448, 64))
            assert first.update(window.pages, None, vmas_of(target.pid), window.generation) < 7 * 4096
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
