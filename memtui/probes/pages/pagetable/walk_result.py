"""What a walk over the page tables of a process returns: accessed and resident pages, mappings, and page tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import is_in
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_SHIFT
from memtui.probes.pages.shared_frames import TouchedFrames
from memtui.probes.pages.tracker import describe_users

TABLE_ENTRIES = 512  # entries of a page table
Extents = tuple[NDArray[np.uint64], NDArray[np.uint64]]  # start and end addresses, rising
_PRESENT = np.uint64(1)  # of an entry of a page table


class NotedTables(NamedTuple):
    """Page tables with a page that another observer noted as accessed, and that another process maps, too.

    Attributes:
        blocks: u8[n], rising; ``address >> 21`` of each table.
        entries: u8[n, 512], in the memory that the next round writes to.
    """

    blocks: NDArray[np.uint64]
    entries: NDArray[np.uint64]


class Noted(NamedTuple):
    """Pages that another observer noted as accessed; ``tables`` where they were wanted and there was room."""

    pages: PageSet
    tables: NotedTables | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Page tables with an accessed page that another process may map, too. The next round overwrites them.

    An entry holds the number of a page frame, inverted where memory was made inaccessible for a while (PROT_NONE).

    Attributes:
        blocks: u8[n], rising; ``address >> 21`` of each table.
        entries: u8[n, 512], in the memory that the next round writes to.
        huge: u8[m], rising; ``address >> 21`` of each accessed 2 MiB page.
        huge_entries: u8[m].
        physical_mask: the bits of an entry that hold a physical address.
        noted: tables with a page that another observer noted as accessed; those in ``blocks`` may be among them.
    """

    blocks: NDArray[np.uint64]
    entries: NDArray[np.uint64]
    huge: NDArray[np.uint64]
    huge_entries: NDArray[np.uint64]
    physical_mask: int
    noted: NotedTables | None = None

    def frames_behind(self, pages: PageSet) -> TouchedFrames:
        """Return the page frames of those of the pages, which were accessed, that these tables map."""
        numbers, entries = _pages_in(self.blocks, self.entries, pages)
        if self.noted is not None and len(self.noted.blocks):
            new = is_in(self.noted.blocks, pages.blocks) & ~is_in(self.noted.blocks, self.blocks)
            more = _pages_in(self.noted.blocks[new], self.noted.entries[new], pages)
            numbers, entries = np.concatenate((numbers, more[0])), np.concatenate((entries, more[1]))
        heads = self._frames_of(self.huge_entries) & ~np.uint64(511)  # a leaf uses the lowest bits for itself
        return TouchedFrames(numbers, self._frames_of(entries), self.huge, heads)

    def _frames_of(self, entries: NDArray[np.uint64]) -> NDArray[np.uint64]:
        absent = (entries & _PRESENT) - np.uint64(1)  # all bits where it is not present
        return ((entries ^ absent) & np.uint64(self.physical_mask)) >> np.uint64(PAGE_SHIFT)


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """The result of one walk.

    Attributes:
        pages: accessed pages.
        resident: pages present in the page tables, where wanted.
        address_space: identity that changes with every exec.
        vmas: mappings visited.
        mappings: u8[n, 4], rising; start, end, flags and name of all mappings (``maps_text``); None: too many, or
            they changed meanwhile.
        changed: blocks that were left out because their page table was replaced while it was read.
        anonymous: start and end addresses of the mappings of private anonymous memory, rising: u8[n] each.
        hugetlb: start and end addresses of mappings of hugetlb pages: nobody can clear their accessed bits, so their
            pages are never in ``pages``.
        errors: page tables that could not be read; above 0, ``pages`` is incomplete.
        tables: page tables with the page frames behind ``pages``, where wanted and where there was room.
        in_doubt: 4 KiB pages that were perhaps accessed, but are not in ``pages`` (``Walker.take_doubts``).
    """

    pages: PageSet
    resident: PageSet | None
    address_space: tuple[int, int]
    vmas: int
    mappings: NDArray[np.uint64] | None
    changed: int
    errors: int
    anonymous: Extents
    hugetlb: Extents
    tables: Tables | None = None
    in_doubt: int = 0


@dataclass(frozen=True, slots=True)
class Users:
    """Who uses the memory of a process.

    Attributes:
        users: tasks, and whoever reads the memory just now (a reader of ``/proc/PID``, ``process_madvise``).
        traced: tasks that this process traces.
        running: tasks that this process does not trace, including those of other processes (CLONE_VM, a child of vfork
            before its exec). Tasks outside of this PID namespace are not seen, but ``users`` counts them.
    """

    users: int
    traced: int
    running: int

    @property
    def all_traced(self) -> bool:
        """Whether this process traces all users, so that nobody can unmap anything while they stand still."""
        return self.users == self.traced

    @property
    def some_run(self) -> bool:
        """Whether tasks that this process does not trace use the memory, also where it holds the process."""
        return not self.all_traced and self.running > 0

    def describe_running(self) -> str:
        """Return a sentence about tasks that use a paused process's memory and were not paused; empty without any."""
        if not self.some_run:
            return ""
        return describe_users(f"{self.running} task(s)")


def _pages_in(
    blocks: NDArray[np.uint64], entries: NDArray[np.uint64], pages: PageSet
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return ``address >> 12`` of the pages in blocks, which are all among those of ``pages``; and their entries."""
    bits = pages.bits[np.searchsorted(pages.blocks, blocks)]
    there = PageSet(blocks, bits, pages.huge, pages.giant).bit_matrix().view(bool)
    numbers = (blocks[:, None] << np.uint64(9) | np.arange(TABLE_ENTRIES, dtype=np.uint64))[there]
    return numbers, entries[there]


def disjoint(starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> Extents:
    """Return extents cut so that none starts before the end of an earlier one, and empty ones left out.

    Between two mappings the kernel releases the lock when others wait for it. Where these change mappings, the next
    one may start anywhere.
    """
    if (starts[1:] >= ends[:-1]).all():
        return starts, ends
    before = np.concatenate((np.zeros(1, np.uint64), np.maximum.accumulate(ends)[:-1]))
    starts = np.maximum(starts, before)
    there = starts < ends
    return starts[there], ends[there]
