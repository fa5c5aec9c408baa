"""Measures how long a page takes to come back from swap or from a file: ``memtui doctor --measure``.

Pages of this process alone are evicted, and a few of them are touched again, in random order and further apart than the
kernel reads ahead around a fault. So every touch that is timed reads from the device, and the time is that of an access
that nobody foresaw.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import resource
import tempfile
import time
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.core.fault_latency import FILE, SWAP, FaultLatencies, FaultLatency
from memtui.core.os_errors import refused
from memtui.probes.host import read_host
from memtui.probes.swap_areas import swap_areas

LENGTH_BYTES = 64 << 20
APART_PAGES = 16  # kernels read 8 pages from swap around a fault (vm.page-cluster); of the file MADV_RANDOM reads one
SECONDS = 2.0  # of touches
FEW = 20  # faults, of which there are quartiles to speak of
ATTEMPTS, WRITTEN_S = 5, 0.3  # to evict pages, and how long writing them is waited for
GONE_SHARE = 0.5  # of the pages: then no further attempt is needed
_PAGE = mmap.PAGESIZE
_MADV_PAGEOUT = 21  # linux/mman.h; Linux 5.4


class Unmeasured(Exception):
    """A source of pages cannot be measured here; the text says why."""


def measure(folder: Path) -> FaultLatencies:
    """Return the latencies of major faults of this machine. Takes up to some ten seconds on a slow disk.

    Args:
        folder: where the file is made from which pages are read; it has 64 MiB and no name, and nothing is left of it.

    Raises:
        UserError: no such file can be made there.
    """
    latencies, unmeasured = [], []
    for of_source in (partial(_file, folder), _swap):
        try:
            latencies.append(of_source())
        except Unmeasured as error:
            unmeasured.append(str(error))
    measured, host = datetime.now().astimezone().isoformat(timespec="seconds"), read_host()
    return FaultLatencies(host, measured, tuple(latencies), (*unmeasured, _of_other_nodes(host.numa_nodes)))


def _of_other_nodes(nodes: int | None) -> str:
    """Return why memory of another NUMA node has no latency of faults."""
    subject = "memory of another NUMA node"
    if nodes == 1:
        return f"{subject}: this machine has one"
    return f"{subject}: nothing faults there; each access that no cache has takes 1.5 to 2 times as long"


def _swap() -> FaultLatency:
    areas = swap_areas()
    if not areas:
        raise Unmeasured("swap: none is switched on")
    with closing(mmap.mmap(-1, LENGTH_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        # Half of each page is random, as zram and zswap compress what they keep.
        for at in range(0, LENGTH_BYTES, _PAGE):
            memory[at : at + _PAGE // 2] = os.urandom(_PAGE // 2)
        evicted = _evict(memory)
        times_ns = _touch(memory, evicted[evicted % APART_PAGES == 0].tolist())
    return _latency(SWAP, ", ".join(area.name for area in areas), times_ns)


def _file(folder: Path) -> FaultLatency:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(LENGTH_BYTES >> 20):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with closing(mmap.mmap(file.fileno(), LENGTH_BYTES, prot=mmap.PROT_READ)) as memory:
                memory.madvise(mmap.MADV_RANDOM)
                times_ns = _touch(memory, list(range(0, LENGTH_BYTES // _PAGE, APART_PAGES)))
    except OSError as error:
        raise refused(folder, error) from None
    return _latency(FILE, str(folder), times_ns)


def _touch(memory: mmap.mmap, pages: list[int]) -> list[int]:
    """Return how long each touch took that was a major fault, in nanoseconds."""
    random.Random(0).shuffle(pages)
    times_ns, until_ns = [], time.monotonic_ns() + int(SECONDS * 1e9)
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
    for page in pages:
        began_ns = time.perf_counter_ns()
        _ = memory[page * _PAGE]
        took_ns = time.perf_counter_ns() - began_ns
        now = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
        if now > faults:
            times_ns.append(took_ns)
        faults = now
        if time.monotonic_ns() > until_ns:
            break
    return times_ns


def _latency(source: str, where: str, times_ns: list[int]) -> FaultLatency:
    if len(times_ns) < FEW:
        raise Unmeasured(f"{source}: {where} gave pages back without a major fault: they were kept in memory")
    lower, median, upper = np.percentile(times_ns, (25, 50, 75)).round().astype(int).tolist()
    return FaultLatency(source, where, lower, median, upper, len(times_ns))


def _evict(memory: mmap.mmap) -> NDArray[np.intp]:
    """Evict anonymous memory to swap, and return the numbers of the pages that are in no memory any more.

    What is written to swap stays in memory until it is evicted once more, which writes nothing, as it was only read.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(WRITTEN_S)
            for at in range(0, len(memory), _PAGE):
                _ = memory[at]
        try:
            memory.madvise(_MADV_PAGEOUT)
        except OSError as error:
            raise Unmeasured(f"swap: this kernel evicts nothing on request: {error.strerror}") from None
        gone = np.flatnonzero(~_in_memory(memory))
        if len(gone) >= GONE_SHARE * len(memory) // _PAGE:
            break
    if not len(gone):
        raise Unmeasured("swap: the kernel evicted nothing: it is full, or this cgroup may not use it")
    return gone


def _in_memory(memory: mmap.mmap) -> NDArray[np.bool_]:
    """Return which pages of a mapping are in memory (mincore(2)), those in the swap cache among them: bool[pages]."""
    address = np.frombuffer(memory, np.uint8).ctypes.data
    states = np.zeros(len(memory) // _PAGE, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(memory)), ctypes.c_void_p(states.ctypes.data)):
        raise OSError(ctypes.get_errno(), "mincore")
    return states.astype(bool)
