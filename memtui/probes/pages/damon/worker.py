"""The process that owns the kernel's DAMON interface and releases it, whatever happens to the sampler.

The sampler runs it as ``python -m memtui.probes.pages.damon.worker``. DAMON executes a command when the interval ends,
and until then the process that wrote it is blocked and cannot even die; so the sampler must not write it. Standard
input takes one JSON line for each change of what is to be watched. At its end, also when the sampler died, this process
restores the interface and ends. Standard output has a line that the interface is taken, or why not; then a line for
each interval with the regions that were accessed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memtui.core import capabilities, single_threaded  # noqa: F401 (for its effect, before numpy comes)
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import Vma
from memtui.probes.pages import page_frames
from memtui.probes.pages.damon import regions as damon_regions
from memtui.probes.pages.damon.messages import (
    Accessed,
    Forget,
    Order,
    Pace,
    Ready,
    Report,
    Trouble,
    Watch,
    parse_order,
    to_line,
)
from memtui.probes.pages.damon.sysfs import Interface, Refused, Taken, Target
from memtui.probes.pages.pagetable.lru_drain import LruDrain
from memtui.probes.proc_maps import parse_maps, read_maps

NAME = "damon"
LEAST_NS = 100_000_000  # the kernel answers a command after 100 ms at the earliest
REGIONS, LEAST_REGIONS = 512, 16  # of all processes together, and of each
_POLL_NS = 100_000_000  # the kernel notices this late that a command is done
_EARLY_NS = 100_000_000  # a command that comes after the end of the interval waits for the end of the next one
_SETTLE_S = 0.02  # the orders for the processes of a tree come one by one
_AFTER_S = 0.01  # until DAMON has cleared the accessed bits of its pages, which a flush has to follow
_ALIKE = 0.01  # smaller changes of resident memory do not count
_ALIKE_PAGES = 64
_ANEW_WINDOWS, _ANEW_NS, _ANEW_COST = 5, 1_000_000_000, 20  # regions are not cut anew more often than that
_LINE_BYTES = 1 << 16


@dataclass(slots=True)
class _Watched:
    """One process, and its state when its regions were cut."""

    pid: int
    serial: int
    clear_refs: int
    maps: bytes
    resident_pages: int
    regions: list[tuple[int, int]]

    def has_changed(self) -> bool:
        """Whether other regions would fit better. Raises OSError when the process has ended."""
        now = _resident_pages(self.pid)
        if abs(now - self.resident_pages) > max(_ALIKE_PAGES, _ALIKE * self.resident_pages):
            return True
        return read_maps(self.pid) != self.maps


class Worker:
    """Executes the orders of the sampler."""

    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self._interval_ns: int | None = None  # without one nothing is watched, for now
        self._flush_wanted = False
        self._requested: dict[int, int] = {}  # pid -> serial number of the order
        self._watched: list[_Watched] = []
        self._runs = False
        self._due_ns: int | None = None
        self._others = self._pace = False  # orders that are not executed yet: other processes, another pace
        self._anew_due_ns = self._join_due_ns = 0
        self._rest = b""
        self._lru_drain = LruDrain()
        self._own = mmap.mmap(-1, PAGE_BYTES)  # a page that DAMON always lists, which shows that it did its check
        self._own[0] = 1

    def run(self) -> None:
        """Execute orders until the input ends. Raises Taken."""
        while True:
            left_s = None if self._due_ns is None else max(0.0, (self._due_ns - time.monotonic_ns()) / 1e9)
            if select.select([0], [], [], left_s)[0]:
                if not self._receive():
                    return
                # Processes that come and go must not prevent every interval from ending.
                if self._pace or (self._others and (not self._runs or time.monotonic_ns() >= self._join_due_ns)):
                    self._restart()
            elif self._runs:
                self._read_out()
            else:
                self._restart()

    def _receive(self) -> bool:
        """Read and execute orders; False at the end of the input."""
        while True:
            chunk = os.read(0, _LINE_BYTES)
            if not chunk:
                return False
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self._obey(parse_order(line))
            if not select.select([0], [], [], _SETTLE_S)[0]:
                return True

    def _obey(self, order: Order) -> None:
        match order:
            case Watch(pid, serial):
                self._requested[pid], self._others = serial, True
            case Forget(pid):
                self._requested.pop(pid, None)  # watching a process that ended does no harm
            case Pace(interval_ns, flush):
                self._interval_ns, self._flush_wanted, self._pace = interval_ns, flush, True

    def _restart(self) -> None:
        """Cut the memory into new regions and start watching them."""
        began_ns = time.monotonic_ns()
        self._interface.stop()
        self._runs, self._due_ns, self._others, self._pace = False, None, False, False
        self._let_go()
        if self._interval_ns is None:
            return
        self._cut()
        if not self._watched:
            return
        interval_ns = max(self._interval_ns, LEAST_NS)
        try:
            self._interface.start(self._targets(), interval_ns)
        except OSError as error:  # a process that ended meanwhile is left out the next time
            send(Trouble(f"DAMON does not start: {error}"))
            self._due_ns = time.monotonic_ns() + interval_ns
            return
        self._runs = True
        now_ns = time.monotonic_ns()
        self._flush()
        self._join_due_ns = now_ns + interval_ns
        self._anew_due_ns = now_ns + max(_ANEW_WINDOWS * interval_ns, _ANEW_NS, _ANEW_COST * (now_ns - began_ns))
        self._plan(now_ns + _POLL_NS)

    def _cut(self) -> None:
        present: list[tuple[_Watched, damon_regions.Runs]] = []
        for pid, serial in self._requested.items():
            try:
                clear_refs = os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                watched = _Watched(pid, serial, clear_refs, read_maps(pid), _resident_pages(pid), [])
                runs = present_runs(pid, parse_maps(watched.maps))
            except OSError:
                os.close(clear_refs)
                continue
            present.append((watched, runs))
            self._watched.append(watched)
        sizes = [damon_regions.page_count(runs) for _, runs in present]
        for (watched, runs), count in zip(present, damon_regions.shares(sizes, REGIONS, LEAST_REGIONS), strict=True):
            watched.regions = damon_regions.regions_of(runs, count)
        for watched in self._watched:
            if not watched.regions:
                os.close(watched.clear_refs)
        self._watched = [w for w in self._watched if w.regions]

    def _targets(self) -> list[Target]:
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._own))
        own = Target(os.getpid(), [(address, address + PAGE_BYTES)])
        return [own, *(Target(w.pid, w.regions) for w in self._watched)]

    def _read_out(self) -> None:
        """Wait for the end of the interval and report the accessed regions."""
        try:
            touched = self._interface.read_out(1 + len(self._watched))
        except OSError as error:
            send(Trouble(f"DAMON ended: {error}"))
            self._runs, self._due_ns = False, time.monotonic_ns() + LEAST_NS
            return
        now_ns = time.monotonic_ns()
        self._flush()
        if touched is not None:
            seen = zip(self._watched, touched[1:], strict=True)
            send(Accessed(now_ns, [(w.pid, w.serial, regions) for w, regions in seen]))
        self._plan(now_ns)
        if self._others or (now_ns >= self._anew_due_ns and self._has_changed()):
            self._restart()

    def _plan(self, end_ns: int) -> None:
        """Schedule the next command shortly before the end of the interval that started at about ``end_ns``.

        The kernel does not stop DAMON while a command waits.
        """
        interval_ns = max(self._interval_ns or 0, LEAST_NS)
        slack_ns = _POLL_NS + _EARLY_NS + interval_ns // 50
        self._due_ns = end_ns + max(interval_ns - slack_ns, min(interval_ns // 4, _POLL_NS // 2))

    def _has_changed(self) -> bool:
        try:
            return any(watched.has_changed() for watched in self._watched)
        except OSError:
            return True

    def _flush(self) -> None:
        """Flush the TLB, which DAMON itself does not: otherwise accesses would set no accessed bit."""
        self._lru_drain.drain()  # DAMON overlooks pages that are in no list yet
        if self._flush_wanted:
            time.sleep(_AFTER_S)
            for watched in self._watched:
                try:
                    os.write(watched.clear_refs, b"4")
                except OSError:
                    pass  # it ended

    def _let_go(self) -> None:
        for watched in self._watched:
            os.close(watched.clear_refs)
        self._watched = []


def present_runs(pid: int, vmas: Sequence[Vma]) -> damon_regions.Runs:
    """Return the runs of present pages of a process. Raises OSError."""
    if not vmas:  # it ended, or is a thread of the kernel
        raise ProcessLookupError(f"process {pid} has no memory")
    pagemap = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return page_frames.present_runs(pagemap, vmas[0].start, vmas[-1].end)
    finally:
        os.close(pagemap)


def _resident_pages(pid: int) -> int:
    """Raise OSError."""
    return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])


def send(report: Report) -> None:
    """Write a report to the sampler."""
    line = to_line(report)
    while line:
        line = line[os.write(1, line) :]


def main() -> int:
    """Return 0 after an orderly end; 1 when DAMON cannot be used, or another program took it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # this process ends with its input
        signal.signal(number, signal.SIG_IGN)
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # not the high priority of the sampler
        capabilities.keep(capabilities.sampler_needs(NAME))
    interface = Interface()
    try:
        original = interface.take()
    except (Refused, OSError) as error:
        send(Trouble(str(error)))
        return 1
    try:
        send(Ready(original))
        Worker(interface).run()
    except Taken as error:
        send(Trouble(str(error)))
        return 1
    except BrokenPipeError:
        return 0  # the sampler died
    except Exception as error:
        send(Trouble(f"the process that reads DAMON failed: {type(error).__name__}: {error}"))
        raise
    finally:
        interface.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
