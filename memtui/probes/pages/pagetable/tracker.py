"""The page-table tracker: exact to the page, on stock x86-64 kernels with BTF, and it changes nothing in the target.

A window is: walk the page tables, flush stale translations, clear the accessed bits; all while the target is paused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from memtui.core.block_sample import BlockSample
from memtui.core.page_set import PAGE_BYTES, PageSet
from memtui.core.samples import Capability, Status, Vma
from memtui.core.units import size
from memtui.probes.competing_observers import other_observers
from memtui.probes.pages.pagetable.bpf_loader import Skeleton
from memtui.probes.pages.pagetable.maps_text import MappingTable
from memtui.probes.pages.pagetable.parallel_walk import SplitWalker
from memtui.probes.pages.pagetable.rearm import Rearmed, Rearmer
from memtui.probes.pages.pagetable.recent_pages import RecentPages
from memtui.probes.pages.pagetable.walk import DEFAULT_SLOTS, Walker, blocks_of
from memtui.probes.pages.pagetable.walk_result import Users, Walk
from memtui.probes.pages.thread_pool import Future
from memtui.probes.pages.tlb_flush import Flusher, Handle, prove_flushes
from memtui.probes.pages.tracker import HoldTooLong, PageWindow
from memtui.probes.proc_maps import read_maps

NAME = "pagetable"
ALL_PAGES = 1 << 40  # clearing a part is always cheaper than clearing everything
_MAPPINGS_IN_PAUSE = 2048  # whose table is read within it: some 2 ms
_FEW_PAGES = 10_000  # below that, the time of clearing does not tell what a page costs
# With less of the working set in doubt, a window passes for exact: folios of libraries are everybody's, and noted
_EXACT_SHARE, _EXACT_BYTES = 0.01, 1 << 20


@dataclass(slots=True, eq=False)
class _Held:
    """What is kept for one process between windows."""

    handle: Handle
    address_space: tuple[int, int]
    thinned: bool  # most marks were cleared before the first pause
    recent: RecentPages
    sample: BlockSample | None = None  # the newest, which may have more parts than the last window's
    small_page_blocks: int = 0  # how many there are, as of the begin of the round
    part: int = 0  # of it: the one whose marks were cleared last
    table: MappingTable = field(default_factory=MappingTable)
    begun: bool = False
    generation: int = 0
    resident_pages: int = 0
    cuts: tuple[int, ...] = ()  # where another walker goes on
    unknown: PageSet = field(default_factory=PageSet.empty)  # pages whose marks could not be cleared
    clear_page_ns: float = 45.0  # that clearing took lately for each touched page


@dataclass(frozen=True, slots=True, eq=False)
class _Met:
    """What was read before it is cleared. ``noted``: those of the touched pages whose marks another observer took."""

    walk: Walk
    touched: PageSet
    walked_ns: int
    noted: PageSet = field(default_factory=PageSet.empty)
    files: Future[None] | None = None  # clearing of mapped files that was begun


class PageTableTracker:
    """Reads accessed bits with a BPF program and clears them again (``memtui.probes.pages.pagetable.rearm``).

    Left out of the working set, because nobody can clear their bits: hugetlb pages, pages of 1 GiB, the zero page
    (memory that was read and never written) and device memory. Of these only the first two count as resident, and
    mappings of hugetlb pages are named in ``PageWindow.vma_wss``.
    """

    name = NAME
    wss, pages = Capability("wss", True), Capability("pages", True)
    pauses = clears = True
    hold_until_ns: int | None = None
    reads_running = False

    def __init__(
        self,
        flush: str = "auto",
        *,
        rearm: str = "auto",
        paused: bool = True,
        sample: BlockSample | None = None,
        skeleton: Skeleton | None = None,
        slots: int = DEFAULT_SLOTS,
        restrict: bool = True,
    ) -> None:
        """Load the program and choose a flush, by a proof on a child process when ``flush`` is ``auto``.

        Args:
            flush: ``auto``, ``cold``, ``soft-dirty`` or ``off``.
            rearm: ``auto``, ``working-set`` or ``full``.
            paused: the target will stand still over ``begin`` and ``window``.
            sample: read one part of the memory in each window; None: all of it.
            skeleton: the BPF program; the shipped one when not given.
            slots: blocks of 2 MiB that fit before the first growth.
            restrict: False visits every process of the machine, the only way before Linux 6.1.

        Raises:
            OSError, TrackerError: it does not work here; ``proof.prove`` says why in plain words.
        """
        self.running: set[int] = set()
        self._held: dict[int, _Held] = {}
        self._others: tuple[str, ...] = ()
        self._several = False  # processes are read in turn
        self._paused, self._sample = paused, sample
        self._walker = Walker(skeleton, slots=slots, restrict=restrict)
        self._split = SplitWalker(self._walker, skeleton)
        try:
            proofs = prove_flushes(self._walker) if flush == "auto" else ()
            self._flusher = Flusher(self._walker, flush, proofs)
            self._rearmer = Rearmer(self._split, self._flusher, rearm, paused=paused, running=self.running)
        except BaseException:
            self._split.close()
            raise
        self.flush = self._flusher.choice
        self.rearm = self._rearmer.choice
        self.rejected_flushes = self._flusher.rejected

    def notice(self) -> str:
        """Look who else clears accessed bits, and take measures; what the user should know of it, once per change.

        Call it now and then while nothing is paused.
        """
        self._rearmer.look_around(tuple(self._held))
        others = other_observers()
        if others == self._others:
            return ""
        self._others = others
        self._walker.second_look = bool(others)
        if not others:
            return "nobody else clears accessed bits any more: the page sets are exact again"
        who = f"{', '.join(others)} runs on this machine and clears accessed bits, too"
        if not self._walker.knows_page_frames:
            return f"{who}: touched pages may be missed"
        return (
            f"{who}; memtui reads back what it notes about pages touched lately. Those first touched in a window may "
            "be missed; where pages of large folios may be, the window is called approximate"
        )

    def pace(self, interval_ns: int | None) -> None:
        """Windows may be of any length."""

    def approach(self, pid: int) -> None:
        """Clear most marks of a large process while it runs. Its first pause is short then.

        Raises:
            ProcessLookupError: the process ended.
            PermissionError: it belongs to someone else and this is not root.
            TrackerError: its page tables cannot be read.
        """
        self.forget(pid)
        handle = Handle.open(pid)
        blocks, sample, first = blocks_of(pid), None, None
        if self._sample is not None:
            sample = self._sample.for_blocks(blocks)
            blocks, first = 2 * blocks // sample.parts, (sample, 0, 0)  # a walk reads two parts
        try:
            self._walker.reserve(blocks * 5 // 4)
            walk = self._walker.walk(pid, want_resident=True, parts=first)
            self._rearmer.look_at(pid)
            thinned = self._rearmer.thin(handle, walk)
        except BaseException:
            handle.close()
            self._walker.forget(pid)
            raise
        held = self._held[pid] = _Held(handle, walk.address_space, thinned, RecentPages(walk.pages), sample)
        self._note_resident(held, walk)
        self._split.prepare(1 + len(held.cuts))

    def begin(self, pid: int, vmas: tuple[Vma, ...]) -> None:
        """Clear all marks, so that the first window reports touches and not residency.

        Raises as ``approach``, which it does itself where nobody did.
        """
        if pid not in self._held or self._held[pid].begun:
            self.approach(pid)
        held = self._held[pid]
        try:
            if held.sample is not None:
                self._read_part(held, pid, held.sample, first=True)
            elif held.thinned:
                with self._split.counted(pid) as users:
                    met = self._meet(held, pid, users)  # not noted: the first window asks about all of before
                    self._clear(held, met)
                # How much of all that was ever touched could not be cleared singly says nothing about a window.
                self._rearmer.forget(pid)
            else:
                walk = self._walker.walk(pid)
                held.address_space = walk.address_space
                self._flusher.flush(held.handle, walk)
                held.handle.clear()
        except BaseException:
            self.forget(pid)
            raise
        held.begun = True

    def mappings(self, pid: int) -> int | None:
        """Count the mappings of a process. Raises ProcessLookupError and TrackerError."""
        return self._walker.mappings_of(pid)

    def begin_round(self, processes: int) -> None:
        """Of several processes, the page frames behind touched pages will be told. Nothing should be paused."""
        self._several = processes > 1
        if self._several:
            self._walker.begin_round()
        if self._walker.second_look:
            for held in self._held.values():
                held.recent.take_in()
        self._split.prepare(1 + max((len(held.cuts) for held in self._held.values()), default=0))
        for pid, held in self._held.items():
            self._split.open_ahead(pid, held.cuts)
            if held.sample is not None:
                held.small_page_blocks = blocks_of(pid)
        self._split.hands.avoid_current_cpu()

    def window(self, pid: int, vmas: tuple[Vma, ...], *, want_resident: bool) -> PageWindow:
        """Read the marks, flush, clear the marks. The process should be paused over this call.

        Raises:
            ProcessLookupError: the process ended.
            TrackerError: no mapping was met, or the tracker cannot read page tables here.
        """
        held = self._held.get(pid)
        if held is None or not held.begun:
            self.begin(pid, vmas)
            return PageWindow(None, status=Status.FAILED, reason="tracking of this process began in this window")
        stands = self._paused and pid not in self.running
        if not stands:
            held.cuts = ()
        begin, unknown = time.monotonic_ns(), held.unknown
        with self._split.counted(pid) as users:
            if held.sample is not None:
                met, sampled, done = self._read_part(held, pid, held.sample)
                return self._told(held, met, done, users if stands else None, begin, unknown, want_resident, sampled)
            met = self._meet(held, pid, users, want_resident=want_resident, want_tables=self._several)
            if stands and met.files is None and self._takes_too_long(held, met.touched):
                raise HoldTooLong(partial(self._finish, held, met, begin, unknown, want_resident))
            done = self._clear(held, met)
        return self._told(held, met, done, users if stands else None, begin, unknown, want_resident)

    def _takes_too_long(self, held: _Held, pages: PageSet) -> bool:
        """Whether marks cannot be cleared before the process is to run again."""
        if self.hold_until_ns is None:
            return False
        return time.monotonic_ns() + pages.page_count * held.clear_page_ns > self.hold_until_ns

    def _finish(self, held: _Held, met: _Met, begin: int, unknown: PageSet, want_resident: bool) -> PageWindow:
        """Clear the marks of a process that was let go after they were read."""
        pid = held.handle.pid
        runs_anyway = pid in self.running
        self.running.add(pid)
        try:
            return self._told(held, met, self._clear(held, met), None, begin, unknown, want_resident)
        finally:
            if not runs_anyway:
                self.running.discard(pid)

    def _told(
        self,
        held: _Held,
        met: _Met,
        done: Rearmed,
        users: Users | None,
        begin: int,
        unknown: PageSet,
        want_resident: bool,
        sampled: PageSet | None = None,
    ) -> PageWindow:
        """Return the window. ``users``: of the memory of one that was held; ``unknown``: left so by the last window."""
        walk, pages, walked, cleared = met.walk, met.touched, met.walked_ns, time.monotonic_ns()
        resident = walk.resident if sampled is None else sampled if want_resident else None
        held.recent.note(pages, walk)
        changed = f"{walk.changed} blocks of 2 MiB changed while they were read" if walk.changed else ""
        taken = self._taken_by_others(walk, pages)
        doubts = "; ".join(filter(None, (changed, taken, _who_ran(users) if users else "")))
        unknown_bytes = unknown.size_bytes - unknown.difference(pages).size_bytes  # of what was touched

        hugetlb = walk.hugetlb[0].tolist()
        reason = f"{walk.errors} page tables could not be read" if walk.errors else ""
        return PageWindow(
            None if reason else pages,
            None if reason else resident,
            flush=done.flush,
            rearm=done.rearm,
            generation=held.generation,
            maps=self._table(held, walk, anew=want_resident),
            walk_ns=walked - begin,
            rearm_ns=cleared - walked,
            clear_gap_ns=cleared - begin,
            unknown_bytes=None if reason else unknown_bytes,
            vma_wss=(lambda: tuple((start, None) for start in hugetlb)) if hugetlb else None,
            sampled=sampled,
            frames=partial(walk.tables.frames_behind, pages) if walk.tables is not None else None,
            status=Status.FAILED if reason else Status.APPROXIMATE if doubts else Status.OK,
            reason=reason or doubts,
        )

    def _meet(
        self, held: _Held, pid: int, users: Users, *, want_resident: bool = False, want_tables: bool = False
    ) -> _Met:
        """Read the marks; those in mapped files may be cleared meanwhile."""
        self._split.take_doubts()  # of clearing the window before
        recent = held.recent if self._walker.second_look else None
        if recent is not None:
            recent.take_in()
        files: Future[None] | None = None
        ahead = self._rearmer.clears_ahead(pid) and users.all_held
        if ahead and not (want_tables or held.cuts) and self._walker.restricted:
            walk, noted, files = self._split.walk_and_clear(
                pid,
                partial(self._rearmer.clear_ahead, held.handle),
                want_resident=want_resident,
                ask=(recent.in_files, recent.elsewhere) if recent is not None else None,
            )
        else:
            walk, noted = self._split.walk(
                pid,
                held.cuts,
                want_resident=want_resident,
                want_tables=want_tables,
                ask=recent.known if recent is not None else None,
            )
        walked_ns = time.monotonic_ns()
        try:
            walk = replace(walk, in_doubt=self._split.take_doubts())
            if walk.address_space != held.address_space:
                # A new address space begins without marks, so what is marked was touched since the exec.
                held.address_space = walk.address_space
                held.generation += 1
                held.recent, held.unknown, noted = RecentPages(), PageSet.empty(), PageSet.empty()
            self._note_resident(held, walk)
            return _Met(walk, walk.pages.union(noted), walked_ns, noted, files)
        except BaseException:
            if files is not None:
                files.wait()
            raise

    def _clear(self, held: _Held, met: _Met) -> Rearmed:
        """Flush and clear what was met."""
        files = met.files
        try:
            if files is None and self._rearmer.clears_ahead(held.handle.pid):
                files = self._rearmer.clear_ahead(held.handle)
            done = self._rearmer.rearm(held.handle, met.walk, met.touched, met.noted, held.resident_pages, files)
        finally:
            if files is not None:
                files.wait()
        held.unknown = done.unknown
        took_ns = time.monotonic_ns() - met.walked_ns
        held.clear_page_ns = max(took_ns / max(met.touched.page_count, _FEW_PAGES), held.clear_page_ns / 2)
        return done

    def _read_part(
        self, held: _Held, pid: int, sample: BlockSample, *, first: bool = False
    ) -> tuple[_Met, PageSet, Rearmed]:
        """Read the marks of the part that was cleared last, flush, and clear those of the next part.

        The others keep their marks: nothing has to be set again there. What another observer noted is not asked.

        Returns:
            What was met (of the part alone), what of the part is there, what was done.
        """
        part = held.part
        following = part if first else (part + 1) % sample.parts
        walk = self._walker.walk(pid, want_resident=True, parts=(sample, part, following))
        walked_ns = time.monotonic_ns()
        if walk.address_space != held.address_space:
            held.address_space = walk.address_space
            held.generation += 1
        assert walk.resident is not None
        finer = sample.for_blocks(held.small_page_blocks)  # its part of that number lies in the one that was walked
        marked = finer.select(walk.pages, following)
        done = self._rearmer.rearm(held.handle, walk, marked, PageSet.empty(), ALL_PAGES)
        held.sample, held.part, held.unknown = finer, following, done.unknown
        return _Met(walk, sample.select(walk.pages, part), walked_ns), sample.select(walk.resident, part), done

    def _taken_by_others(self, walk: Walk, pages: PageSet) -> str:
        """Say how much more may have been touched, where that is worth a word."""
        doubtful_bytes = walk.in_doubt * PAGE_BYTES
        if doubtful_bytes <= max(_EXACT_SHARE * pages.size_bytes, _EXACT_BYTES):
            return ""
        who = ", ".join(self._others) or "another observer"
        return f"{who} took accessed bits: about {size(doubtful_bytes)} more may have been touched"

    def _table(self, held: _Held, walk: Walk, *, anew: bool) -> Callable[[], bytes]:
        """Return the table of mappings.

        Reading it is a tenth of the pause, so it is put together, after it, where it can be.

        A file that was renamed changes nothing that the walk sees, so ``anew`` now and then. A long one is read after
        the pause, too: then the names are those of a moment later.
        """
        mappings, table, pid = walk.mappings, held.table, held.handle.pid
        later = walk.vmas > _MAPPINGS_IN_PAUSE
        if mappings is None:
            return partial(read_maps, pid) if later else partial(bytes, read_maps(pid))
        if not anew and table.knows(mappings):
            return partial(table.text, mappings)
        if later:
            return lambda: table.learn_later(mappings, read_maps(pid))
        return partial(table.learn, mappings, read_maps(pid))

    def _note_resident(self, held: _Held, walk: Walk) -> None:
        if walk.resident is not None:
            held.resident_pages = walk.resident.page_count
            stands = self._paused and held.handle.pid not in self.running
            held.cuts = self._split.cuts(walk.resident) if stands else ()

    def forget(self, pid: int) -> None:
        """Release what is held for a process that ended."""
        held = self._held.pop(pid, None)
        if held:
            held.handle.close()
        self._split.forget(pid)
        self._rearmer.forget(pid)

    def close(self) -> None:
        """Release everything. The kernel does the same when this process dies."""
        for pid in tuple(self._held):
            self.forget(pid)
        self._rearmer.close()
        self._split.close()

    def __enter__(self) -> PageTableTracker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _who_ran(users: Users) -> str:
    """Return what the user should know of tasks that used a paused process's memory and were not paused with it."""
    if users.all_held or not users.running:
        return ""
    return (
        f"{users.running} task(s) that share its memory ran meanwhile (CLONE_VM, vfork): "
        "what they touched just then may be missed"
    )
