"""GPU readings from a process of their own, so that this process never waits for the driver."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from dataclasses import replace

from memtui.core.readings import PowerReading
from memtui.core.samples import Capability, Status
from memtui.probes.gpu.driver import GpuDriver
from memtui.probes.gpu.messages import DriverReport, GpuReport, from_line
from memtui.probes.gpu.nvml import NO_GPU, library_problem
from memtui.probes.gpu.processes import Holders, unknown

STALE_NS = 1_500_000_000  # after a report was due, until the last one does not hold any more
RESTART_NS = 30_000_000_000  # after this long without a report, a new process tries the driver again
FIRST_WORD_S = 3.0
_READ_BYTES = 1 << 16
_END_S = 0.2  # a process that is blocked in the driver does not even die when killed; the kernel ends it later


def nvidia() -> GpuDriver:
    """Return NVIDIA's driver."""
    return GpuDriver(
        source="nvml",
        worker=("memtui.probes.gpu.nvml_worker",),
        name="the NVIDIA driver",
        absent=NO_GPU,
        problem=library_problem(),
        remedy="check nvidia-smi; sudo nvidia-smi --gpu-reset, or restart the machine",
    )


class GpuProcess:
    """Starts the worker of one make of GPUs where there is a driver, and restarts it when no reports come."""

    def __init__(
        self, driver: GpuDriver | None = None, *, stale_ns: int = STALE_NS, restart_ns: int = RESTART_NS
    ) -> None:
        """Never raises."""
        self._stale_ns, self._restart_ns = stale_ns, restart_ns
        self._driver = driver or nvidia()
        self._problem = self._driver.problem
        self._capability: Capability | None = self._problem[1] if self._problem else None
        self._worker: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._latest: tuple[PowerReading, ...] = ()  # the last reading of every GPU
        self.holders: Holders | None = None  # who held GPU memory, from the last ``read``; None: nothing new
        self._pause_ns = 0  # until the next report, as the last one says
        self._final = False  # there is no GPU, so no further report will come
        self._heard_ns = self._started_ns = time.monotonic_ns()
        self._heard_wall_s = time.time()  # the same moment, on the wall clock
        if self._problem is None:
            self._start()

    def read(self, t_ns: int) -> tuple[PowerReading, ...]:
        """Return the readings that came since the last call, each with its own time.

        Without a driver, a GPU or an answer, a reading of time ``t_ns`` says why. The result is empty while there is
        nothing new. ``holders`` has the memory of the same moment.
        """
        self.holders = None
        if self._problem is not None:
            status, why = self._problem
            self.holders = Holders(t_ns, unknown(status, why.reason))
            return (replace(self._nothing(t_ns), status=status, reason=why.reason),)
        new = self._take()
        if new:
            return new
        if self._final:
            self.holders = Holders(t_ns, unknown(self._latest[0].status, self._latest[0].reason))
            return tuple(replace(reading, t_ns=t_ns) for reading in self._latest)
        now_ns = time.monotonic_ns()
        ended = "" if self._worker is None or self._worker.poll() is None else f" (status {self._worker.returncode})"
        silent_ns = now_ns - self._heard_ns
        if now_ns - max(self._heard_ns, self._started_ns) >= self._restart_ns:
            self._start()
        if silent_ns < self._pause_ns + self._stale_ns and not ended:
            return ()
        since = time.strftime("%H:%M:%S", time.localtime(self._heard_wall_s))
        why_silent = f"the GPU reader ended{ended}" if ended else f"{self._driver.name} does not answer"
        reason = f"stale since {since}: {why_silent}"
        self.holders = Holders(t_ns, unknown(Status.FAILED, reason))
        last = self._latest or (self._nothing(t_ns),)
        return tuple(
            PowerReading(t_ns, r.device, r.scope, r.source, name=r.name, status=Status.FAILED, reason=reason)
            for r in last
        )

    def capabilities(self) -> list[Capability]:
        """Return one entry, such as ``nvml``. Waits for the driver, but for 3 s at most: it may hang."""
        deadline = time.monotonic() + FIRST_WORD_S
        while self._capability is None and (left := deadline - time.monotonic()) > 0:
            if self._worker is None or self._worker.stdout is None or self._worker.poll() is not None:
                break
            select.select([self._worker.stdout], [], [], left)
            self._take()
        reason = f"{self._driver.name} did not answer in {FIRST_WORD_S:.0f} s"
        silent = Capability(self._driver.source, False, reason, self._driver.remedy)
        return [self._capability or silent]

    def close(self) -> None:
        """End the process."""
        self._end()
        if self._problem is None:
            self._problem = Status.FAILED, Capability(self._driver.source, False, "the probe is closed", "")

    def _nothing(self, t_ns: int) -> PowerReading:
        return PowerReading(t_ns, self._driver.absent, "board", self._driver.source)

    def _start(self) -> None:
        self._end()
        self._buffer, self._started_ns = b"", time.monotonic_ns()
        module, *arguments = self._driver.worker
        argv = [sys.executable, "-P", "-m", module, str(os.getpid()), *arguments]
        pipe = subprocess.PIPE
        try:
            self._worker = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        except OSError:
            return  # no memory, or too many processes: ``read`` reports the silence, and tries again later
        assert self._worker.stdout
        os.set_blocking(self._worker.stdout.fileno(), False)

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.kill()
        for stream in (worker.stdin, worker.stdout):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(_END_S)

    def _take(self) -> tuple[PowerReading, ...]:
        """Read the reports in the pipe, and return their readings."""
        if self._worker is None or self._worker.stdout is None:
            return ()
        try:
            chunk = os.read(self._worker.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return ()
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        new: list[PowerReading] = []
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, KeyError):  # a part of a line, of a process that was killed
                new += self._record(from_line(line))
        return tuple(new)

    def _record(self, report: DriverReport | GpuReport) -> tuple[PowerReading, ...]:
        self._heard_ns, self._heard_wall_s = time.monotonic_ns(), time.time()
        if isinstance(report, DriverReport):
            self._capability = report.capability
            return ()
        self.holders = Holders(report.readings[0].t_ns, report.holdings)
        self._latest, self._pause_ns = report.readings, int(report.pause_s * 1e9)
        self._final = self._latest[0].device == self._driver.absent
        return self._latest
