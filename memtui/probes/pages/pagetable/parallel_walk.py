"""Reads page tables by several threads, or while another thread clears the accessed bits that were read.

A walk waits for memory most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from memtui.core.fast_numpy import distinct
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import BLOCK_SHIFT
from memtui.probes.pages.pagetable.bpf_loader import Skeleton
from memtui.probes.pages.pagetable.walk import TOP, Walker
from memtui.probes.pages.pagetable.walk_result import Extents, Noted, Users, Walk, disjoint
from memtui.probes.pages.thread_pool import Future, ThreadPool

_PART_TABLES = 1024  # 2 GiB: for less, waking an idle CPU takes longer than it saves (measured)
_QUERY_PAGES = 1 << 17  # 512 MiB: for less, a thread of its own saves nothing (measured), and 0.1 s are lost to load


class SplitWalker:
    """One walker for each part, and the threads that run them. Owns the first walker, and closes it at the end."""

    def __init__(self, first: Walker, skeleton: Skeleton | None = None) -> None:
        self.first, self.pool, self._skeleton = first, ThreadPool(), skeleton
        self._walkers = [first]

    def cuts(self, resident: PageSet) -> tuple[int, ...]:
        """Return addresses between parts with about equally many page tables; none where one part is faster."""
        parts = min(self.pool.count, len(resident.blocks) // _PART_TABLES)
        places = [len(resident.blocks) * n // parts for n in range(1, parts)]
        return tuple(int(block) << BLOCK_SHIFT for block in resident.blocks[places])

    def prepare(self, parts: int, *, pages: int) -> None:
        """Create walkers for this many parts, with as much room as the first one. Slow: nothing should be paused.

        Args:
            parts: of the largest process.
            pages: present pages of the largest process.

        Raises OSError and TrackerError as ``Walker``.
        """
        if self.first.reads_young_flags and self.pool.count > 1 and pages >= _QUERY_PAGES:
            parts += 1  # for queries meanwhile
        while len(self._walkers) < parts:
            self._walkers.append(Walker(self._skeleton, slots=self.first.slots))
        for other in self._walkers[1:]:
            other.copy_settings(self.first)

    @contextmanager
    def counted(self, pid: int) -> Iterator[Users]:
        """Yield who uses the memory of a process. Inside the block, queries take no lock if all users are traced.

        Raises as ``Walker.walk``.
        """
        users = self.first.users(pid)
        try:
            for walker in self._walkers:
                walker.still = users.all_traced
            yield users
        finally:
            for walker in self._walkers:
                walker.still = False

    def start_round(self, processes: int) -> None:
        """Prepare the walker of queries that run beside a walk as ``Walker.start_round`` does, after ``prepare``."""
        for walker in self._walkers[1:2]:
            walker.start_round(processes)

    def open_ahead(self, pid: int, cuts: tuple[int, ...]) -> None:
        """Call ``Walker.open_ahead`` of all walkers that a walk with these cuts and its queries use."""
        for walker in self._walkers[: 2 + len(cuts)]:
            walker.open_ahead(pid)

    def walk(
        self, pid: int, cuts: tuple[int, ...], *, want_resident: bool, want_tables: bool, query: PageSet | None = None
    ) -> tuple[Walk, PageSet]:
        """Walk as ``Walker.walk``, over a process that stands still; return also the result of ``Walker.noted``.

        Args:
            pid: of the process.
            cuts: addresses between the parts, as far as walkers were prepared for them.
            want_resident: also return present pages.
            want_tables: also return page tables, with those of noted pages; the process is read in one part then.
            query: pages that another observer may have noted; None: there is no other observer.
        """
        restricted = self.first.restricted
        used = () if want_tables or not restricted else cuts[: len(self._walkers) - 1]
        walk = partial(Walker.walk, pid=pid, want_resident=want_resident, want_tables=want_tables)
        parts = zip(self._walkers, (0, *used), (*used, TOP), strict=False)
        walks = [partial(walk, walker, low=low, high=high) for walker, low, high in parts]
        if query is None:
            return joined(self.pool.together(walks)), PageSet.empty()
        asker = self._walkers[1 + len(used)] if restricted and len(self._walkers) > 1 + len(used) else None
        if asker is None:
            walked = joined(self.pool.together(walks))
            noted = self.first.noted_with_tables(pid, query, meanwhile=False, want_tables=want_tables)
            return _with_tables(walked, noted), noted.pages
        noting = self.pool.submit(partial(asker.noted_with_tables, pid, query, meanwhile=True, want_tables=want_tables))
        try:
            walked = joined(self.pool.together(walks))
        finally:
            noting.wait()
        noted = noting.result()
        return _with_tables(walked, noted), noted.pages.difference(walked.pages)

    def walk_and_clear(
        self,
        pid: int,
        clear: Callable[[], Future[None]],
        *,
        want_resident: bool,
        query: tuple[PageSet, PageSet] | None = None,
    ) -> tuple[Walk, PageSet, Future[None]]:
        """Walk as ``walk``, and have another thread clear the accessed bits of mapped files as soon as they are read.

        Args:
            pid: of the process, of whose memory all users stand still.
            clear: starts clearing. It may hold the lock of all mappings: the rest of the walk does not need the lock.
            want_resident: also return present pages.
            query: as in ``walk``: pages that may lie in mapped files, and the others.

        Returns:
            As ``walk``, and the future of ``clear``, for which the caller waits.
        """
        noted = PageSet.empty()
        noting = None
        if query is not None and len(self._walkers) > 1:
            noting = self.pool.submit(partial(self._walkers[-1].noted, pid, query[0], meanwhile=True))
        try:
            files = self.first.walk(pid, want_resident=want_resident, leave_anonymous=True)
        finally:
            if noting is not None:
                noting.wait()
        if query is not None:
            noted = noting.result() if noting is not None else self.first.noted(pid, query[0])
        clearing = clear()
        try:
            rest = self.first.walk_extents(pid, files.anonymous, want_resident=want_resident)
            if query is not None:
                noted = noted.union(self.first.noted(pid, query[1]))
            walk = _both(files, rest)
            return walk, noted.difference(walk.pages), clearing
        except BaseException:
            clearing.wait()
            raise

    def marked(self, pid: int, pages: PageSet) -> PageSet:
        """Return the same as ``Walker.marked``."""
        parts = min(len(self._walkers), self.pool.count, len(pages.blocks) // _PART_TABLES)
        if parts < 2 or not self.first.restricted:
            return self.first.marked(pid, pages)
        fields = zip(np.array_split(pages.blocks, parts), np.array_split(pages.bits, parts), strict=True)
        sets = [PageSet(blocks, bits, pages.huge[:0], pages.giant[:0]) for blocks, bits in fields]
        sets[0] = replace(sets[0], huge=pages.huge)
        each = zip(self._walkers, sets, strict=False)
        return _union(self.pool.together([partial(walker.marked, pid, part) for walker, part in each]))

    def take_doubts(self) -> int:
        """Return the same as ``Walker.take_doubts``, of all walks."""
        return sum(walker.take_doubts() for walker in self._walkers)

    def forget(self, pid: int) -> None:
        for walker in self._walkers:
            walker.forget(pid)

    def close(self) -> None:
        self.pool.close()
        for walker in self._walkers:
            walker.close()


def _with_tables(walk: Walk, noted: Noted) -> Walk:
    """Return the walk with the tables of noted pages, without any where those had no room."""
    if walk.tables is None:
        return walk
    return replace(walk, tables=None if noted.tables is None else replace(walk.tables, noted=noted.tables))


def joined(walks: list[Walk]) -> Walk:
    """Return the walk over a whole process from walks over its parts, which are in rising order."""
    if len(walks) == 1:
        return walks[0]
    first = walks[0]
    residents = [walk.resident for walk in walks if walk.resident is not None]
    return Walk(
        _union([walk.pages for walk in walks]),
        _union(residents) if residents else None,
        first.address_space,
        vmas=first.vmas,  # every walk meets all mappings
        mappings=first.mappings,
        changed=sum(walk.changed for walk in walks),
        errors=sum(walk.errors for walk in walks),
        anonymous=_either([walk.anonymous for walk in walks]),
        hugetlb=_either([walk.hugetlb for walk in walks]),
    )


def _both(files: Walk, rest: Walk) -> Walk:
    """Return the walk over a whole process from one without anonymous memory and one over anonymous memory."""
    resident = None
    if files.resident is not None and rest.resident is not None:
        resident = files.resident.union(rest.resident)
    return replace(
        files,
        pages=files.pages.union(rest.pages),  # a block with mappings of both kinds is in both walks
        resident=resident,
        changed=files.changed + rest.changed,
        errors=files.errors + rest.errors,
    )


def _union(parts: list[PageSet]) -> PageSet:
    """Return the union of sets whose addresses rise from one set to the next."""
    fields = ("blocks", "bits", "huge", "giant")
    return PageSet(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def _either(extents: list[Extents]) -> Extents:
    """Return the mappings of all walks. A mapping that reaches from one part into the next is in the result once."""
    starts, ends = (np.concatenate([extent[side] for extent in extents]) for side in (0, 1))
    first_starts, last_ends = distinct(starts), distinct(ends)
    if len(first_starts) == len(last_ends) and (first_starts < last_ends).all():
        return disjoint(first_starts, last_ends)
    order = np.argsort(starts, kind="stable")  # a running user of the memory has changed its mappings meanwhile
    return disjoint(starts[order], ends[order])
