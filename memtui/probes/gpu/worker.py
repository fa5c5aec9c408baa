"""The process that calls the driver of GPUs, so that a call that hangs blocks no other process.

It runs as a module of its make, such as ``python -m memtui.probes.gpu.nvml_worker PARENT``, where PARENT is the pid of
the process that starts it. It writes to standard output (``messages``) a line about the driver, then one every half
second, or more seldom where the driver takes much CPU time: that of an H200 takes 4 ms for the energy and 2 ms for the
use by process. It ends at the end of standard input, or when its parent dies. It needs no root: under sudo it becomes
the invoking user.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from memtui.core.privilege import become, invoker
from memtui.core.readings import PowerReading
from memtui.core.samples import Capability
from memtui.probes.gpu.messages import DriverReport, GpuReport, to_line
from memtui.probes.gpu.processes import Holding

EVERY_S, SELDOM_S = 0.5, 3.0  # the shortest and the longest time between two readings
SHARE = 0.005  # of a CPU, which readings may take
_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


class GpuProbe(Protocol):
    """Reads the GPUs of one make; the methods are those of ``NvmlProbe``."""

    def read(self, t_ns: int) -> tuple[PowerReading, ...]: ...

    def holdings(self) -> Sequence[Holding]: ...

    def capabilities(self) -> Sequence[Capability]: ...


def serve(create: Callable[[], GpuProbe], absent: str) -> int:
    """Read GPUs until the end of the input, or until the first reading is of the device ``absent``."""
    os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))  # not the sampler's high priority
    become(invoker())
    # After the change of user, which resets this setting. A parent that died before it sends no signal.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        return 0
    probe = create()
    (capability,) = probe.capabilities()
    _send(DriverReport(capability))
    while True:
        start_s = time.process_time()
        readings = probe.read(time.monotonic_ns())
        holdings = tuple(probe.holdings())
        pause_s = pause_after(time.process_time() - start_s)
        _send(GpuReport(tuple(readings), holdings, pause_s))
        if readings[0].device == absent:
            return 0  # no GPU will appear while this process runs
        if select.select([0], [], [], pause_s)[0]:
            return 0


def pause_after(cpu_s: float) -> float:
    """Return the seconds until the next reading after one that took ``cpu_s`` seconds of CPU time."""
    return min(max(EVERY_S, cpu_s / SHARE), SELDOM_S)


def _send(report: DriverReport | GpuReport) -> None:
    os.write(1, to_line(report))
