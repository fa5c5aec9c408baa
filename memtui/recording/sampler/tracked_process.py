"""State kept for one tracked process between its windows, and the conversion of a reading to a ProcessWindow."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from memtui.core.block_sample import FEW_BLOCKS, Estimate, estimate
from memtui.core.readings import GpuMemory, GpuUse
from memtui.core.samples import Process, ProcessWindow, Status, Vma, VmaSizes
from memtui.probes.gpu.processes import Holders
from memtui.probes.pages.fault_around import FirstMappings
from memtui.probes.pages.shared_frames import TouchedFrames
from memtui.probes.pause.pauser import NotPaused, PauseError
from memtui.probes.proc_maps import MapsParser
from memtui.probes.pss import CHANGED, Rollup
from memtui.probes.usage import Usage
from memtui.probes.window_reader import FIRST_THREAD_ENDED, Lost, Outcome, Reading, Subject

PART = "estimated from a random part of the memory, another one in each window"
APPROXIMATE = "the target ran on while its pages were read"


@dataclass(slots=True)
class TrackedProcess:
    """State of one process between its windows."""

    process: Process
    pidfd: int
    maps: bytes
    vmas: tuple[Vma, ...]
    start_ns: int  # when it was last resumed with all accessed bits cleared
    tried_ns: int  # when it was last resumed at all
    since_ns: int  # when this address space was first seen
    paused_ns: int = 0  # how long it was paused to clear its accessed bits before its first window
    table_due: bool = True
    mapping: int = 0  # the tracker's number of the address space; another one means exec
    stopped: bool = False  # by somebody else: SIGSTOP, ^Z
    trouble: str = ""  # why the last window was lost; reported once, not every window
    busy_cpus: float = 0.0  # how many CPUs it kept busy, of late
    cpu_read: tuple[int, int] | None = None  # when its CPU time was read, and what that was
    private_by_vma: VmaSizes | None = None  # what was sent last of it
    first_mappings: FirstMappings = field(default_factory=FirstMappings)
    parser: MapsParser = field(default_factory=MapsParser)

    def subject(self, sharers: tuple[Subject, ...] = ()) -> Subject:
        return Subject(self.process.pid, self.pidfd, self.process.start_ticks, self.vmas, sharers)

    def update_maps(self, maps: bytes) -> None:
        """Parse a table of VMAs, if it is a new one."""
        if maps != self.maps:
            self.maps, self.vmas, self.table_due = maps, self.parser.parse(maps), True

    def update_cpu(self, cpu_ns: int) -> None:
        """Record the CPU time of the process, and how busy it was since the last time."""
        now_ns = time.monotonic_ns()
        if self.cpu_read is not None:
            then_ns, before_ns = self.cpu_read
            self.busy_cpus = (cpu_ns - before_ns) / max(now_ns - then_ns, 1)
        self.cpu_read = now_ns, cpu_ns

    def window(
        self,
        outcome: Outcome,
        usage: Usage,
        start_ns: int,
        end_ns: int,
        lost: tuple[Status, str],
        shared: TouchedFrames | None,
        rollup: Rollup,
    ) -> ProcessWindow:
        """Return the window of an outcome.

        ``lost``: status and reason where there is no reading; ``shared``: what other processes accessed, too.
        """
        if rollup.t_ns is not None and rollup.t_ns < self.since_ns:
            rollup = Rollup(None, None, CHANGED)  # of the address space before this one
        reading = outcome if isinstance(outcome, Reading) else None
        pages, faulted_in_bytes = None, None
        if reading is not None:
            pages, faulted_in_bytes = self.first_mappings.update(reading.window, self.vmas)
        status, reason = lost
        if pages is not None:
            status, reason = Status(pages.status), pages.reason
            if status == Status.OK and pages.knows_wss and reading is not None and reading.running:
                status, reason = Status.APPROXIMATE, f"{APPROXIMATE} ({reading.running})"
        seen: Estimate | None = None
        if pages is not None and pages.sampled is not None and pages.pages is not None:
            seen = estimate(pages.pages, pages.sampled, usage.rss_bytes, pages.doubtful_bytes)
            if seen is None:
                status, reason, pages = Status.FAILED, f"{PART}, of which nothing is there", replace(pages, pages=None)
            elif status in (Status.OK, Status.APPROXIMATE):
                few = f", of {seen.blocks} blocks of 2 MiB: too few for an interval" if seen.blocks < FEW_BLOCKS else ""
                status, reason = Status.APPROXIMATE, "; ".join(filter(None, (f"{PART}{few}", reason)))
        paused_ns, first_ns, self.paused_ns = max(outcome.paused_ns, self.paused_ns), self.paused_ns, 0
        longest_ns = reading.longest_pause_ns if reading else None
        return ProcessWindow(
            process=self.process.key,
            start_ns=start_ns,
            end_ns=end_ns,
            paused_ns=paused_ns,
            longest_pause_ns=None if longest_ns is None else max(longest_ns, first_ns),
            walk_ns=pages.walk_ns if pages else None,
            rearm_ns=pages.rearm_ns if pages else None,
            clear_gap_ns=pages.clear_gap_ns if pages and reading and reading.running else None,
            flush=pages.flush if pages else "off",
            rearm=pages.rearm if pages else "off",
            status=status,
            reason=reason,
            pages=pages.pages if pages else None,
            resident=pages.resident if pages else None,
            faulted_in_bytes=faulted_in_bytes,
            wss_estimate_bytes=seen.wss_bytes if seen else None,
            wss_low_bytes=seen.low_bytes if seen else None,
            wss_high_bytes=seen.high_bytes if seen else None,
            scale=seen.scale if seen else None,
            unknown_bytes=pages.unknown_bytes if pages else None,
            rss_bytes=usage.rss_bytes,
            cpu_ns=usage.cpu_ns,
            threads=usage.threads,
            minor_faults=usage.minor_faults,
            major_faults=usage.major_faults,
            vma_wss_bytes=pages.vma_wss() if pages and pages.vma_wss else None,
            vma_rss_bytes=pages.vma_rss() if pages and pages.vma_rss else None,
            vma_shared_bytes=shared.shared_sizes(self.vmas) if shared is not None else None,
            pss_bytes=rollup.pss_bytes,
            pss_ns=rollup.t_ns,
            pss_reason=rollup.reason,
            private_bytes=rollup.private_bytes,
            swap_bytes=rollup.swap_bytes,
            vma_private_bytes=self._new_private_bytes(rollup),
        )

    def _new_private_bytes(self, rollup: Rollup) -> VmaSizes | None:
        """Return the private bytes by mapping, where they were read since they were sent last."""
        sent, self.private_by_vma = self.private_by_vma, rollup.private_by_vma or self.private_by_vma
        return rollup.private_by_vma if rollup.private_by_vma is not sent else None


def gpu_part(
    tracked: Iterable[TrackedProcess], holders: Holders | None
) -> tuple[tuple[GpuMemory, ...], tuple[GpuUse, ...]]:
    """Return what each process had allocated on the GPUs at that moment, and how busy it kept them.

    A process that did not exist yet is left out, whoever had its PID.
    """
    if holders is None:
        return (), ()
    existing = [t.process for t in tracked if t.since_ns <= holders.t_ns]
    holdings = [(process.key, holders.of(process.pid)) for process in existing]
    return (
        tuple(GpuMemory(holders.t_ns, key, h.gpu_bytes, h.status, h.reason) for key, h in holdings),
        tuple(GpuUse(holders.t_ns, key, h.gpus_used, h.use_status, h.use_reason) for key, h in holdings),
    )


def why_lost(lost: Lost) -> tuple[Status, str]:
    """Return the status and reason of a window without a reading."""
    error = lost.error
    if isinstance(error, NotPaused):
        return Status.NOT_PAUSED, str(error)
    if isinstance(error, (PauseError, PermissionError)):
        return Status.DENIED, str(error)
    if str(error) == FIRST_THREAD_ENDED:
        return Status.UNSUPPORTED, FIRST_THREAD_ENDED
    return Status.FAILED, str(error)
