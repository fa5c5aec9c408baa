"""The referenced tracker: working sets by VMA for a user's own processes, without root and without BPF.

A window reads ``Referenced:`` of every VMA in ``/proc/PID/smaps``, then writes to ``/proc/PID/clear_refs`` a ``1``
(clears the accessed bits) and a ``4`` (flushes the TLB on its way), while the target is paused, where it may be.
Formats: Documentation/filesystems/proc.rst of Linux, "smaps" and "clear_refs".

``Referenced`` (``smaps_account`` in fs/proc/task_mmu.c) counts pages whose accessed bit is set, in the size that the
hardware maps, and pages whose page frame has the flag PG_young or PG_referenced. The flags make up for DAMON and
page_idle, which clear an accessed bit and set PG_young. They also count a page of a *file* that another process used
through the page cache, so for file mappings this is an upper bound. The kernel does not count hugetlb and device
memory: their working set is reported as not known.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import Capability, Status, Vma, VmaSizes
from memtui.probes.pages import tracker
from memtui.probes.pages.process_files import ProcessFiles, count_mappings
from memtui.probes.pages.self_test import misjudged, own_pages
from memtui.probes.pages.self_test_child import LoopingChild, looping_child
from memtui.probes.pages.soft_dirty import SoftDirtyFlush
from memtui.probes.pages.tlb_flush import SOFT_DIRTY
from memtui.probes.pages.tracker import ClearingTooLong, PageWindow, ReadingTooLong, TrackerError
from memtui.probes.proc_maps import MOST_MAPPINGS, TooManyMappings

NAME = "referenced"
FULL = "full"
NO_PAGES = "the referenced tracker counts touched bytes by range and knows no single pages"
_PAGE_KIB = 4
_UNCOUNTED = (b" ht", b" pf")  # VmFlags of hugetlb and of device memory (PFN map)
_REFERENCED = re.compile(rb"\nReferenced: +(\d+)")
_RSS = re.compile(rb"\nRss: +(\d+)")
# VmFlags is the last line of a VMA, so the next line is that of the next VMA, as in maps.
_END = re.compile(rb"\nVmFlags:([^\n]*)\n([^\n]*)")


@dataclass(slots=True, eq=False)
class _Tracked:
    """The state of one process between windows."""

    files: ProcessFiles  # ``source`` is smaps
    generation: int = 0
    begun: bool = False  # its accessed bits were cleared and its translations flushed once
    mappings: int = 0  # in its last window
    read_ns: int = 0  # how long it took to read its last window,
    clear_ns: int = 0  # and to clear the accessed bits after it

    def expected_clear_ns(self, read_ns: int) -> float:
        """Return the estimated time of clearing, of a window with this time of reading."""
        return self.clear_ns * max(1.0, read_ns / self.read_ns) if self.read_ns else self.clear_ns


class ReferencedTracker:
    """Counts accessed bytes by VMA. Works on processes of the same user; root may watch everybody's."""

    name = NAME
    rearm = FULL
    wss, pages = Capability("wss", True), Capability("pages", False, NO_PAGES, "use the pagetable tracker (root)")
    pauses = clears = True
    counts_users = False
    page_ns = 150  # AMD EPYC: reading and clearing take half of it each
    resume_by_ns: int | None = None
    reads_running = True  # a pause makes a window exact; where the pause is refused, the window says so

    def __init__(self, flush: str = "auto") -> None:
        """Choose the flush; ``auto`` proves it on a child process.

        Raises:
            TrackerError: this tracker has no such flush, or it does not flush here.
        """
        self.running: set[int] = set()
        self._tracked: dict[int, _Tracked] = {}
        self._flush = SoftDirtyFlush(NAME, flush, prove_flush)
        self.flush = self._flush.choice

    def notice(self) -> str:
        """Return, once, what the flush costs, or what its absence does."""
        return self._flush.notice()

    def set_interval(self, interval_ns: int | None) -> None:
        """Do nothing: windows may be of any length."""

    def prepare(self, pid: int) -> int:
        """Return 0: nothing can be done before the first pause."""
        return 0

    def is_prepared(self, pid: int) -> bool:
        """Return True: there is nothing to prepare."""
        return True

    def start(self, pid: int, vmas: tuple[Vma, ...]) -> None:
        """Clear all accessed bits, so that the first window reports accesses and not residency.

        Raises:
            ProcessLookupError: the process ended.
            PermissionError: the process belongs to someone else and this is not root.
            ClearingTooLong: see there.
        """
        self.forget(pid)
        self._tracked[pid] = tracked = _open(pid)
        began_ns = time.monotonic_ns()
        os.write(tracked.files.clear_refs, b"1")
        finish = partial(self._finish_start, tracked, began_ns)
        if tracker.is_late(self.resume_by_ns, time.monotonic_ns() - began_ns):  # the flush may take as long
            raise ClearingTooLong(finish)
        finish()

    def _finish_start(self, tracked: _Tracked, began_ns: int) -> PageWindow:
        """Flush; accesses between clearing and this through a stale translation belong to no window."""
        self._flush_translations(tracked)
        tracked.begun, tracked.clear_ns = True, time.monotonic_ns() - began_ns
        return tracker.first_window()

    def count_mappings(self, pid: int) -> int | None:
        """Count the mappings of a process. Raises ProcessLookupError, PermissionError and TooManyMappings."""
        tracked = self._tracked.get(pid)
        return count_mappings(pid, tracked.mappings if tracked and tracked.mappings else None)

    def start_round(self, processes: int) -> None:
        """Do nothing: smaps shows no page frames, so a page that processes share counts once for each of them."""

    def window(self, pid: int, vmas: tuple[Vma, ...], *, want_resident: bool) -> PageWindow:
        """Read the referenced bytes, clear and flush. The process should be paused during this call.

        Raises:
            ProcessLookupError: the process ended.
            TrackerError: its smaps cannot be read, or not in time (ReadingTooLong, ClearingTooLong).
            TooManyMappings: see there.
        """
        tracked = self._tracked.get(pid)
        if tracked is None or not tracked.begun:
            self.start(pid, vmas)
            return tracker.first_window()
        start_ns = time.monotonic_ns()
        identity = tracker.identity(pid)
        text = self._read(tracked) if identity == tracked.files.identity else b""
        if not text:  # a new address space starts without accessed bits: those that are set date from after the exec
            self.forget(pid)
            self._tracked[pid] = new = _open(pid)
            new.generation, new.begun, tracked = tracked.generation + 1, True, new
            text = self._read(tracked)
            if not text:
                raise ProcessLookupError(f"process {pid} ended")
        read_ns = time.monotonic_ns()
        finish = partial(self._finish, tracked, text, start_ns, read_ns, want_resident)
        if tracker.is_late(self.resume_by_ns, tracked.expected_clear_ns(read_ns - start_ns)):
            raise ClearingTooLong(finish)
        return finish()

    def _read(self, tracked: _Tracked) -> bytes:
        """Return the text of smaps. Raises ReadingTooLong and TooManyMappings."""
        tracked.mappings = 0

        def count(more: int) -> None:
            tracked.mappings += more
            if tracked.mappings > MOST_MAPPINGS:
                raise TooManyMappings
            if tracker.is_late(self.resume_by_ns):
                raise ReadingTooLong

        return _read(tracked.files.source, count)

    def _finish(self, tracked: _Tracked, text: bytes, start_ns: int, read_ns: int, want_resident: bool) -> PageWindow:
        """Clear the accessed bits that were read, and return the window."""
        clear_ns = time.monotonic_ns()
        self._clear(tracked)
        cleared_ns = time.monotonic_ns()
        if text.count(b"\nReferenced:") != tracked.mappings:
            raise TrackerError("smaps has a form that this memtui does not know")
        tracked.read_ns, tracked.clear_ns = read_ns - start_ns, max(cleared_ns - clear_ns, tracked.clear_ns // 2)
        return PageWindow(
            None,
            flush=self.flush,
            rearm=FULL,
            generation=tracked.generation,
            walk_ns=read_ns - start_ns,
            rearm_ns=cleared_ns - clear_ns,
            clear_gap_ns=cleared_ns - start_ns,
            maps=partial(maps_in, text),
            vma_wss=partial(sizes_by_vma, text, _REFERENCED),
            vma_rss=partial(sizes_by_vma, text, _RSS, uncounted=()) if want_resident else None,
            status=Status.APPROXIMATE if self._flush.doubt else Status.OK,
            reason=self._flush.doubt,
        )

    def _clear(self, tracked: _Tracked) -> None:
        # In this order no access is lost when the target runs: an access between the two through a stale translation
        # belongs to the old window. The other way round, its new translations would be stale at once.
        os.write(tracked.files.clear_refs, b"1")
        self._flush_translations(tracked)

    def _flush_translations(self, tracked: _Tracked) -> None:
        if self.flush == SOFT_DIRTY:
            os.write(tracked.files.clear_refs, b"4")

    def forget(self, pid: int) -> None:
        """Release the state of a process that ended."""
        tracked = self._tracked.pop(pid, None)
        if tracked:
            tracked.files.close()

    def close(self) -> None:
        """Release everything."""
        for pid in tuple(self._tracked):
            self.forget(pid)


def sizes_by_vma(text: bytes, what: re.Pattern[bytes], uncounted: tuple[bytes, ...] = _UNCOUNTED) -> VmaSizes:
    """Return (start, bytes) of the VMAs of an smaps text without zeros; bytes are None where the kernel counts none."""
    ends = _END.findall(text)
    starts = [text.partition(b"-")[0], *(line.partition(b"-")[0] for _, line in ends[:-1])]
    sizes: list[tuple[int, int | None]] = []
    for start, (flags, _), size in zip(starts, ends, what.findall(text), strict=True):
        if uncounted and any(flag in flags for flag in uncounted):
            sizes.append((int(start, 16), None))
        elif size != b"0":
            sizes.append((int(start, 16), int(size) << 10))
    return tuple(sizes)


def maps_in(text: bytes) -> bytes:
    """Return the text of maps that an smaps text holds: its first line and those between two VMAs."""
    return b"\n".join((text.partition(b"\n")[0], *(line for _, line in _END.findall(text))))


def _open(pid: int) -> _Tracked:
    """Raise ProcessLookupError and PermissionError."""
    return _Tracked(ProcessFiles.open(pid, "smaps"))


def _read(smaps: int, check: Callable[[int], None] = lambda _vmas: None) -> bytes:
    """Return the whole text of smaps; empty when the address space is gone.

    ``check`` is told how many more VMAs were read, and may raise an error.
    """
    os.lseek(smaps, 0, os.SEEK_SET)
    parts = []
    while part := os.read(smaps, 1 << 18):  # the kernel gives some VMAs at once
        parts.append(part)
        check(part.count(b"\nVmFlags:"))
    return b"".join(parts)


# -- the proof ---------------------------------------------------------------------------------------------------------

_PROOF_PAGES, _PROOF_WINDOWS, _PROOF_ATTEMPTS = 64, 6, 3


def prove() -> Capability:
    """Prove this tracker on 64 pages of this process: half of them are accessed, and exactly those must be seen.

    Never raises; the reason says in plain words what is missing.
    """
    if not Path("/proc/self/smaps").exists() or not Path("/proc/self/clear_refs").exists():
        lacks = "/proc/PID/smaps or /proc/PID/clear_refs is missing"
        return Capability(NAME, False, lacks, "a kernel with CONFIG_PROC_PAGE_MONITOR")
    try:
        for _ in range(_PROOF_ATTEMPTS):  # something else may clear a bit in between; a wrong tracker fails every time
            if not (reason := _self_test()):
                break
    except (OSError, TrackerError) as error:
        reason = str(error)
    return Capability(NAME, not reason, reason, "")


def _self_test() -> str:
    """Return an empty text when as much is referenced as was accessed; otherwise what was seen."""
    with own_pages(_PROOF_PAGES) as mine:
        smaps = os.open("/proc/self/smaps", os.O_RDONLY | os.O_CLOEXEC)
        try:
            mine.order(b"1", b"4")  # this process's own translations are stale, too
            mine.touch(range(0, _PROOF_PAGES, 2))
            text = _read(smaps)
        finally:
            os.close(smaps)
    return _judge(text, mine.address)


def _judge(text: bytes, address: int) -> str:
    """Return an empty text when exactly half of the proof's pages are referenced."""
    seen = (dict(sizes_by_vma(text, _REFERENCED)).get(address) or 0) // PAGE_BYTES
    wanted = _PROOF_PAGES // 2
    return "" if seen == wanted else misjudged(wanted, seen)


def prove_flush() -> Capability:
    """Prove that writing 4 flushes here: windows of 3 ms have to see all 32 pages over which a child loops."""
    try:
        with looping_child(_PROOF_PAGES, step=2) as child:
            for _ in range(_PROOF_ATTEMPTS):
                if not (reason := _try_flush(child)):
                    break
    except (OSError, ValueError, TrackerError) as error:
        reason = f"the proof failed: {error}"
    return Capability(SOFT_DIRTY, not reason, reason)


def _try_flush(child: LoopingChild) -> str:
    """Take some windows of the child; return an empty text when each saw exactly the pages that the child accesses."""
    files = ProcessFiles.open(child.pid, "smaps")
    try:
        for window in range(_PROOF_WINDOWS + 1):
            with child.stopped():
                if window and (reason := _judge(_read(files.source), child.address)):
                    return reason
                os.write(files.clear_refs, b"1")
                os.write(files.clear_refs, b"4")
            child.let_run()
        return ""
    finally:
        files.close()
