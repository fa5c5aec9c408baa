"""One walk over the page tables of a process: which pages were accessed, and which are there.

``Walker`` owns the loaded BPF program (``pagetable.bpf.c``) and the memory it shares with it. It knows nothing of
windows: clearing, flushing and pausing belong to its callers.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from memtui.core import procfs
from memtui.core.block_sample import BlockSample
from memtui.core.page_set import PAGE_SHIFT, PageSet
from memtui.core.procfs import has_ended
from memtui.probes.pages.pagetable.bpf_loader import ARM64, BpfError, Program, Skeleton, open_iterator, run_iterator
from memtui.probes.pages.shared_frames import TouchedFrames
from memtui.probes.pages.tracker import TrackerError
from memtui.probes.pause.hold_times import page_tables_kb
from memtui.probes.proc_maps import MOST_MAPPINGS

DEFAULT_SLOTS = 4096  # 8 GiB of 4 KiB pages; 544 KiB of kernel memory
TOP = (1 << 64) - 1
_STATE = (
    *("tgid", "low", "high", "want_resident", "physical_mask", "search_steps", "direct_map"),
    *("second_look", "page_frames", "asked", "about", "known_address", "known_word", "known_physical"),
    *("want_tables", "tables_used", "leave_anonymous", "parts", "parts_seed", "part_read", "part_next", "users_of"),
    *("used", "skipped", "tables_lost", "errors", "vmas", "foreign", "hugetlb", "changed"),
    *("anonymous", "mm", "exec_id", "next", "mappings", "users", "held", "running", "in_doubt"),
)
_FIELD = {name: index for index, name in enumerate(_STATE)}
_OUTPUTS = slice(_FIELD["used"], len(_STATE))
_SLOT_WORDS, _RESIDENT_WORDS, _QUESTION_WORDS, _MAPPING_WORDS = 9, 8, 9, 4
_TABLE_WORDS = 512
_FEW_TABLES, _TABLES = 16, 1024  # page tables that are put out at once: of one process, of several (4 MiB)
_QUESTIONS = 2048  # blocks that are asked about at once
_MAPPINGS = MOST_MAPPINGS
_HUGETLB = 4096  # mappings of that kind that are told apart
_ABOUT_NOTED, _ABOUT_ACCESSED, _ABOUT_LARGE = range(3)
# The programs. Those of them that take no lock need a process that stands still.
_WALK, _EXTENTS, _ASK, _ASK_LOCKED, _USERS = "walk", "walk_extents", "ask", "ask_locked", "count_users"
_RUNS_AHEAD = {_WALK: 1, _EXTENTS: 1, _ASK: 2, _ASK_LOCKED: 0, _USERS: 2}  # that a window needs
Extents = tuple[NDArray[np.uint64], NDArray[np.uint64]]  # start and end addresses, rising
_KIND_BLOCK, _KIND_HUGE, _KIND_GIANT = 0, 1, 2
_KNOWN = np.frombuffer(os.urandom(8), np.uint64).copy()  # a word that is nowhere else
_KEY_KIND, _KEY_TABLE, _KEY_SHIFT = np.uint64(3), np.uint64(4), np.uint64(3)
_PRESENT = np.uint64(1)  # of an entry of a page table
_MAX_SEARCH_STEPS = 1 << 16  # 64 TiB of physical address space in steps of 1 GiB


class NotOnThisKernel(TrackerError):
    """The page tables cannot be read here at all."""


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Page tables with an accessed page that another process may map, too; to be read before the next round.

    An entry holds the number of a page frame, inverted where memory was made inaccessible for a while (PROT_NONE).

    Attributes:
        blocks: u8[n], rising; ``address >> 21`` of each table.
        entries: u8[n, 512], in the memory that the next round writes to.
        huge: u8[m], rising; ``address >> 21`` of each accessed 2 MiB page.
        huge_entries: u8[m].
        physical_mask: the bits of an entry that hold a physical address.
    """

    blocks: NDArray[np.uint64]
    entries: NDArray[np.uint64]
    huge: NDArray[np.uint64]
    huge_entries: NDArray[np.uint64]
    physical_mask: int

    def frames_behind(self, pages: PageSet) -> TouchedFrames:
        """Return the page frames of those of the walk's pages that lie in these tables."""
        bits = pages.bits[np.searchsorted(pages.blocks, self.blocks)]
        there = PageSet(self.blocks, bits, pages.huge, pages.giant).bit_matrix().view(bool)
        numbers = (self.blocks[:, None] << np.uint64(9) | np.arange(_TABLE_WORDS, dtype=np.uint64))[there]
        heads = self._frames_of(self.huge_entries) & ~np.uint64(511)  # a leaf uses the lowest bits for itself
        return TouchedFrames(numbers, self._frames_of(self.entries[there]), self.huge, heads)

    def _frames_of(self, entries: NDArray[np.uint64]) -> NDArray[np.uint64]:
        absent = (entries & _PRESENT) - np.uint64(1)  # all bits where it is not present
        return ((entries ^ absent) & np.uint64(self.physical_mask)) >> np.uint64(PAGE_SHIFT)


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """What one walk met.

    Attributes:
        pages: accessed pages.
        resident: pages present in the page tables, when asked for.
        address_space: identity that changes with every exec.
        vmas: mappings visited.
        mappings: u8[n, 4], rising; start, end, flags and name of all mappings (``maps_text``); None: too many, or
            they changed meanwhile.
        changed: blocks left out because their page table was exchanged while it was read.
        anonymous: start and end addresses of the mappings of private anonymous memory, rising: u8[n] each.
        hugetlb: those of mappings whose accessed bits nobody can clear; their pages are never in ``pages``.
        errors: page tables that could not be read; above 0, ``pages`` is incomplete.
        tables: those that tell the page frames behind ``pages``, when asked for and when there was room.
        in_doubt: 4 KiB pages that were perhaps touched, but are not in ``pages`` (``Walker.take_doubts``).
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
        users: tasks, and whoever looks into it just now (a reader of ``/proc/PID``, ``process_madvise``).
        held: tasks that this process traces.
        running: tasks that it does not trace, of other processes, too (CLONE_VM, a child of vfork before its exec).
            Those outside of this PID namespace are not seen; ``users`` counts them all the same.
    """

    users: int
    held: int
    running: int

    @property
    def all_held(self) -> bool:
        """Whether nobody can unmap anything, if those that are traced stand still."""
        return self.users == self.held


