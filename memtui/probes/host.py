"""The machine and its clocks."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime
from pathlib import Path

import psutil

from memtui.core.numa import NODES, read_nodes_with_memory
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
    memory_bytes = psutil.virtual_memory().total
    return Host(
        uname.nodename, uname.release, uname.machine, cpus, memory_bytes, transparent_huge_pages(), numa_nodes()
    )


def numa_nodes(nodes: Path = NODES) -> int | None:
    """Return how many NUMA nodes have memory; None where the kernel does not say."""
    try:
        return len(read_nodes_with_memory(nodes)) or None
    except (OSError, ValueError):
        return None


def transparent_huge_pages() -> str:
    """Return for which memory the kernel takes huge pages: "always", "madvise" or "never"; empty where it has none."""
    try:
        modes = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return ""
    match = re.search(r"\[(\w+)\]", modes)
    return match[1] if match else ""
