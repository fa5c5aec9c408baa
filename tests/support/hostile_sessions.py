"""Sessions that were made to harm, and a process with little memory."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from memtui.core.page_set import PageSet
from memtui.core.readings import GpuMemory, Power, PowerReading
from memtui.core.samples import Event, Process, ProcessWindow, Vma, VmaTable, Window
from tests.support import sessions
from tests.support.sessions import DATA, HEAP, MS

MIB = 1 << 20


SAMPLES = 10


def small_stream():
    """Two processes, every table used, few pages."""
    vmas = (Vma(HEAP, HEAP + MIB, "rw-p", "[heap]"), Vma(DATA, DATA + MIB, "rw-p", "/data/x.bin"))
    yield sessions.hello()
    for key in (1, 2):
        yield Process(key, 4241 + key, 1, 777, 0, "python train.py", "target")
        yield VmaTable(key, 0, vmas)
    for sample in range(SAMPLES):
        if sample == 5:  # a growing range, and two that become one
            yield VmaTable(1, 5, (vmas[0], Vma(DATA - MIB, DATA + MIB, "rw-p", "/data/x.bin")))
        at, end = sample * 203 * MS, sample * 203 * MS + 200 * MS
        pages = PageSet.from_pages(np.concatenate(((HEAP >> 12) + np.arange(8), (DATA >> 12) + np.arange(sample, 64))))
        made = {"pages": pages, "resident": pages if sample % 5 == 0 else None, "rss_bytes": 5 * MIB, "paused_ns": MS}
        made["vma_shared_bytes"] = ((HEAP, 8 * 4096),)
        windows = tuple(ProcessWindow(key, at, end, cpu_ns=at, threads=1, **made) for key in (1, 2))
        yield Window(sample, at, end, 200 * MS, sample * MS, windows, shared_excess_bytes=8 * 4096)
        reading = PowerReading(at, "GPU 0", "board", "nvml", 300.0, 60.0 * sample, 700.0, name="H100")
        yield Power((reading,), (GpuMemory(at, 1, sample << 30), GpuMemory(at, 2, None, "failed", "stale")))
    yield Event(3, "mark", "epoch 1")
    yield Event(4, "gap", "a gap")
    from memtui.core.samples import End

    yield End(SAMPLES * 203 * MS, "target exited")


@contextmanager
def little_memory(extra_bytes: int):
    """Whoever asks for more gets a MemoryError."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + extra_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
