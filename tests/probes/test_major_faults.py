"""Pages that come back from a real file and from real swap, and sources that there are not."""

from __future__ import annotations

import mmap
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from memtui.core.errors import UserError
from memtui.core.fault_latency import FILE, SWAP
from memtui.probes import major_faults
from memtui.probes.host import read_host
from memtui.probes.major_faults import FEW, LENGTH_BYTES, measure
from memtui.study.runs import swap_file
from tests.support.live import needs_root

SWAPS = swap_file.free_bytes()[1]


def by_source(measured):
    return {latency.source: latency for latency in measured.latencies}


def assert_plausible(latency):
    """A page from a device takes longer than one that is there, and less than the slowest of disks."""
    assert 1_000 < latency.lower_ns <= latency.median_ns <= latency.upper_ns < 10**9
    assert FEW <= latency.faults <= LENGTH_BYTES // mmap.PAGESIZE // major_faults.APART_PAGES


def test_pages_of_a_file_come_back_from_its_disk(tmp_path):
    if swap_file.file_system(str(tmp_path)) == "tmpfs":
        pytest.skip(f"{tmp_path} is in memory")
    measured = measure(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert by_source(measured)[FILE].where == str(tmp_path)
    assert_plausible(by_source(measured)[FILE])


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no folder in memory is known here")
def test_a_file_that_is_in_memory_is_not_measured():
    measured = measure(Path("/dev/shm"))
    assert FILE not in by_source(measured)
    assert "file: /dev/shm gave pages back without a major fault: they were kept in memory" in measured.unmeasured


@pytest.mark.skipif(bool(SWAPS), reason="swap is on here")
def test_where_no_swap_is_on_that_is_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(major_faults, "LENGTH_BYTES", 4 << 20)
    measured = measure(tmp_path)
    assert SWAP not in by_source(measured)
    assert "swap: none is switched on" in measured.unmeasured


@pytest.mark.parametrize(
    ("nodes", "why"), [(1, "this machine has one"), (2, "nothing faults there"), (None, "nothing")]
)
def test_memory_of_another_node_has_no_faults(nodes, why, tmp_path, monkeypatch):
    monkeypatch.setattr(major_faults, "LENGTH_BYTES", 4 << 20)
    monkeypatch.setattr(major_faults, "read_host", lambda: replace(read_host(), numa_nodes=nodes))
    assert measure(tmp_path).unmeasured[-1].startswith(f"memory of another NUMA node: {why}")


def test_a_folder_that_takes_no_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="none: cannot be used: No such file or directory; check the name"):
        measure(tmp_path / "none")


@contextmanager
def some_swap(folder):
    """The swap of the machine, or some of our own."""
    if SWAPS:
        yield ", ".join(SWAPS)
        return
    try:
        swap, locked = swap_file.switch_on(4 * LENGTH_BYTES, [str(folder)])
    except UserError as error:
        pytest.skip(f"no swap can be made here: {error}")
    try:
        yield swap.device
    finally:
        assert swap_file.switch_off(swap.device) == ""
        del locked


@needs_root
def test_pages_come_back_from_swap(tmp_path):
    with some_swap(tmp_path) as devices:
        measured = measure(tmp_path)
        assert by_source(measured)[SWAP].where == devices
        assert_plausible(by_source(measured)[SWAP])
    assert swap_file.free_bytes()[1] == SWAPS
