"""The machine and its clocks."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime
from pathlib import Path

import psutil

from memtui.core.samples import Clock, Host


def read_clock() -> Clock:
    """Return one moment on the monotonic and on the wall clock."""
    monotonic_ns, wall_ns = time.monotonic_ns(), time.time_ns()
    offset = datetime.fromtimestamp(wall_ns / 1e9).astimezone().utcoffset()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Clock(monotonic_ns, wall_ns, int(offset.total_seconds()) if offset else 0, boot_id)


def cpu_information(key: str) -> str:
    """Return what /proc/cpuinfo says of the first CPU under ``key``, such as ``model name``.

    Return an empty text where it says nothing.
    """
    match = re.search(rf"^{key}[ \t]*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return match[1].strip() if match else ""


def processor_name() -> str:
    """Return the kernel's name of the processor."""
    return cpu_information("model name") or os.uname().machine


def read_host() -> Host:
    """Return name, kernel and size of this machine."""
    uname = os.uname()
    cpus = len(os.sched_getaffinity(0))
    return Host(uname.nodename, uname.release, uname.machine, cpus, psutil.virtual_memory().total)
