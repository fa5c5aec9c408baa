"""The damon tracker: an estimate of working sets by the kernel's DAMON, without pausing the target.

It is used only on request. The kernel has one interface to DAMON for the whole machine (``sysfs.py``), which a process
of its own owns (``worker.py``). That process reports the regions of which one page, drawn at random, was accessed in
an interval; their sizes add up to the working set.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass

from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import Capability, Status, Vma, VmaSizes
from memtui.probes.pages import tracker
from memtui.probes.pages.damon.messages import (
    Accessed,
    Forget,
    Order,
    Pace,
    Ready,
    Report,
    Trouble,
    Watch,
    parse_report,
    to_line,
)
from memtui.probes.pages.damon.regions import Regions, sizes_by_vma
from memtui.probes.pages.damon.sysfs import Interface, Refused, Target, Tree
from memtui.probes.pages.damon.worker import LEAST_NS, NAME, present_runs
from memtui.probes.pages.pagetable.lru_drain import LruDrain
from memtui.probes.pages.referenced import prove_flush
from memtui.probes.pages.self_test import misjudged, own_pages
from memtui.probes.pages.soft_dirty import SoftDirtyFlush
from memtui.probes.pages.tlb_flush import OFF
from memtui.probes.pages.tracker import PageWindow, TrackerError

ESTIMATE = "an estimate: DAMON looked at one page, drawn at random, in each of some hundred parts of resident memory"
ONLY_ON_REQUEST = "an estimate, of ranges and not of pages; only when asked for"
NO_PAGES = "the damon tracker estimates touched bytes by range and knows no single pages"
FIRST = "DAMON has not looked at this process for a whole interval yet"
WORKER_ENDED = "the process that reads DAMON ended"
_FIRST_WORD_S, _END_S = 120.0, 3.0
_READ_BYTES = 1 << 20
_STALE_INTERVALS, _STALE_NS = 3, 2_000_000_000


@dataclass(slots=True)
class _Tracked:
    """The state of one process."""

    identity: tuple[bytes, ...]
    serial: int  # of the order to watch it: reports about an earlier process with this pid have another one
    generation: int
    touched: Regions = ()
    t_ns: int | None = None  # when they were accessed; None: not reported yet


class DamonTracker:
    """Estimates accessed bytes by VMA; needs root, and that no other program uses DAMON."""

    name = NAME
    rearm = OFF
    wss, pages = Capability("wss", True), Capability("pages", False, NO_PAGES, "use the pagetable tracker")
    resume_by_ns: int | None = None
    reads_running = True
    pauses = clears = False  # the kernel clears some hundred bits a window
    counts_users = False
    page_ns = 0

    def __init__(self, flush: str = "auto") -> None:
        """Take the interface.

        Raises:
            TrackerError: there is no such flush, or DAMON cannot be used.
        """
        self._flush = SoftDirtyFlush(NAME, flush, prove_flush)
        self.flush = self._flush.choice
        self.running: set[int] = set()
        self._tracked: dict[int, _Tracked] = {}
        self._original: Tree | None = None
        self._serial = 0
        self._interval_ns: int | None = None
        self._notices = [f"{NAME}: {ESTIMATE}"]
        self._trouble, self._ended = "", False
        self._buffer = b""
        pipe = subprocess.PIPE
        self._worker = subprocess.Popen(worker_command(), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        assert self._worker.stdin
        assert self._worker.stdout
        self._orders, self._answers = self._worker.stdin.fileno(), self._worker.stdout.fileno()
        os.set_blocking(self._answers, False)
        self._original = self._first_report()

    def _first_report(self) -> Tree:
        """Return the interface's settings before the worker took it. Raises TrackerError when it could not."""
        end = time.monotonic() + _FIRST_WORD_S
        while not self._ended and (left := end - time.monotonic()) > 0:
            select.select([self._answers], [], [], left)
            for report in self._reports():
                if isinstance(report, Ready):
                    return report.found
                self._trouble = report.error if isinstance(report, Trouble) else ""
        self.close()
        raise TrackerError(self._trouble or f"{WORKER_ENDED} before it began")

    def notice(self) -> str:
        """Return each notice once: that this is an estimate, errors, and what the flush costs or its absence does."""
        if self._notices:
            return self._notices.pop(0)
        return self._flush.notice()

    def set_interval(self, interval_ns: int | None) -> None:
        """Use windows of this length from now on. DAMON's own interval is 100 ms at least."""
        if interval_ns is not None and interval_ns < LEAST_NS:
            self._notices.append(f"DAMON looks over {LEAST_NS / 1e9:g} s at least: shorter windows repeat what it saw")
        self._interval_ns = interval_ns
        self._send(Pace(interval_ns, self.flush != OFF))

    def prepare(self, pid: int) -> int:
        """Return 0: nothing can be done before the first pause."""
        return 0

    def is_prepared(self, pid: int) -> bool:
        """Return True: there is nothing to prepare."""
        return True

    def start(self, pid: int, vmas: tuple[Vma, ...]) -> None:
        """Start watching a process. Raises ProcessLookupError."""
        self._watch(pid, tracker.identity(pid), 0)

    def count_mappings(self, pid: int) -> int | None:
        """Return None: mappings are not counted before they are read."""

    def start_round(self, processes: int) -> None:
        """Do nothing: regions have no page frames, so memory that processes share counts once for each of them."""

    def window(self, pid: int, vmas: tuple[Vma, ...], *, want_resident: bool) -> PageWindow:
        """Return the result of DAMON's last interval. Raises ProcessLookupError and TrackerError."""
        identity = tracker.identity(pid)
        tracked = self._tracked.get(pid)
        if tracked is None:
            tracked = self._watch(pid, identity, 0)
        elif identity != tracked.identity:
            tracked = self._watch(pid, identity, tracked.generation + 1)
        self._take()
        rss = functools.partial(_resident, pid, vmas) if want_resident else None
        why = FIRST if tracked.t_ns is None else self._stale(tracked.t_ns)
        if why:
            why = self._trouble or why
            return PageWindow(
                None, flush=self.flush, generation=tracked.generation, status=Status.FAILED, reason=why, vma_rss=rss
            )
        return PageWindow(
            None,
            flush=self.flush,
            generation=tracked.generation,
            status=Status.APPROXIMATE,
            reason=ESTIMATE,
            vma_wss=functools.partial(sizes_by_vma, tracked.touched, vmas),
            vma_rss=rss,
        )

    def _stale(self, t_ns: int) -> str:
        """Return why a result of that time is too old; an empty text when it is not."""
        age_ns = time.monotonic_ns() - t_ns
        if age_ns <= _STALE_INTERVALS * (self._interval_ns or 0) + _STALE_NS:
            return ""
        return "DAMON has been silent for more than three intervals"

    def _take(self) -> None:
        """Process the reports of the worker."""
        for report in self._reports():
            self._trouble = report.error if isinstance(report, Trouble) else ""
            if isinstance(report, Accessed):
                self._record(report)
        if self._ended:
            self._trouble = self._trouble or WORKER_ENDED

    def _record(self, report: Accessed) -> None:
        for pid, serial, regions in report.touched:
            tracked = self._tracked.get(pid)
            if tracked is not None and tracked.serial == serial:
                tracked.touched, tracked.t_ns = regions, report.t_ns

    def _reports(self) -> list[Report]:
        while not self._ended:
            try:
                chunk = os.read(self._answers, _READ_BYTES)
            except BlockingIOError:
                break
            self._ended = not chunk
            self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        return [parse_report(line) for line in lines]

    def _watch(self, pid: int, identity: tuple[bytes, ...], generation: int) -> _Tracked:
        self._serial += 1
        self._tracked[pid] = tracked = _Tracked(identity, self._serial, generation)
        self._send(Watch(pid, self._serial))
        return tracked

    def _send(self, order: Order) -> None:
        with contextlib.suppress(BrokenPipeError):  # the next windows say that the worker ended
            os.write(self._orders, to_line(order))

    def forget(self, pid: int) -> None:
        """Stop watching a process."""
        if self._tracked.pop(pid, None) is not None:
            self._send(Forget(pid))

    def close(self) -> None:
        """Have the worker release DAMON; where it was killed, release DAMON here."""
        for stream in (self._worker.stdin, self._worker.stdout):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._worker.wait(_END_S)
            if self._worker.returncode < 0 and self._original is not None:
                with contextlib.suppress(OSError, Refused):
                    Interface().release(self._original)


