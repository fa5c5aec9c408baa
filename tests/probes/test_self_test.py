"""Memory of this process for the self-test of a tracker: present pages between guards, of which some are touched."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from memtui.core.page_sizes import PAGE_BYTES
from memtui.probes.pages import self_test
from memtui.probes.pages.self_test import misjudged, other_pages, own_pages


def mapping_of(address: int) -> tuple[int, int, str]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        extent, perms, *_ = line.split()
        start, end = (int(part, 16) for part in extent.split("-"))
        if start <= address < end:
            return start, end, perms
    raise AssertionError("it is not mapped")


def test_the_pages_are_a_mapping_of_their_own_and_gone_afterwards():
    with own_pages(5) as pages:
        address = pages.address
        assert pages.first * PAGE_BYTES == address
        assert mapping_of(address) == (address, address + 5 * PAGE_BYTES, "rw-p")
        for guard in (address - 1, address + 5 * PAGE_BYTES):
            assert mapping_of(guard)[2] == "---p", "the kernel joins it with no neighbour"
        content = bytes(pages._memory[PAGE_BYTES : 6 * PAGE_BYTES])
        assert [content[page * PAGE_BYTES] for page in range(5)] == [2] * 5, "all were written to"
    with pytest.raises(ValueError, match="closed"):
        pages.touch([0])


def test_some_are_touched_again():
    with own_pages(4) as pages:
        for page in range(4):
            pages._memory[(page + 1) * PAGE_BYTES] = 0
        pages.touch([1, 3])
        assert [pages._memory[(page + 1) * PAGE_BYTES] for page in range(4)] == [0, 2, 0, 2]


def test_pages_of_another_size_are_a_reason_with_a_remedy(monkeypatch):
    assert other_pages() is None or mmap.PAGESIZE != PAGE_BYTES
    monkeypatch.setattr(self_test.mmap, "PAGESIZE", 65536)
    assert other_pages() == (
        "it counts in pages of 4 KiB; those of this kernel are of 64 KiB",
        "a kernel with pages of 4 KiB",
    )


def test_what_was_seen_is_said():
    assert misjudged(4, 7) == "the self-test touched 4 pages of its own and saw 7: not to be trusted here"