class Walker:
    """Walks page tables. All file descriptors it opens are closed by ``close``; not for use by two threads at once."""

    def __init__(self, skeleton: Skeleton | None = None, *, slots: int = DEFAULT_SLOTS, restrict: bool = True) -> None:
        """Load the program and find the kernel's direct map.

        Args:
            skeleton: the program; the shipped one when not given.
            slots: blocks that fit before the first growth.
            restrict: let the kernel visit the one process only; False is the way of kernels before 6.1.
        """
        self._skeleton = skeleton or Skeleton.read()
        self._restrict = restrict
        self.still = False  # the processes that will be asked about stand still, in all users of their memory
        self._links: dict[tuple[int, str], int] = {}  # by process and program; process 0: a link that visits every one
        self._ahead: dict[tuple[int, str], list[int]] = {}  # iterators that were opened before they are needed
        self._spent: list[int] = []  # those of them that ran
        self._program: Program | None = None
        self._next_table = self._tables_missing = 0  # where the next one goes; those that did not fit in this round
        self._in_doubt = 0
        self._state: NDArray[np.uint64]
        self._entries: NDArray[np.uint64]
        self._resident: NDArray[np.uint64]
        self._questions: NDArray[np.uint64]
        self._mappings: NDArray[np.uint64]
        self._anonymous: NDArray[np.uint64]
        self._hugetlb: NDArray[np.uint64]
        self._tables: NDArray[np.uint64]
        self._load(slots, _FEW_TABLES)
        try:
            self._find_direct_map()
        except BaseException:
            self.close()
            raise

    def _load(self, slots: int, tables: int) -> None:
        """(Re)load with room for this many blocks and tables; what the state says of the direct map is kept."""
        sizes = {"slots": slots, "resident": slots, "questions": _QUESTIONS, "tables": tables}
        sizes |= {"mappings": _MAPPINGS, "anonymous": _MAPPINGS, "hugetlb": _HUGETLB}
        program = Program(self._skeleton, sizes)
        try:
            state = np.frombuffer(program.view("state", len(_STATE) * 8), np.uint64)[: len(_STATE)]
            entries = np.frombuffer(program.view("slots", slots * _SLOT_WORDS * 8), np.uint64)
            resident = np.frombuffer(program.view("resident", slots * _RESIDENT_WORDS * 8), np.uint64)
            questions = np.frombuffer(program.view("questions", _QUESTIONS * _QUESTION_WORDS * 8), np.uint64)
            mappings = np.frombuffer(program.view("mappings", _MAPPINGS * _MAPPING_WORDS * 8), np.uint64)
            anonymous = np.frombuffer(program.view("anonymous", _MAPPINGS * 16), np.uint64)
            hugetlb = np.frombuffer(program.view("hugetlb", _HUGETLB * 16), np.uint64)
            put_out = np.frombuffer(program.view("tables", tables * _TABLE_WORDS * 8), np.uint64)
        except BaseException:
            program.close()
            raise
        if self._program:
            state[:] = self._state
            self.close()
        self._program, self._state, self.slots = program, state, slots
        self._entries = entries[: slots * _SLOT_WORDS].reshape(-1, _SLOT_WORDS)
        self._resident = resident[: slots * _RESIDENT_WORDS].reshape(-1, _RESIDENT_WORDS)
        self._questions = questions[: _QUESTIONS * _QUESTION_WORDS].reshape(-1, _QUESTION_WORDS)
        self._mappings = mappings[: _MAPPINGS * _MAPPING_WORDS].reshape(-1, _MAPPING_WORDS)
        self._anonymous = anonymous[: _MAPPINGS * 2].reshape(-1, 2)
        self._hugetlb = hugetlb[: _HUGETLB * 2].reshape(-1, 2)
        self._tables, self._next_table = put_out.reshape(-1, _TABLE_WORDS), 0

    def _find_direct_map(self) -> None:
        """By walking over no address of this process. The kernel has one direct map, so once is enough."""
        self._set("search_steps", _search_steps())
        for mask in 2 * physical_masks():  # the kernel may move the word's page in just that moment
            self._set("known_word", int(_KNOWN[0]))
            self._set("known_address", _KNOWN.ctypes.data)
            if ARM64:
                self._set("known_physical", _known_physical())
            self._set("physical_mask", mask)
            self._set("direct_map", 0)
            self._set_part(0, 0)
            self._visit(os.getpid())
            if self._get("direct_map"):
                return
        raise NotOnThisKernel(
            "the kernel's direct map of memory was not found (a Xen PV guest, or page tables of another form)"
        )

    def _get(self, name: str) -> int:
        return int(self._state[_FIELD[name]])

    def _set(self, name: str, value: int) -> None:
        self._state[_FIELD[name]] = value

    def begin_round(self) -> None:
        """Let go of the tables that were put out, and make room for as many again. Nothing should be paused."""
        room, wanted = len(self._tables), self._next_table + self._tables_missing
        if room < _TABLES or wanted > room // 2:
            self._load(self.slots, max(_TABLES, 2 * wanted))
        self._next_table = self._tables_missing = 0

    def open_ahead(self, pid: int) -> None:
        """Open what the next walk and the next questions of a process run on. Nothing should be paused.

        Opening and closing take about a tenth of a millisecond together, more than a small process is walked in.
        """
        self._close_spent()
        for program, wanted in _RUNS_AHEAD.items():
            key = pid if self._restrict else 0, program
            if key in self._links:
                opened = self._ahead.setdefault(key, [])
                with suppress(BpfError):  # who needs it opens it, and says what is wrong
                    while len(opened) < wanted:
                        opened.append(open_iterator(self._links[key]))

    def _close_spent(self) -> None:
        for fd in self._spent:
            os.close(fd)
        self._spent.clear()

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
            want_resident: pages that are there, too.
            want_tables: page tables, too.
            leave_anonymous: without the mappings in ``Walk.anonymous``, but for blocks of 2 MiB that others share.
            low: where it begins.
            high: where it ends.
            parts: of the blocks only those in these two parts of a sample; None: all.

        Raises:
            ProcessLookupError: the process ended.
            TrackerError: no mapping was met, so nothing is known.
        """
        sample, part_read, part_next = parts or (None, 0, 0)
        self._set("parts", sample.parts if sample else 0)
        self._set("parts_seed", sample.seed if sample else 0)
        self._set("part_read", part_read)
        self._set("part_next", part_next)
        self._set("leave_anonymous", _MAPPINGS if leave_anonymous else 0)
        while True:
            self._set_part(low, high)
            self._set("want_resident", int(want_resident))
            self._set("want_tables", int(want_tables))
            self._visit(pid)
            if not self._grew():
                break
        # Tables are not worth the tenth of a second that loading adds to a pause: there is room in the next round.
        lost = self._get("tables_lost")
        self._tables_missing += lost
        first_table, self._next_table = self._next_table, self._get("tables_used")
        self._in_doubt += self._get("in_doubt")
        return self._result(want_resident, first_table if want_tables and not lost else None)

    def walk_extents(self, pid: int, extents: Extents, *, want_resident: bool = False) -> Walk:
        """Return the accessed pages of a stopped process, in the 2 MiB around these; says nothing of its mappings.

        For what a walk has left out. It needs no lock that somebody may hold, but nobody may unmap anything meanwhile
        (``users``). Raises as ``walk``.
        """
        count = len(extents[0])
        while True:
            self._anonymous[:count, 0], self._anonymous[:count, 1] = extents
            self._set("parts", 0)
            self._set_part(0, TOP)
            self._set("want_resident", int(want_resident))
            self._set("want_tables", 0)
            self._set("asked", count)
            self._visit(pid, _EXTENTS)
            if not self._grew():
                break
        self._in_doubt += self._get("in_doubt")
        return self._result(want_resident, None)

    def _grew(self) -> bool:
        """Have more room if what was met did not fit. Nothing was lost but time then.

        Tables that others hold stay in the old memory.
        """
        skipped = self._get("skipped")
        if skipped:
            self._load((self._get("used") + skipped) * 5 // 4, len(self._tables))
        return bool(skipped)

    @property
    def restricted(self) -> bool:
        """Whether a walk visits the one process only."""
        return self._restrict

    @property
    def second_look(self) -> bool:
        """Whether pages are asked for what another observer of accessed bits noted about them."""
        return bool(self._get("second_look"))

    @second_look.setter
    def second_look(self, wanted: bool) -> None:
        self._set("second_look", int(wanted))

    @property
    def knows_page_frames(self) -> bool:
        """Whether pages can be asked for what their page frames say; known after a walk."""
        return bool(self._get("page_frames"))

    def learn(self, other: Walker) -> None:
        """Take over what another one was told or found out about this machine, and have as much room."""
        self.reserve(other.slots)
        for name in ("second_look", "page_frames"):
            self._set(name, other._get(name))

    def noted(self, pid: int, pages: PageSet) -> PageSet:
        """Those of the 4 KiB pages whose accessed bit another observer has cleared since the last clear, and is clear.

        DAMON and page_idle clear accessed bits and leave a note in the page frame instead. None where page frames
        cannot be asked. A note of several pages is counted (``take_doubts``). Raises as ``walk``.
        """
        return self._ask(pid, pages, _ABOUT_NOTED) if self.knows_page_frames else PageSet.empty()

    def take_doubts(self) -> int:
        """Return how many 4 KiB pages were perhaps touched, since this was asked last: an upper bound.

        Another observer's note is about a whole folio. It says nothing of one page of those that are mapped singly, and
        nothing of this process where others map the folio, too.
        """
        doubts, self._in_doubt = self._in_doubt, 0
        return doubts

    def marked(self, pid: int, pages: PageSet) -> PageSet:
        """Those of the pages, huge ones included, whose accessed bit is set. Raises as ``walk``."""
        small = self._ask(pid, pages, _ABOUT_ACCESSED)
        if not len(pages.huge):
            return small
        every = PageSet.from_blocks(pages.huge, np.full((len(pages.huge), 8), TOP, np.uint64))
        return PageSet(small.blocks, small.bits, self._ask(pid, every, _ABOUT_ACCESSED).blocks, pages.giant[:0])

    def large(self, pid: int, pages: PageSet) -> PageSet:
        """Those of the 4 KiB pages that are part of a larger folio, or perhaps are. Raises as ``walk``."""
        return self._ask(pid, pages, _ABOUT_LARGE) if self.knows_page_frames else pages

    def users(self, pid: int) -> Users:
        """Who uses the memory of a process. This process should not look into it just now. Raises as ``walk``."""
        self._set("users_of", 0)
        self._visit(pid, _USERS)
        if self._get("users") > self._get("held"):
            # Somebody does that is not held, or is it another process that is? Every task of the machine is looked at.
            self._set("users_of", self._get("mm"))
            self._run((0, _USERS), tgid=0)
        return Users(self._get("users"), self._get("held"), self._get("running"))

    def mappings_of(self, pid: int) -> int:
        """Return how many mappings a process has. Raises as ``walk``."""
        self._set("users_of", 0)
        self._visit(pid, _USERS)
        return self._get("mappings")

    def _ask(self, pid: int, pages: PageSet, about: int) -> PageSet:
        """Those of the 4 KiB pages for which the answer is yes."""
        if not len(pages.blocks):
            return PageSet.empty()
        found = np.empty_like(pages.bits)
        self._set("about", about)
        for first in range(0, len(pages.blocks), _QUESTIONS):
            part = slice(first, first + _QUESTIONS)
            count = len(pages.blocks[part])
            self._questions[:count, 0], self._questions[:count, 1:] = pages.blocks[part], pages.bits[part]
            self._set("asked", count)
            self._visit(pid, _ASK if self.still else _ASK_LOCKED)
            found[part] = self._questions[:count, 1:]
            self._in_doubt += self._get("in_doubt")
        return PageSet.from_blocks(pages.blocks, found)

    def reserve(self, slots: int) -> None:
        """Have room for this many blocks before they are needed."""
        if slots > self.slots:
            self._load(slots, len(self._tables))

    def forget(self, pid: int) -> None:
        for program in _RUNS_AHEAD:
            for fd in self._ahead.pop((pid, program), ()):
                os.close(fd)
            if (link := self._links.pop((pid, program), None)) is not None:
                os.close(link)

    def close(self) -> None:
        self._close_spent()
        for pid in {pid for pid, _ in self._links}:
            self.forget(pid)
        if self._program:
            self._program.close()
            self._program = None
        # A map's memory keeps a descriptor of its own until the last array over it is gone.
        self._state = self._entries = self._resident = self._questions = np.empty(0, np.uint64)
        self._mappings = self._anonymous = self._hugetlb = self._tables = self._state

    def _set_part(self, low: int, high: int) -> None:
        self._set("low", low)
        self._set("high", high)

    def _visit(self, pid: int, program: str = _WALK) -> None:
        """Run a program over the process, by the way that meets its memory."""
        if self._restrict:
            self._run((pid, program), tgid=0)
            if self._get("foreign"):
                self._restrict = False  # a kernel before 6.1 ignores the task that a link names
            elif self._get("vmas"):
                return
            else:
                _raise_without_mappings(pid)
        if not procfs.in_initial_pid_namespace():
            raise NotOnThisKernel("before Linux 6.1, page tables can be read in the initial PID namespace only")
        self._run((0, program), tgid=pid)
        if not self._get("vmas"):
            _raise_without_mappings(pid)

    def _run(self, link: tuple[int, str], *, tgid: int) -> None:
        assert self._program
        self._set("tgid", tgid)
        self._state[_OUTPUTS] = 0
        self._set("tables_used", self._next_table)
        if link not in self._links:
            pid, program = link
            self._links[link] = self._program.attach(program, pid, threads=program == _USERS)
        if opened := self._ahead.get(link):
            fd = opened.pop()
            self._spent.append(fd)
            run_iterator(fd)
            return
        fd = open_iterator(self._links[link])
        try:
            run_iterator(fd)
        finally:
            os.close(fd)

    def _result(self, want_resident: bool, first_table: int | None) -> Walk:
        used = self._get("used")
        keys, accessed, present = self._entries[:used, 0], self._entries[:used, 1:], self._resident[:used]
        numbers, no_pages = keys >> _KEY_SHIFT, np.empty(0, np.uint64)
        is_touched = np.empty(0, np.intp)
        if not want_resident and not np.bitwise_or.reduce(keys) & _KEY_KIND:
            # The common case, within a pause: the walk went upwards, and left out blocks without an accessed page.
            pages, resident = PageSet(numbers, accessed.copy(), no_pages, no_pages), None
        else:
            kinds = keys & _KEY_KIND
            is_huge, is_block = kinds == _KIND_HUGE, kinds == _KIND_BLOCK
            huge, giant = numbers[is_huge], numbers[kinds == _KIND_GIANT] >> np.uint64(9)
            is_touched = np.flatnonzero(is_huge & (accessed[:, 0] != 0))
            pages = PageSet.from_blocks(numbers[is_block], accessed[is_block], numbers[is_touched])
            resident = None
            if want_resident:
                resident = PageSet.from_blocks(numbers[is_block], present[is_block], huge, giant)
        tables = None
        if first_table is not None:
            tables = Tables(
                numbers[(keys & _KEY_TABLE) != 0],
                self._tables[first_table : self._next_table],
                numbers[is_touched],
                accessed[is_touched, 1],
                self._get("physical_mask"),
            )
        identity = self._get("mm"), self._get("exec_id")
        anonymous = self._anonymous[: self._get("anonymous")].copy()
        hugetlb = self._hugetlb[: self._get("hugetlb")].copy()
        vmas, told = self._get("vmas"), self._get("mappings")
        mappings = self._mappings[:told].copy()
        all_told = told == vmas and (mappings[1:, 0] >= mappings[:-1, 1]).all()
        return Walk(
            pages,
            resident,
            identity,
            vmas=vmas,
            mappings=mappings if all_told else None,
            changed=self._get("changed"),
            errors=self._get("errors"),
            anonymous=disjoint(anonymous[:, 0], anonymous[:, 1]),
            hugetlb=disjoint(hugetlb[:, 0], hugetlb[:, 1]),
            tables=tables,
        )


def disjoint(starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> Extents:
    """Return extents, told by rising addresses, so that each begins where the one before has ended.

    The kernel lets go of the lock between two mappings when others wait for it. If they run, and change mappings, the
    next one may begin anywhere.
    """
    if (starts[1:] >= ends[:-1]).all():
        return starts, ends
    before = np.concatenate((np.zeros(1, np.uint64), np.maximum.accumulate(ends)[:-1]))
    starts = np.maximum(starts, before)
    there = starts < ends
    return starts[there], ends[there]


def physical_masks() -> list[int]:
    """Which bits of a page-table entry may hold a physical address, the likeliest first.

    Linux takes the memory-encryption bit out of the address size it reports; the other masks are for a kernel that
    does not.
    """
    if ARM64:  # above lie attributes of the entry, or bits of addresses beyond a PiB
        return [(1 << 50) - 1 & ~0xFFF]
    found = re.search(r"address sizes\s*:\s*(\d+) bits physical", Path("/proc/cpuinfo").read_text())
    mask = (1 << int(found[1] if found else 52)) - 1 & ~0xFFF & (1 << 52) - 1
    return list(dict.fromkeys((mask, mask & ~(1 << 47), mask & ~(1 << 51))))


def _known_physical() -> int:
    """Return the physical address of a word of this process.

    Raises OSError, and TrackerError where page frame numbers are hidden.
    """
    address = _KNOWN.ctypes.data
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        entry = int.from_bytes(os.pread(pagemap.fileno(), 8, (address >> 12) * 8), "little")
    frame = entry & (1 << 55) - 1
    if not entry >> 63 or not frame:
        raise NotOnThisKernel("page frame numbers are hidden from this process (CAP_SYS_ADMIN)")
    return frame << 12 | address & 0xFFF


def _search_steps() -> int:
    """GiB below the page-global directory where the direct map may begin: as many as there is physical memory."""
    try:
        ends = re.findall(r"^[0-9a-f]+-([0-9a-f]+) : System RAM", Path("/proc/iomem").read_text(), re.M)
    except OSError:
        ends = []
    last = max((int(end, 16) for end in ends), default=0)
    return (last >> 30) + 2 if last else _MAX_SEARCH_STEPS


def blocks_of(pid: int) -> int:
    """Return an upper bound of the 2 MiB blocks with a page table."""
    return page_tables_kb(pid) // 4


def _raise_without_mappings(pid: int) -> NoReturn:
    if not has_ended(pid):
        raise TrackerError(f"the walk met no memory mapping of process {pid} (a kernel thread?)")
    try:
        others = [tid for tid in os.listdir(f"/proc/{pid}/task") if not has_ended(int(tid))]
    except OSError:
        others = []
    if others:
        # Its memory lives, but /proc/PID and a pidfd reach it through the first thread, also for clearing.
        raise TrackerError(f"the first thread of process {pid} ended before the others: its memory is out of reach")
    raise ProcessLookupError(f"process {pid} ended")
