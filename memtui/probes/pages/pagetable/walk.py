"""One walk over the page tables of a process: which pages were accessed, and which are present.

``Walker`` owns the loaded BPF programs (``pagetable.bpf.c``) and the memory that it shares with them. Windows are not
its concern: its callers pause, flush and clear.
"""

from __future__ import annotations

import os
from functools import partial
from typing import NoReturn

import numpy as np

from memtui.core import procfs
from memtui.core.block_sample import BlockSample
from memtui.core.page_set import PageSet
from memtui.core.procfs import is_exiting, threads_run_on
from memtui.probes.pages.pagetable.bpf_loader import Skeleton
from memtui.probes.pages.pagetable.direct_map import NotOnThisKernel, find_direct_map
from memtui.probes.pages.pagetable.iterators import EVERY_PROCESS, Iterators
from memtui.probes.pages.pagetable.walk_memory import QUESTIONS, WalkMemory
from memtui.probes.pages.pagetable.walk_result import Extents, Noted, NotedTables, Users, Walk
from memtui.probes.pages.tracker import TrackerError
from memtui.probes.pause.hold_times import page_tables_kb

DEFAULT_SLOTS = 4096  # 8 GiB of 4 KiB pages; 544 KiB of kernel memory
TOP = (1 << 64) - 1
# Page tables that are copied out in one round: of one process, of several (4 MiB). Loading again with more room takes
# as much CPU time as a budget of 1 % has in 20 s.
_FEW_TABLES, MANY_TABLES = 16, 1024
_ANSWER_TABLE = np.uint64(1 << 63)  # of a block that was asked about: its table was put out
_ABOUT_NOTED, _ABOUT_ACCESSED, _ABOUT_LARGE, _ABOUT_BOTH, _ABOUT_PASSED_OVER = range(5)
# The programs. Those that take no lock need a process that stands still.
_WALK, _EXTENTS, _QUERY, _QUERY_LOCKED, _USERS = "walk", "walk_extents", "ask", "ask_locked", "count_users"
_AHEAD = {_WALK: 1, _EXTENTS: 1, _QUERY: 2, _QUERY_LOCKED: 0, _USERS: 2}  # runs that a window needs


