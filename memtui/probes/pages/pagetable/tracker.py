"""The page-table tracker: exact to the page, on stock x86-64 and arm64 kernels with BTF, without changing the target.

A window walks the page tables, flushes stale translations and clears the accessed bits, all while the target is paused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from memtui.core.block_sample import BlockSample
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import MISSED, MORE_TOUCHED, Capability, Status, Vma
from memtui.core.units import size
from memtui.probes.competing_observers import describe_others, other_observers
from memtui.probes.pages.pagetable.bpf_loader import Skeleton
from memtui.probes.pages.pagetable.first_accesses import FirstAccessReader
from memtui.probes.pages.pagetable.parallel_walk import SplitWalker
from memtui.probes.pages.pagetable.rearm import FULL, Rearmed, Rearmer
from memtui.probes.pages.pagetable.recent_pages import RecentPages, resident_in_files
from memtui.probes.pages.pagetable.sampled_parts import PartReader
from memtui.probes.pages.pagetable.tracker_state import AccessedBits, Tracked
from memtui.probes.pages.pagetable.walk import DEFAULT_SLOTS, Walker, blocks_of
from memtui.probes.pages.pagetable.walk_result import Users, Walk
from memtui.probes.pages.thread_pool import Future
from memtui.probes.pages.tlb_flush import Flusher, Handle, prove_flushes
from memtui.probes.pages.tracker import BITS_TAKEN, ClearingTooLong, PageWindow, first_window, is_late, is_little

NAME = "pagetable"
_LOOK_EVERY_NS = 100_000_000  # for other observers that began; a look takes 0.2 ms


class PageTableTracker:
    """Reads accessed bits with a BPF program and clears them again (``memtui.probes.pages.pagetable.rearm``).

    The working set leaves out pages whose bits nobody can clear: hugetlb pages, pages of 1 GiB, the zero page (memory
    that was read and never written) and device memory. Of these only the first two count as resident, and
    ``PageWindow.vma_wss`` names the mappings of hugetlb pages.
    """

    name = NAME
    wss, pages = Capability("wss", True), Capability("pages", True)
    pauses = clears = counts_users = True
    page_ns = 60  # AMD EPYC (docs/internals/cost.md)
    resume_by_ns: int | None = None
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
        walker: Walker | None = None,
    ) -> None:
        """Load the program and choose a flush, by a proof on a child process when ``flush`` is ``auto``.

        Args:
            flush: ``auto``, ``cold``, ``soft-dirty`` or ``off``.
            rearm: ``auto``, ``working-set`` or ``full``.
            paused: targets will stand still during ``start`` and ``window``.
            sample: read one part of the memory in each window; None: all of it.
            skeleton: the BPF program; the shipped one when not given.
            slots: blocks of 2 MiB that fit before the first growth.
            restrict: False visits every process of the machine, the only way before Linux 6.1.
            walker: the loaded program, which is the tracker's from now on; ``slots`` and ``restrict`` are its own.

        Raises:
            OSError, TrackerError: the tracker does not work here; ``proof.prove`` says why in plain words.
        """
        self.running: set[int] = set()
        self._tracked: dict[int, Tracked] = {}
        self._others: tuple[str, ...] = ()
        self._seen: tuple[str, ...] | None = None  # the other observers when it was last looked; None: it was not
        self._began: tuple[str, ...] = ()  # those that were not there at the look before this round's
        self._look_due_ns = 0
        self._several = False  # processes are read in turn
        self._paused, self._sample = paused, sample
        self._walker = walker or Walker(skeleton, slots=slots, restrict=restrict)
        self._split = SplitWalker(self._walker, skeleton)
        try:
            proofs = prove_flushes(self._walker) if flush == "auto" else ()
            self._flusher = Flusher(self._walker, flush, proofs)
            self._rearmer = Rearmer(self._split, self._flusher, rearm, paused=paused, running=self.running)
            self._parts = PartReader(self._walker, self._rearmer)
        except BaseException:
            self._split.close()
            raise
        self.flush = self._flusher.choice
        self.rearm = self._rearmer.choice
        self.rejected_flushes = self._flusher.rejected

    def notice(self) -> str:
        """Find other observers that clear accessed bits, and adapt; return a notice for the user, once per change.

        Call this now and then while nothing is paused.
        """
        self._rearmer.refresh(tuple(self._tracked))
        others = other_observers()
        if self._seen is None:
            self._seen = others
        self._walker.reads_young_flags = bool(others)
        if others == self._others:
            return ""
        self._others = others
        return describe_others(others, self._walker.knows_page_frames, sampled=self._sample is not None)

    def set_interval(self, interval_ns: int | None) -> None:
        """Do nothing: windows may be of any length."""

    def prepare(self, pid: int) -> int:
        """Clear most accessed bits of a large process while it runs, so that its first pause is short.

        Returns how long a walk over all page tables took, in ns; else 0.

        Raises:
            ProcessLookupError: the process ended.
            PermissionError: the process belongs to someone else and this is not root.
            TrackerError: its page tables cannot be read.
        """
        self.forget(pid)
        self._look_for_others()
        handle = Handle.open(pid)
        blocks, sample, first = blocks_of(pid), None, None
        if self._sample is not None:
            sample = self._sample.for_blocks(blocks)
            blocks, first = 2 * blocks // sample.parts, (sample, 0, 0)  # a walk reads two parts
        try:
            self._walker.reserve(blocks * 5 // 4)
            start_ns = time.monotonic_ns()
            walk = self._walker.walk(pid, want_resident=True, parts=first)
            walk_ns = time.monotonic_ns() - start_ns
            self._rearmer.check_reclaim(pid)
            mostly_cleared = self._rearmer.clear_most(handle, walk)
        except BaseException:
            handle.close()
            self._walker.forget(pid)
            raise
        files = None if sample is not None else resident_in_files(walk)
        queries = RecentPages(walk.pages, files), FirstAccessReader(walk)
        tracked = self._tracked[pid] = Tracked(handle, walk.address_space, mostly_cleared, *queries, sample)
        self._record_resident(tracked, walk)
        self._split.prepare(1 + len(tracked.cuts), pages=tracked.resident_pages)
        return 0 if sample else walk_ns

    def is_prepared(self, pid: int) -> bool:
        """Whether ``prepare`` was called for this process."""
        return pid in self._tracked

    def start(self, pid: int, vmas: tuple[Vma, ...]) -> None:
        """Clear all accessed bits, so that the first window reports accesses and not residency.

        Calls ``prepare`` where the caller did not. Raises as ``prepare``, and ClearingTooLong.
        """
        if pid not in self._tracked or self._tracked[pid].begun:
            self.prepare(pid)
        tracked = self._tracked[pid]
        try:
            with self._split.counted(pid) as users:
                # Without notes: the first window reads those, too.
                bits = self._read(tracked, pid, users, first=True)
                late = self._takes_too_long(tracked, pid, bits)
                if not late:
                    self._clear_first(tracked, bits, users)
        except BaseException:
            self.forget(pid)
            raise
        if late:
            raise ClearingTooLong(partial(self._finish_start, tracked, bits))

    def _clear_first(self, tracked: Tracked, bits: AccessedBits, users: Users | None) -> None:
        """Clear all accessed bits before the first window. ``users``: as for ``_clear``."""
        pid = tracked.handle.pid
        if bits.part is not None or tracked.mostly_cleared:
            self._clear(tracked, bits, users)
            # How many of all pages ever accessed could not be cleared singly says nothing about a window.
            self._rearmer.forget(pid)
        else:
            shared, began_ns = users is not None and users.some_run, time.monotonic_ns()
            flush = self._rearmer.clear_all(tracked.handle, bits.walk, shared=shared)
            tracked.record_clear(bits.touched, flush, PageSet.empty(), time.monotonic_ns() - began_ns, full=True)
        tracked.begun = True

    def count_mappings(self, pid: int) -> int | None:
        """Count the mappings of a process. Raises ProcessLookupError and TrackerError."""
        return self._walker.mappings_of(pid)

    def start_round(self, processes: int) -> None:
        """Prepare a window of each process, with page frames where there are several. Nothing should be paused."""
        self._began = ()
        self._look_for_others()
        self._several = processes > 1
        self._walker.start_round(processes)
        if self._walker.reads_young_flags:
            for tracked in self._tracked.values():
                tracked.recent.update()
                tracked.first_accesses.draw()
        largest = max(self._tracked.values(), key=lambda tracked: tracked.resident_pages, default=None)
        if largest is not None:
            self._split.prepare(1 + len(largest.cuts), pages=largest.resident_pages)
        if self._walker.reads_young_flags:
            self._split.start_round(processes)
        for pid, tracked in self._tracked.items():
            self._split.open_ahead(pid, tracked.cuts)
            if tracked.sample is not None:
                tracked.small_page_blocks = blocks_of(pid)
        self._split.pool.avoid_current_cpu()

    def _look_for_others(self) -> None:
        """Find observers that began in the windows that end now, before the user is told of them (``notice``).

        No window relies on the caller for this: not on ``notice``, and not on ``start_round``.
        """
        if time.monotonic_ns() < self._look_due_ns:
            return
        others = other_observers()
        self._look_due_ns = time.monotonic_ns() + _LOOK_EVERY_NS
        if self._seen is not None:  # else no window was begun without it
            self._began += tuple(who for who in others if who not in self._seen)
        self._seen = others
        if others:
            self._walker.reads_young_flags = True

    def window(self, pid: int, vmas: tuple[Vma, ...], *, want_resident: bool) -> PageWindow:
        """Read the accessed bits, flush and clear. The process should be paused during this call.

        Raises:
            ProcessLookupError: the process ended.
            TrackerError: the process has no mapping, or the tracker cannot read page tables here.
        """
        tracked = self._tracked.get(pid)
        if tracked is None or not tracked.begun:
            self.start(pid, vmas)
            return first_window()
        self._look_for_others()  # where ``start_round`` was not called; else it is rarely due again
        still = self._paused and pid not in self.running
        if not still:
            tracked.cuts = ()
        start_ns = time.monotonic_ns()
        with self._split.counted(pid) as users:
            bits = self._read(tracked, pid, users, want_resident=want_resident)
            if self._takes_too_long(tracked, pid, bits):
                raise ClearingTooLong(partial(self._finish, tracked, bits, start_ns, want_resident))
            done = self._clear(tracked, bits, users)
        return self._page_window(tracked, bits, done, users if still else None, start_ns, want_resident)

    def _takes_too_long(self, tracked: Tracked, pid: int, bits: AccessedBits) -> bool:
        """Whether clearing accessed bits would take longer than until a paused process is to run again."""
        if bits.files is not None or pid in self.running:
            return False
        return is_late(self.resume_by_ns, bits.to_clear.page_count * tracked.clear_page_ns)

    def _finish(self, tracked: Tracked, bits: AccessedBits, start_ns: int, want_resident: bool) -> PageWindow:
        """Clear the accessed bits of a process that was released after they were read."""
        with self._released(tracked.handle.pid):
            done = self._clear(tracked, bits, None)
            return self._page_window(tracked, bits, done, None, start_ns, want_resident)

    def _finish_start(self, tracked: Tracked, bits: AccessedBits) -> PageWindow:
        """Clear the accessed bits before the first window, as ``_finish``."""
        with self._released(tracked.handle.pid):
            self._clear_first(tracked, bits, None)
        return first_window()

    @contextmanager
    def _released(self, pid: int) -> Iterator[None]:
        """Treat a process as running during the block."""
        runs_anyway = pid in self.running
        self.running.add(pid)
        try:
            yield
        finally:
            if not runs_anyway:
                self.running.discard(pid)

    def _page_window(
        self,
        tracked: Tracked,
        bits: AccessedBits,
        done: Rearmed,
        users: Users | None,
        start_ns: int,
        want_resident: bool,
    ) -> PageWindow:
        """Return the window. ``users``: of the memory of a paused process."""
        sampled = bits.part.present if bits.part is not None else None
        walk, pages, walked, cleared = bits.walk, bits.touched, bits.walked_ns, time.monotonic_ns()
        resident = None if not want_resident else walk.resident if sampled is None else sampled
        tracked.recent.record(pages, walk)
        changed = f"blocks of 2 MiB that changed while they were read: {walk.changed}" if walk.changed else ""
        taken = self._taken_by_others(walk, pages)
        runs = users.describe_running() if users else ""
        began = f"{', '.join(self._began)} began a moment ago, and clears accessed bits, too" if self._began else ""
        unflushed = bits.uncertain.unflushed_doubt(pages)
        doubts = "; ".join(filter(None, (changed, taken, unflushed, runs, self._shared_with(tracked), began)))
        unknown = bits.uncertain.unknown
        unknown_bytes = unknown.size_bytes - unknown.difference(pages).size_bytes  # those in the working set

        hugetlb = walk.hugetlb[0].tolist()
        reason = f"{walk.errors} page tables could not be read" if walk.errors else ""
        return PageWindow(
            None if reason else pages,
            None if reason else resident,
            flush=done.flush,
            rearm=done.rearm,
            generation=tracked.generation,
            maps=tracked.maps(walk, anew=want_resident),
            walk_ns=walked - start_ns,
            rearm_ns=cleared - walked,
            clear_gap_ns=cleared - start_ns,
            unknown_bytes=None if reason else unknown_bytes,
            vma_wss=(lambda: tuple((start, None) for start in hugetlb)) if hugetlb else None,
            sampled=sampled,
            doubtful_bytes=walk.in_doubt * PAGE_BYTES,
            frames=partial(walk.tables.frames_behind, pages) if walk.tables is not None else None,
            status=Status.FAILED if reason else Status.APPROXIMATE if doubts else Status.OK,
            reason=reason or doubts,
        )

    def _read(
        self, tracked: Tracked, pid: int, users: Users, *, want_resident: bool = False, first: bool = False
    ) -> AccessedBits:
        """Read the accessed bits, all or a part; those in mapped files may be cleared meanwhile.

        ``first``: before the first window, for which all are cleared.
        """
        if tracked.sample is not None:
            return self._parts.read(tracked, pid, tracked.sample, first=first)
        if first and not tracked.mostly_cleared:
            walk = self._walker.walk(pid)
            tracked.address_space = walk.address_space
            return AccessedBits(walk, walk.pages, time.monotonic_ns(), tracked.uncertain)
        want_tables = self._several and not first
        self._split.take_doubts()  # drop those of clearing after the last window
        recent = tracked.recent if self._walker.reads_young_flags else None
        if recent is not None:
            recent.update()
            want_resident = want_resident or tracked.first_accesses.wants_resident
        files: Future[None] | None = None
        ahead = self._rearmer.clears_ahead(pid) and users.all_traced
        if ahead and not (want_tables or tracked.cuts) and self._walker.restricted:
            walk, noted, files = self._split.walk_and_clear(
                pid,
                partial(self._rearmer.clear_ahead, tracked.handle),
                want_resident=want_resident,
                query=(recent.in_files, recent.elsewhere) if recent is not None else None,
            )
        else:
            walk, noted = self._split.walk(
                pid,
                tracked.cuts,
                want_resident=want_resident,
                want_tables=want_tables,
                query=recent.pages if recent is not None else None,
            )
        try:
            doubtful_pages, uncertain = self._split.take_doubts(), tracked.uncertain
            if walk.address_space != tracked.address_space:
                # A new address space begins without accessed bits, so what is set was accessed since the exec.
                tracked.record_exec(walk.address_space)
                tracked.recent, noted, uncertain = RecentPages(), PageSet.empty(), tracked.uncertain
            if recent is not None:
                firsts = tracked.first_accesses.read(self._walker, pid, walk, tracked.recent.pages)
                noted, doubtful_pages = noted.union(firsts.pages), doubtful_pages + firsts.doubtful_pages
                uncertain = replace(uncertain, unknown=uncertain.unknown.union(firsts.unsure))
            walk, walked_ns = replace(walk, in_doubt=doubtful_pages), time.monotonic_ns()
            self._record_resident(tracked, walk)
            return AccessedBits(walk, walk.pages.union(noted), walked_ns, uncertain, noted, files)
        except BaseException:
            if files is not None:
                files.wait()
            raise

    def _clear(self, tracked: Tracked, bits: AccessedBits, users: Users | None) -> Rearmed:
        """Flush, and clear the accessed bits that were read. ``users``: of the memory; None: the process runs."""
        files, shared = bits.files, users is not None and users.some_run
        if bits.part is not None:
            return self._parts.clear(tracked, bits, bits.part, shared=shared)
        began_ns = time.monotonic_ns()
        try:
            if files is None and self._rearmer.clears_ahead(tracked.handle.pid):
                files = self._rearmer.clear_ahead(tracked.handle)
            done = self._rearmer.rearm(
                tracked.handle, bits.walk, bits.touched, bits.noted, tracked.resident_pages, files, shared=shared
            )
        finally:
            if files is not None:
                files.wait()
        took_ns = time.monotonic_ns() - began_ns
        tracked.record_clear(bits.touched, done.flush, done.unknown, took_ns, full=done.rearm == FULL)
        return done

    def _taken_by_others(self, walk: Walk, pages: PageSet) -> str:
        """Return a sentence about memory that may have been accessed, too; empty where it is little."""
        who = ", ".join(self._seen or ()) or "another observer"
        if self._walker.reads_young_flags and not self._walker.knows_page_frames:
            return f"{MISSED}: {who} takes accessed bits, and its notes cannot be read here"
        if is_little(doubtful_bytes := walk.in_doubt * PAGE_BYTES, pages):
            return ""
        return f"{who} {BITS_TAKEN}: about {size(doubtful_bytes)} {MORE_TOUCHED}"

    def _shared_with(self, tracked: Tracked) -> str:
        """Return a sentence about other processes that have the same memory and are read by themselves, too.

        The sampler reads such memory once, where the kernel says who shares it.
        """
        memory, _ = tracked.address_space
        others = [
            pid for pid, other in self._tracked.items() if other is not tracked and other.address_space[0] == memory
        ]
        # Where one ended, or has begun another program, its memory may have been given to this one.
        pids = [pid for pid in others if self._walker.uses(pid, memory)]
        who = ", ".join(map(str, pids))
        return f"the same memory is read of pid {who}, too: each reading clears the marks for all" if pids else ""

    def _record_resident(self, tracked: Tracked, walk: Walk) -> None:
        if walk.resident is not None:
            tracked.resident_pages = walk.resident.page_count
            tracked.record_resident(walk.resident)
            still = self._paused and tracked.handle.pid not in self.running
            tracked.cuts = self._split.cuts(walk.resident) if still else ()

    def forget(self, pid: int) -> None:
        """Release what is kept of a process that ended."""
        tracked = self._tracked.pop(pid, None)
        if tracked:
            tracked.handle.close()
        self._split.forget(pid)
        self._rearmer.forget(pid)

    def close(self) -> None:
        """Release everything. The kernel does the same when this process dies."""
        for pid in tuple(self._tracked):
            self.forget(pid)
        self._rearmer.close()
        self._split.close()

    def __enter__(self) -> PageTableTracker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
