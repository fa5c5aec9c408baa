"""On which NUMA nodes the touched pages of a process lie, and on which its threads run.

A page of another node costs about 1.5 to 2 times the latency. Where pages lie is asked of some of them, at random,
by ``move_pages(2)``, which moves nothing where it gets no nodes. On a machine with one node nothing is read.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import random_words
from memtui.core.numa import NODES, nodes_of_pages, numbers_in, read_nodes_with_memory
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import (
    BLOCK_BYTES,
    BLOCK_SHIFT,
    GIANT_BYTES,
    GIANT_SHIFT,
    PAGE_BYTES,
    PAGE_SHIFT,
    PAGES_PER_BLOCK,
)
from memtui.core.procfs import PROC
from memtui.core.readings import NumaUse

EVERY_NS = 5_000_000_000
REST = 1000  # times what reading took: at most 0.1 % of a CPU
SAMPLED = 512  # pages: a share of a half has a standard error of 2.2 %
_UTIME, _STIME, _PROCESSOR = 11, 12, 36  # in /proc/PID/task/TID/stat after the name: proc_pid_stat(5), 14, 15 and 39


def nodes_of_cpus(nodes: Path = NODES) -> dict[int, int]:
    """Return the node of each CPU; empty where fewer than two nodes have memory."""
    try:
        with_memory = read_nodes_with_memory(nodes)
        lists = {node: numbers_in((nodes / f"node{node}" / "cpulist").read_text()) for node in with_memory}
    except (OSError, ValueError):
        return {}
    return {cpu: node for node, cpus in lists.items() for cpu in cpus} if len(with_memory) > 1 else {}


def random_addresses(pages: PageSet, draws: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return addresses of pages of 4 KiB, with equal chances; parts of larger pages are among them.

    Args:
        pages: of which these are.
        draws: u8[n], random numbers.

    Returns:
        u8[n], with repetitions; empty where the set is.
    """
    sizes = (np.bitwise_count(pages.bits).sum(axis=1), len(pages.huge), len(pages.giant))
    weights = np.concatenate(
        (
            sizes[0].astype(np.int64),
            np.full(sizes[1], BLOCK_BYTES // PAGE_BYTES),
            np.full(sizes[2], GIANT_BYTES // PAGE_BYTES),
        )
    )
    ends = np.cumsum(weights)
    if not len(ends):
        return np.empty(0, np.uint64)
    chosen = (draws % np.uint64(ends[-1])).astype(np.int64)
    index = np.searchsorted(ends, chosen, side="right")
    rank = chosen - (ends[index] - weights[index])  # which of the pages there
    in_blocks, in_huge = index < len(pages.blocks), index >= len(pages.blocks)
    in_giant = index >= len(pages.blocks) + len(pages.huge)
    addresses = np.zeros(len(draws), np.uint64)
    rows, ranks = index[in_blocks], rank[in_blocks]
    bits = np.unpackbits(pages.bits[rows].astype("<u8").view(np.uint8), axis=1, bitorder="little")
    column = (np.cumsum(bits, axis=1, dtype=np.int64) == (ranks + 1)[:, None]).argmax(axis=1)
    assert bits.shape[1] == PAGES_PER_BLOCK
    addresses[in_blocks] = (pages.blocks[rows] << np.uint64(BLOCK_SHIFT)) + (
        column.astype(np.uint64) << np.uint64(PAGE_SHIFT)
    )
    for there, numbers, shift, first in (
        (in_huge & ~in_giant, pages.huge, BLOCK_SHIFT, len(pages.blocks)),
        (in_giant, pages.giant, GIANT_SHIFT, len(pages.blocks) + len(pages.huge)),
    ):
        starts = numbers[index[there] - first] << np.uint64(shift)
        addresses[there] = starts + (rank[there].astype(np.uint64) << np.uint64(PAGE_SHIFT))
    return addresses


class NumaProbe:
    """Reads the nodes of watched processes now and then."""

    def __init__(self, proc: Path = PROC, nodes: Path = NODES) -> None:
        """``proc`` and ``nodes``: where the kernel lists processes and nodes."""
        self._proc, self._node_of = proc, nodes_of_cpus(nodes)
        self._due_ns: dict[int, int] = {}
        self._cpu: dict[int, dict[str, int]] = {}  # by pid and thread: its CPU time when it was read last

    def read(self, pid: int, process: int, pages: PageSet | None) -> tuple[NumaUse, ...]:
        """Return a row for each node with pages or threads; none where a reading is not due, or nothing is known.

        ``process``: its key. ``pages``: what it touched in the last window.
        """
        began_ns = time.monotonic_ns()
        if not self._node_of or pages is None or began_ns < self._due_ns.get(pid, 0):
            return ()
        threads = self._threads(pid)
        nodes = self._nodes(pid, pages)
        ended_ns = time.monotonic_ns()
        self._due_ns[pid] = began_ns + max(EVERY_NS, REST * (ended_ns - began_ns))
        if not len(nodes):
            return ()
        counts = Counter(nodes.tolist())
        return tuple(NumaUse(ended_ns, process, node, counts[node], threads[node]) for node in sorted(counts | threads))

    def forget_others(self, pids: tuple[int, ...]) -> None:
        """Drop the processes that are not watched any more."""
        for table in (self._due_ns, self._cpu):
            for pid in table.keys() - set(pids):
                del table[pid]

    def _nodes(self, pid: int, pages: PageSet) -> NDArray[np.int32]:
        """Return the nodes of some of these pages; none where the process ended, or may not be asked."""
        try:
            nodes = nodes_of_pages(pid, random_addresses(pages, random_words(SAMPLED)))
        except (OSError, NotImplementedError):
            return np.empty(0, np.int32)
        return nodes[nodes >= 0]

    def _threads(self, pid: int) -> Counter[int]:
        """Return how many threads that had a CPU since the last reading had one of each node last."""
        before, now, threads = self._cpu.get(pid, {}), dict[str, int](), Counter[int]()
        try:
            # A Path for each of hundreds of threads takes twice as long.
            names = os.listdir(f"{self._proc}/{pid}/task")  # noqa: PTH208
        except OSError:
            names = []
        for name in names:
            try:
                stat = Path(f"{self._proc}/{pid}/task/{name}/stat").read_bytes()
                fields = stat.rpartition(b")")[2].split()
                ticks, cpu = int(fields[_UTIME]) + int(fields[_STIME]), int(fields[_PROCESSOR])
            except (OSError, IndexError, ValueError):
                continue  # the thread ended
            now[name] = ticks
            if ticks > before.get(name, 0) and cpu in self._node_of:
                threads[self._node_of[cpu]] += 1
        self._cpu[pid] = now
        return threads
