"""What is read of the machine."""

from __future__ import annotations

import os

import pytest

from memtui.probes.host import numa_nodes, processor_name, read_host, transparent_huge_pages


@pytest.mark.parametrize(("listed", "count"), [("0\n", 1), ("0-1\n", 2), ("0,2-3\n", 3), ("\n", None), ("?\n", None)])
def test_nodes_with_memory_are_counted(tmp_path, listed, count):
    (tmp_path / "has_memory").write_text(listed)
    assert numa_nodes(tmp_path) == count


def test_a_kernel_without_nodes_says_nothing_of_them(tmp_path):
    assert numa_nodes(tmp_path) is None


def test_this_machine():
    host = read_host()
    assert (host.hostname, host.kernel) == (os.uname().nodename, os.uname().release)
    assert host.cpu_count == len(os.sched_getaffinity(0))
    assert host.memory_bytes > 1 << 28
    assert host.huge_pages == transparent_huge_pages()
    assert host.huge_pages in ("", "always", "madvise", "never")
    assert host.numa_nodes is None or host.numa_nodes >= 1
    assert processor_name()
