"""Nodes of pages and threads: on recorded trees, and by the real kernel of this machine, whatever nodes it has."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.page_sizes import BLOCK_SHIFT, GIANT_SHIFT, PAGE_SHIFT
from memtui.probes.numa import NumaProbe, nodes_of_cpus, random_addresses

PAGE = 4096


def nodes(folder: Path, lists: dict[int, str], with_memory: str) -> Path:
    (folder / "has_memory").write_text(with_memory + "\n")
    for node, cpus in lists.items():
        (folder / f"node{node}").mkdir()
        (folder / f"node{node}" / "cpulist").write_text(cpus + "\n")
    return folder


def thread(proc: Path, pid: int, tid: int, ticks: int, cpu: int) -> None:
    """A thread whose name has what separates fields."""
    folder = proc / str(pid) / "task" / str(tid)
    folder.mkdir(parents=True, exist_ok=True)
    fields = ["S", *["0"] * 49]
    fields[11], fields[12], fields[36] = str(ticks // 2), str(ticks - ticks // 2), str(cpu)
    (folder / "stat").write_text(f"{tid} (a) b (c) {' '.join(fields)}\n")


def test_a_machine_with_one_node_has_nothing_to_say(tmp_path):
    assert nodes_of_cpus(nodes(tmp_path, {0: "0-3"}, "0")) == {}
    assert nodes_of_cpus(tmp_path / "absent") == {}


def test_nodes_without_memory_do_not_count(tmp_path):
    assert nodes_of_cpus(nodes(tmp_path, {0: "0-1", 1: "2", 2: "3"}, "0-1")) == {0: 0, 1: 0, 2: 1}


@given(
    st.sets(st.integers(0, 3 * 512), max_size=40),
    st.sets(st.integers(10, 14), max_size=3),
    st.sets(st.integers(5, 6), max_size=1),
    st.integers(0, 2**32),
)
def test_chosen_addresses_are_those_of_the_set(small, huge, giant, seed):
    found = PageSet.from_pages(sorted(small))
    pages = PageSet(found.blocks, found.bits, np.array(sorted(huge), np.uint64), np.array(sorted(giant), np.uint64))
    chosen = random_addresses(pages, words(200, seed))
    assert len(chosen) == (200 if small or huge or giant else 0)
    for address in chosen.tolist():
        assert address % PAGE == 0
        assert address >> PAGE_SHIFT in small or address >> BLOCK_SHIFT in huge or address >> GIANT_SHIFT in giant, (
            address
        )


def words(count, seed):
    return np.random.default_rng(seed).integers(0, 1 << 64, count, np.uint64)


def test_every_page_has_the_same_chance():
    """600 small pages, some blocks fuller than others, and a page of 2 MiB, which counts as 512."""
    small = [*range(512), *range(1024, 1100), *range(3000, 3012)]
    found = PageSet.from_pages(small)
    pages = PageSet(found.blocks, found.bits, np.array([40], np.uint64), np.empty(0, np.uint64))
    chosen = random_addresses(pages, words(110_000, 3)) >> np.uint64(PAGE_SHIFT)
    places, counts = np.unique(chosen, return_counts=True)
    assert places.tolist() == [*small, *range(40 * 512, 41 * 512)]
    assert counts.min() > 55  # of 98.9 each, with a standard deviation of 10
    assert counts.max() < 150


def test_a_reading_counts_pages_and_the_threads_that_ran(tmp_path):
    """Two nodes as far as its files say; the pages are those of this process, which lie where the kernel says."""
    proc = tmp_path / "proc"
    (tmp_path / "nodes").mkdir()
    home = nodes(tmp_path / "nodes", {0: "0", 1: "1"}, "0-1")
    pid = os.getpid()
    for tid, cpu in ((1, 0), (2, 1), (3, 1)):
        thread(proc, pid, tid, ticks=5, cpu=cpu)
    probe = NumaProbe(proc, home)
    with mmap.mmap(-1, 8 * PAGE) as memory:
        memory[:] = b"x" * len(memory)
        start = np.frombuffer(memory, np.uint8).ctypes.data
        touched = PageSet.from_pages(np.arange(8, dtype=np.uint64) + np.uint64(start >> PAGE_SHIFT))
        assert probe.read(pid, 7, None) == ()
        first = probe.read(pid, 7, touched)
        assert probe.read(pid, 7, touched) == (), "it is not due"
        thread(proc, pid, 3, ticks=6, cpu=0)
        probe.forget_others((pid,))
        assert probe.read(pid, 7, touched) == (), "not due after all"
        probe._due_ns[pid] = 0
        second = probe.read(pid, 7, touched)
    assert {(use.process, use.node): use.threads for use in first} == {(7, 0): 1, (7, 1): 2}
    assert sum(use.pages for use in first) == 512
    assert {use.node: use.threads for use in second if use.threads} == {0: 1}, "only one of them ran"
    probe.forget_others(())
    assert probe.read(pid, 7, PageSet.empty()) == (), "a set without pages says nothing"


def test_a_machine_with_one_node_is_never_asked(tmp_path):
    (tmp_path / "nodes").mkdir()
    probe = NumaProbe(tmp_path / "no such proc", nodes(tmp_path / "nodes", {0: "0-7"}, "0"))
    assert probe.read(os.getpid(), 1, PageSet.from_pages([1, 2, 3])) == ()