def worker_command() -> list[str]:
    """Return the worker's command. As for the sampler itself, no file of the user decides what root runs."""
    return [sys.executable, "-I" if sys.flags.isolated else "-P", "-m", "memtui.probes.pages.damon.worker"]


def _resident(pid: int, vmas: tuple[Vma, ...]) -> VmaSizes:
    """Return (start, resident bytes) of each VMA."""
    try:
        runs = present_runs(pid, vmas)
    except OSError:
        return ()
    return sizes_by_vma((runs * PAGE_BYTES).tolist(), vmas)


# -- the proof ---------------------------------------------------------------------------------------------------------

_PROOF_PAGES = 64
_PROOF_NS = (200_000_000, 400_000_000, 1_600_000_000)


def prove() -> Capability:
    """Prove DAMON on 64 pages of this process: half of them are accessed, and exactly those must be seen.

    Never raises; the reason says in plain words what is missing.
    """
    interface = Interface()
    reason = ""
    try:
        interface.take()
        try:
            for interval_ns in _PROOF_NS:  # a slow machine needs longer
                if not (reason := _self_test(interface, interval_ns)):
                    break
        finally:
            interface.release()
    except Refused as refused:
        return Capability(NAME, False, refused.reason, refused.remedy)
    except OSError as error:
        reason = f"the kernel refuses: {error}"
    return Capability(NAME, not reason, reason or ONLY_ON_REQUEST)


def _self_test(interface: Interface, interval_ns: int) -> str:
    """Return an empty text when exactly the accessed pages of this process are seen; otherwise what was seen."""
    touched = list(range(0, _PROOF_PAGES, 2))
    with own_pages(_PROOF_PAGES + 1) as mine:
        starts = [mine.address + number * PAGE_BYTES for number in range(_PROOF_PAGES + 1)]
        pages = [(start, start + PAGE_BYTES) for start in starts]
        lru_drain = LruDrain()
        lru_drain.drain()  # DAMON overlooks pages that are in no list yet
        lru_drain.close()
        pid = os.getpid()
        interface.start([Target(pid, pages[-1:]), Target(pid, pages[:-1])], interval_ns)
        end_ns = time.monotonic_ns() + interval_ns // 2
        try:
            while time.monotonic_ns() < end_ns:  # until DAMON has certainly cleared the accessed bits
                mine.order(b"4")  # this process's own translations are stale, too
                mine.touch(touched)
                time.sleep(interval_ns / 40e9)
            regions = interface.read_out(2)
        finally:
            interface.stop()
    seen = [(start - mine.address) // PAGE_BYTES for start, _ in regions[1]] if regions else []
    return "" if seen == touched else misjudged(len(touched), len(seen))
