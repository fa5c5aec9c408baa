"""The process that talks to the NVIDIA driver, so that a call that hangs holds nobody but itself.

Run as ``python -m memtui.probes.gpu.nvml_worker PARENT``, PARENT being the pid that starts it. It writes
to standard output (``nvml_messages``): a line about the driver, then one every half second. It ends when standard input
does, or when its parent dies. It needs no root: under sudo it becomes the invoking user.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

from memtui.core.privilege import become, invoker
from memtui.probes.gpu.nvml import NO_GPU, NvmlProbe
from memtui.probes.gpu.nvml_messages import DriverReport, GpuReport, to_line

EVERY_S = 0.5
_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


def main() -> int:
    """Return when there is nobody to tell, or no GPU to tell of."""
    os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))  # the sampler's haste is not ours
    become(invoker())
    # After the change of user, which resets it. Should the parent have died before, nobody would send it any more.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        return 0
    probe = NvmlProbe()
    (capability,) = probe.capabilities()
    _send(DriverReport(capability))
    while True:
        readings = probe.read(time.monotonic_ns())
        _send(GpuReport(tuple(readings), tuple(probe.holdings())))
        if readings[0].device == NO_GPU:
            return 0  # and none will come while this process lives
        if select.select([0], [], [], EVERY_S)[0]:
            return 0


def _send(report: DriverReport | GpuReport) -> None:
    os.write(1, to_line(report))


if __name__ == "__main__":
    sys.exit(main())
