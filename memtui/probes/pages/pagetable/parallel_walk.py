"""Reads page tables in parts, at once with one another or with the clearing of what was read.

A walk waits for memory most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from memtui.core.page_set import BLOCK_SHIFT, PageSet
from memtui.probes.pages.pagetable.bpf_loader import Skeleton
from memtui.probes.pages.pagetable.walk import TOP, Walker
from memtui.probes.pages.pagetable.walk_result import Extents, Users, Walk, disjoint
from memtui.probes.pages.thread_pool import Future, ThreadPool

_PART_TABLES = 1024  # 2 GiB: waking an idle CPU takes longer than it saves for less (measured)


class SplitWalker:
    """A walker for each part, and the hands that move them. Takes the first walker over, and closes it at the end."""

    def __init__(self, first: Walker, skeleton: Skeleton | None = None) -> None:
        self.first, self.pool, self._skeleton = first, ThreadPool(), skeleton
        self._walkers = [first]

    def cuts(self, resident: PageSet) -> tuple[int, ...]:
        """Addresses between parts with about as many page tables each; none where it is not worth the trouble."""
        parts = min(self.pool.count, len(resident.blocks) // _PART_TABLES)
        places = [len(resident.blocks) * n // parts for n in range(1, parts)]
        return tuple(int(block) << BLOCK_SHIFT for block in resident.blocks[places])

    def prepare(self, parts: int) -> None:
        """Have walkers for so many parts, with as much room as the first one. Takes a while: nothing should be paused.

        Raises OSError and TrackerError as every walker.
        """
        if self.first.second_look and self.pool.count > 1:
            parts += 1  # to ask meanwhile
        while len(self._walkers) < parts:
            self._walkers.append(Walker(self._skeleton, slots=self.first.slots))
        for other in self._walkers[1:]:
            other.learn(self.first)

    @contextmanager
    def counted(self, pid: int) -> Iterator[Users]:
        """Yield who uses the memory of a process. Over the block, questions take no lock if all of them are held.

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

    def open_ahead(self, pid: int, cuts: tuple[int, ...]) -> None:
        """Open ahead as ``Walker.open_ahead``, for a walk with these cuts and questions meanwhile."""
        for walker in self._walkers[: 2 + len(cuts)]:
            walker.open_ahead(pid)

    def walk(
        self, pid: int, cuts: tuple[int, ...], *, want_resident: bool, want_tables: bool, query: PageSet | None = None
    ) -> tuple[Walk, PageSet]:
        """Walk as ``Walker.walk``, over a process that stands still; return also what ``Walker.noted`` says.

        Args:
            pid: of the process.
            cuts: where parts begin, as far as walkers were prepared for them.
            want_resident: pages that are there, too.
            want_tables: page tables, too; the process is read in one part then.
            query: pages which another observer may have noted; None: there is none.
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
            return joined(self.pool.together(walks)), self.first.noted(pid, query)
        noted = self.pool.submit(partial(asker.noted, pid, query))
        try:
            walked = joined(self.pool.together(walks))
        finally:
            noted.wait()
        return walked, noted.result()

    def walk_and_clear(
        self,
        pid: int,
        clear: Callable[[], Future[None]],
        *,
        want_resident: bool,
        query: tuple[PageSet, PageSet] | None = None,
    ) -> tuple[Walk, PageSet, Future[None]]:
        """Walk as ``walk``, where another thread can clear accessed bits in mapped files as soon as those were read.

        Args:
            pid: of the process, which stands still in all users of its memory.
            clear: begins that. It may hold the lock of all mappings: what is left to be read does not need it.
            want_resident: pages that are there, too.
            query: as ``walk``; those that may lie in mapped files, and others.

        Returns:
            as ``walk``, and what ``clear`` began, to be waited for.
        """
        noted = PageSet.empty()
        noting = None
        if query is not None and len(self._walkers) > 1:
            noting = self.pool.submit(partial(self._walkers[-1].noted, pid, query[0]))
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
            return _both(files, rest), noted, clearing
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


def joined(walks: list[Walk]) -> Walk:
    """Return the walk over all of a process, from walks over parts of it, rising."""
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
    """Return the walk over all of a process, from one that left out anonymous memory and one over that."""
    resident = None
    if files.resident is not None and rest.resident is not None:
        resident = files.resident.union(rest.resident)
    return replace(
        files,
        pages=files.pages.union(rest.pages),  # a block with mappings of both kinds is in both
        resident=resident,
        changed=files.changed + rest.changed,
        errors=files.errors + rest.errors,
    )


def _union(parts: list[PageSet]) -> PageSet:
    """Return the union of sets that lie one above the other."""
    fields = ("blocks", "bits", "huge", "giant")
    return PageSet(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def _either(extents: list[Extents]) -> Extents:
    """Return the mappings of both walks, with one that reaches from one part into the next once."""
    starts, ends = (np.concatenate([extent[side] for extent in extents]) for side in (0, 1))
    first_starts, last_ends = np.unique(starts), np.unique(ends)
    if len(first_starts) == len(last_ends) and (first_starts < last_ends).all():
        return disjoint(first_starts, last_ends)
    order = np.argsort(starts, kind="stable")  # somebody who runs has changed them meanwhile
    return disjoint(starts[order], ends[order])