class Walker:
    """Walks page tables. ``close`` closes all file descriptors it opened; not for use by two threads at once."""

    def __init__(
        self,
        skeleton: Skeleton | None = None,
        *,
        slots: int = DEFAULT_SLOTS,
        tables: int = _FEW_TABLES,
        restrict: bool = True,
    ) -> None:
        """Load the program and find the kernel's direct map.

        Args:
            skeleton: the program; the shipped one when not given.
            slots: blocks that fit before the first growth.
            tables: page tables of one round that fit before the first growth.
            restrict: have the kernel visit one process only; False: all, as kernels before 6.1 need it.
        """
        self._skeleton = skeleton or Skeleton.read()
        self._restrict = restrict
        self.still = False  # all users of the memory that will be queried stand still
        self._next_table = self._tables_missing = 0  # index of the next table; how many did not fit in this round
        self._in_doubt = 0
        self._memory = WalkMemory(self._skeleton, slots=slots, tables=tables)
        self._iterators = Iterators(self._memory.program, _AHEAD)
        try:
            find_direct_map(self._memory, partial(self._visit, os.getpid()))
        except BaseException:
            self.close()
            raise

    def _reload(self, slots: int, tables: int) -> None:
        """Load again with room for this many blocks and tables; the new state has the same direct map."""
        memory = WalkMemory(self._skeleton, slots=slots, tables=tables)
        memory.copy_state(self._memory)
        self.close()
        self._memory, self._iterators = memory, Iterators(memory.program, _AHEAD)
        self._next_table = 0

    @property
    def slots(self) -> int:
        """Blocks of 2 MiB that fit."""
        return self._memory.slots

    def start_round(self, processes: int) -> None:
        """Prepare walks of so many processes. Nothing should be paused.

        Of one process no tables are copied out, and it is not known who accessed a page that others map, too. For
        several, the tables that were copied out are dropped, and there is room for as many again.
        """
        self._memory.set("one_process", int(processes <= 1))
        if processes <= 1:
            return
        room, wanted = len(self._memory.tables), self._next_table + self._tables_missing
        if room < MANY_TABLES or wanted > room * 3 // 4:
            self._reload(self.slots, max(MANY_TABLES, 2 * wanted))
        self._next_table = self._tables_missing = 0

    def open_ahead(self, pid: int) -> None:
        """Open the iterators of the next walk and the next queries of a process. Nothing should be paused."""
        self._iterators.open_ahead(pid if self._restrict else EVERY_PROCESS)

    def walk(
        self,
        pid: int,
        *,
        want_resident: bool = False,
        want_tables: bool = False,
        leave_anonymous: bool = False,
        low: int = 0,
        high: int = TOP,
        parts: tuple[BlockSample, int, int] | None = None,
    ) -> Walk:
        """Return the accessed pages of a process in ``[low, high)``, rounded out to 2 MiB.

        Args:
            pid: of the process.
            want_resident: also return present pages.
            want_tables: also return page tables.
            leave_anonymous: leave out the mappings in ``Walk.anonymous``, except for blocks shared with other mappings.
            low: start of the range.
            high: end of the range.
            parts: read only the blocks in these two parts of a sample; None: all.

        Raises:
            ProcessLookupError: the process ended.
            TrackerError: the walk visited no mapping, so nothing is known.
        """
        sample, part_read, part_next = parts or (None, 0, 0)
        while True:
            memory = self._memory
            memory.set("parts", sample.parts if sample else 0)
            memory.set("parts_seed", sample.seed if sample else 0)
            memory.set("part_read", part_read)
            memory.set("part_next", part_next)
            memory.set("leave_anonymous", len(memory.anonymous) if leave_anonymous else 0)
            memory.set("low", low)
            memory.set("high", high)
            memory.set("want_resident", int(want_resident))
            memory.set("want_tables", int(want_tables))
            self._visit(pid)
            if not self._grew():
                break
        # Loading again would add a tenth of a second to the pause: the next round has room for the missing tables.
        lost = memory.get("tables_lost")
        self._tables_missing += lost
        first_table, self._next_table = self._next_table, memory.get("tables_used")
        self._in_doubt += memory.get("in_doubt")
        tables = slice(first_table, self._next_table) if want_tables and not lost else None
        return memory.result(want_resident=want_resident, tables=tables)

    def walk_extents(self, pid: int, extents: Extents, *, want_resident: bool = False) -> Walk:
        """Return the accessed pages of a stopped process in these extents, rounded out to 2 MiB; no mappings.

        This reads what ``walk`` left out. It takes no lock that another thread may hold, but nobody may unmap anything
        meanwhile (``users``). Raises as ``walk``.
        """
        count = len(extents[0])
        while True:
            memory = self._memory
            memory.anonymous[:count, 0], memory.anonymous[:count, 1] = extents
            memory.set("parts", 0)
            memory.set("low", 0)
            memory.set("high", TOP)
            memory.set("want_resident", int(want_resident))
            memory.set("want_tables", 0)
            memory.set("asked", count)
            self._visit(pid, _EXTENTS)
            if not self._grew():
                break
        self._in_doubt += memory.get("in_doubt")
        return memory.result(want_resident=want_resident, tables=None)

    def _grew(self) -> bool:
        """Load again with more room if the result did not fit; True: it did not, and the walk has to run again.

        Tables that callers still use stay in the old memory.
        """
        memory = self._memory
        skipped = memory.get("skipped")
        if skipped:
            self._reload((memory.get("used") + skipped) * 5 // 4, len(memory.tables))
        return bool(skipped)

    @property
    def restricted(self) -> bool:
        """Whether a walk visits one process only."""
        return self._restrict

    @property
    def reads_young_flags(self) -> bool:
        """Whether walks read page frames, in which another observer of accessed bits leaves notes."""
        return bool(self._memory.get("second_look"))

    @reads_young_flags.setter
    def reads_young_flags(self, wanted: bool) -> None:
        self._memory.set("second_look", int(wanted))

    @property
    def knows_page_frames(self) -> bool:
        """Whether the page frames behind pages can be read; known after a walk."""
        return bool(self._memory.get("page_frames"))

    def copy_settings(self, other: Walker) -> None:
        """Take over the settings of another walker and what it knows of this machine, and reserve as much room."""
        self.reserve(other.slots)
        for name in ("second_look", "page_frames", "one_process"):
            self._memory.set(name, other._memory.get(name))

    def noted(self, pid: int, pages: PageSet, *, meanwhile: bool = False) -> PageSet:
        """Return the 4 KiB pages whose accessed bit is clear, and was cleared by another observer since the last clear.

        DAMON and page_idle clear accessed bits and leave a note in the page frame (the young flag). The set is empty
        where page frames cannot be read. A note about several pages is counted (``take_doubts``). Raises as ``walk``.

        ``meanwhile``: a walk runs at the same time. Pages whose accessed bit is set are in the set, too: the bit may be
        taken after this looked for a note, and before the walk looks for the bit.
        """
        return self.noted_with_tables(pid, pages, meanwhile=meanwhile, want_tables=False).pages

    def noted_with_tables(self, pid: int, pages: PageSet, *, meanwhile: bool, want_tables: bool) -> Noted:
        """Return the same pages as ``noted``, and where wanted the tables of those that another process maps, too."""
        about = _ABOUT_BOTH if meanwhile else _ABOUT_NOTED
        return self._query_with_tables(
            pid, pages if self.knows_page_frames else PageSet.empty(), about, want_tables=want_tables
        )

    def take_doubts(self) -> int:
        """Return how many 4 KiB pages were perhaps accessed since the last call: an upper bound.

        Another observer's note is about a whole folio. It does not tell which page of a folio that is mapped page by
        page was accessed, nor which process accessed a folio that several map.
        """
        doubts, self._in_doubt = self._in_doubt, 0
        return doubts

    def marked(self, pid: int, pages: PageSet) -> PageSet:
        """Return those of the pages, huge ones included, whose accessed bit is set. Raises as ``walk``."""
        return self._query_all(pid, pages, _ABOUT_ACCESSED)

    def passed_over(self, pid: int, pages: PageSet) -> PageSet:
        """Return those of the pages, huge ones included, whose accessed bit is set, and stays so under MADV_COLD.

        Of a running process others may be marked again by now. Without page frames these are all marked ones. Pages of
        files are not among them: they are cleared in another way. Raises as ``walk``.
        """
        return self._query_all(pid, pages, _ABOUT_PASSED_OVER if self.knows_page_frames else _ABOUT_ACCESSED)

    def _query_all(self, pid: int, pages: PageSet, about: int) -> PageSet:
        """Return those of the pages, huge ones included, for which the BPF program answers yes."""
        small = self._query(pid, pages, about)
        if not len(pages.huge):
            return small
        every = PageSet.from_blocks(pages.huge, np.full((len(pages.huge), 8), TOP, np.uint64))
        return PageSet(small.blocks, small.bits, self._query(pid, every, about).blocks, pages.giant[:0])

    def large(self, pid: int, pages: PageSet) -> PageSet:
        """Return those of the 4 KiB pages that are, or may be, part of a large folio. Raises as ``walk``."""
        return self._query(pid, pages, _ABOUT_LARGE) if self.knows_page_frames else pages

    def users(self, pid: int) -> Users:
        """Return who uses the memory of a process; this process must not read it meanwhile. Raises as ``walk``."""
        memory = self._memory
        memory.set("users_of", 0)
        self._visit(pid, _USERS)
        if memory.get("users") > memory.get("held"):
            # Some users are not traced, or are traced in another process: visit every task of the machine.
            memory.set("users_of", memory.get("mm"))
            self._run((EVERY_PROCESS, _USERS), tgid=0)
        return Users(memory.get("users"), memory.get("held"), memory.get("running"))

    def uses(self, pid: int, memory: int) -> bool:
        """Return whether a process uses the address space of this identity; False where it has ended."""
        self._memory.set("users_of", 0)
        try:
            self._visit(pid, _USERS)
        except (OSError, TrackerError):
            return False
        return self._memory.get("mm") == memory

    def mappings_of(self, pid: int) -> int:
        """Return how many mappings a process has. Raises as ``walk``."""
        self._memory.set("users_of", 0)
        self._visit(pid, _USERS)
        return self._memory.get("mappings")

    def _query(self, pid: int, pages: PageSet, about: int) -> PageSet:
        """Return those of the 4 KiB pages for which the BPF program answers yes."""
        return self._query_with_tables(pid, pages, about).pages

    def _query_with_tables(self, pid: int, pages: PageSet, about: int, *, want_tables: bool = False) -> Noted:
        """Return those of the 4 KiB pages for which the BPF program answers yes, and tables, where wanted."""
        memory, answers, has_table = self._memory, np.empty_like(pages.bits), np.zeros(len(pages.blocks), bool)
        first_table, lost = self._next_table, 0
        memory.set("about", about)
        memory.set("want_tables", int(want_tables))
        for first in range(0, len(pages.blocks), QUESTIONS):
            part = slice(first, first + QUESTIONS)
            count = len(pages.blocks[part])
            memory.questions[:count, 0], memory.questions[:count, 1:] = pages.blocks[part], pages.bits[part]
            memory.set("asked", count)
            self._visit(pid, _QUERY if self.still else _QUERY_LOCKED)
            answers[part] = memory.questions[:count, 1:]
            has_table[part] = memory.questions[:count, 0] & _ANSWER_TABLE
            self._in_doubt += memory.get("in_doubt")
            self._next_table, lost = memory.get("tables_used"), lost + memory.get("tables_lost")
        self._tables_missing += lost
        tables = NotedTables(pages.blocks[has_table], memory.tables[first_table : self._next_table])
        return Noted(PageSet.from_blocks(pages.blocks, answers), tables if want_tables and not lost else None)

    def reserve(self, slots: int) -> None:
        """Reserve room for this many blocks before they are needed."""
        if slots > self.slots:
            self._reload(slots, len(self._memory.tables))

    def forget(self, pid: int) -> None:
        """Release what is kept open for a process."""
        self._iterators.forget(pid)

    def close(self) -> None:
        """Release everything."""
        self._iterators.close()
        self._memory.close()

    def _visit(self, pid: int, program: str = _WALK) -> None:
        """Run a program over the process, in the way in which this kernel reaches its memory."""
        if self._restrict:
            self._run((pid, program), tgid=0)
            if self._memory.get("foreign"):
                self._restrict = False  # a kernel before 6.1 ignores the task that a link names
            elif self._memory.get("vmas"):
                return
            else:
                _raise_without_mappings(pid)
        if not procfs.in_initial_pid_namespace():
            raise NotOnThisKernel("before Linux 6.1, page tables can be read in the initial PID namespace only")
        self._run((EVERY_PROCESS, program), tgid=pid)
        if not self._memory.get("vmas"):
            _raise_without_mappings(pid)

    def _run(self, link: tuple[int, str], *, tgid: int) -> None:
        """Run a program over a process; ``tgid``: the one to read, where the program visits all."""
        memory, (pid, program) = self._memory, link
        memory.set("tgid", tgid)
        memory.clear_outputs()
        memory.set("tables_used", self._next_table)
        self._iterators.run(pid, program, threads=program == _USERS)


def blocks_of(pid: int) -> int:
    """Return an upper bound of the 2 MiB blocks with a page table."""
    return page_tables_kb(pid) // 4


def _raise_without_mappings(pid: int) -> NoReturn:
    if not is_exiting(pid):
        raise TrackerError(f"the walk met no memory mapping of process {pid} (a kernel thread?)")
    if threads_run_on(pid):
        # Its memory still exists, but /proc/PID and a pidfd reach it only through the first thread, also for clearing.
        raise TrackerError(f"the first thread of process {pid} ended before the others: its memory is out of reach")
    raise ProcessLookupError(f"process {pid} ended")
