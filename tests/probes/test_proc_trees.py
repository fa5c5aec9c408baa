"""Probes on recorded /proc trees and on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import pytest

from memtui.core.procfs import children_of, command_of, is_exiting, read_stat, threads_run_on
from memtui.core.samples import Vma
from memtui.probes import usage
from memtui.probes.host import read_clock, read_host
from memtui.probes.proc_maps import MapsParser, parse_maps, read_maps
from memtui.probes.process_tree import ProcessTree
from memtui.probes.usage import UsageProbe
from tests.support.proc_trees import write_process

MAPS = b"""\
55d0c8a00000-55d0c8a01000 r--p 00000000 fe:00 123      /usr/bin/python3.11
55d0c9000000-55d0c9100000 rw-p 00000000 00:00 0        [heap]
7f0000000000-7f0000021000 rw-p 00000000 00:00 0
7f0000021000-7f0004000000 ---p 00000000 00:00 0
7f1000000000-7f1000001000 rw-s 00000000 00:01 9        /memfd:a b (deleted)
7f2000000000-7f2000001000 r--p 00000000 fe:00 9        /tmp/\xff.so
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0        [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]
"""


def test_maps_with_every_kind_of_name():
    vmas = parse_maps(MAPS)
    assert vmas[0] == Vma(0x55D0C8A00000, 0x55D0C8A01000, "r--p", "/usr/bin/python3.11")
    assert [v.name for v in vmas[1:]] == [
        "[heap]",
        "",
        "",
        "/memfd:a b (deleted)",
        "/tmp/\\xff.so",
        "[stack]",
    ]
    assert vmas[3].size_bytes == 0x7F0004000000 - 0x7F0000021000


def test_own_maps_are_sorted_and_disjoint():
    vmas = parse_maps(read_maps(os.getpid()))
    assert len(vmas) > 10
    assert all(a.end <= b.start for a, b in pairwise(vmas))


def test_stat_of_a_name_with_brackets_and_spaces(tmp_path):
    write_process(tmp_path, 7, "a) S 1 (b", 3, 99, flags=0x00200040)
    stat = read_stat(7, tmp_path)
    assert (stat.name, stat.state, stat.parent_pid, stat.start_ticks) == ("a) S 1 (b", "S", 3, 99)
    assert (stat.minor_faults, stat.major_faults, stat.kernel_thread) == (11, 13, True)


@pytest.mark.parametrize(("flags", "exiting"), [(0x00400040, False), (0x00400044, True), (0x00208040, False)])
def test_who_exits_says_so_before_its_state_does(tmp_path, flags, exiting):
    write_process(tmp_path, 7, "a) S 1 (b", 3, 99, flags=flags)
    assert is_exiting(7, tmp_path) is exiting


def test_no_such_process(tmp_path):
    assert is_exiting(7, tmp_path)
    with pytest.raises(ProcessLookupError):
        read_stat(7, tmp_path)
    with pytest.raises(ProcessLookupError):
        read_maps(7, tmp_path)
    assert children_of(7, tmp_path) == []


def test_tree_follows_births_deaths_and_reused_pids(tmp_path, monkeypatch):
    monkeypatch.setattr("memtui.probes.process_tree.command_of", lambda pid: f"command {pid}")
    write_process(tmp_path, 10, "root", 1, 100, children=(11, 12))
    write_process(tmp_path, 11, "child", 10, 101, children=(13,))
    write_process(tmp_path, 12, "child", 10, 102)
    write_process(tmp_path, 13, "grandchild", 11, 103)
    tree = ProcessTree(10, proc=tmp_path)
    new, gone = tree.refresh()
    assert [(p.key, p.pid) for p in new] == [(1, 10), (2, 11), (3, 12), (4, 13)]
    assert [p.role for p in new] == ["target", "child", "child", "child"]
    assert gone == []
    assert tree.refresh() == ([], [])

    (tmp_path / "12" / "stat").write_text((tmp_path / "12" / "stat").read_text().replace(" 102 ", " 500 "))
    (tmp_path / "11" / "task" / "11" / "children").write_text("")
    new, gone = tree.refresh()
    assert [(p.key, p.pid) for p in new] == [(5, 12)], "a reused pid is another process"
    assert sorted(p.key for p in gone) == [3, 4]

    assert tree.new_generation(10).key == 6
    assert tree.processes[0].generation == 1
    assert ProcessTree(10, children=False, proc=tmp_path).refresh()[0][0].pid == 10

    (tmp_path / "10" / "stat").unlink()
    with pytest.raises(ProcessLookupError):
        tree.refresh()


def test_workers_of_a_data_loader_are_told_by_the_name_of_their_thread(tmp_path, monkeypatch):
    monkeypatch.setattr("memtui.probes.process_tree.command_of", lambda pid: "python train.py")
    write_process(tmp_path, 10, "pt_data_worker", 1, 100, children=(11, 12))
    write_process(tmp_path, 11, "python", 10, 101)
    write_process(tmp_path, 12, "pt_data_worker", 10, 102)
    new, _ = ProcessTree(10, proc=tmp_path).refresh()
    assert [process.role for process in new] == ["target", "child", "loader"]


def test_a_worker_that_has_its_name_later_becomes_one(tmp_path, monkeypatch):
    """Started by "spawn" or "forkserver" it imports PyTorch first, which takes seconds."""
    monkeypatch.setattr("memtui.probes.process_tree.command_of", lambda pid: "python train.py")
    write_process(tmp_path, 10, "python", 1, 100, children=(11,))
    write_process(tmp_path, 11, "python", 10, 101)
    tree = ProcessTree(10, proc=tmp_path)
    tree.refresh()
    assert tree.become_loaders == []
    write_process(tmp_path, 11, "pt_data_worker", 10, 101)
    assert tree.refresh() == ([], [])
    assert tree.become_loaders == [11]
    worker = tree.new_generation(11)
    assert (worker.role, worker.key, worker.generation) == ("loader", 3, 1)
    tree.refresh()
    assert tree.become_loaders == []


_LOADER = """
import sys
from torch.utils.data import DataLoader
if __name__ == "__main__":
    batches = iter(DataLoader(range(100), num_workers=2))
    next(batches)
    print("up", flush=True)
    sys.stdin.read()
"""


def test_real_workers_of_a_data_loader():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        pytest.skip("this PyTorch does not name its workers (2.6 does)")
    argv = [sys.executable, "-c", _LOADER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        new, _ = ProcessTree(child.pid).refresh()
        assert sorted(process.role for process in new) == ["loader", "loader", "target"]
        child.communicate()


def test_real_children_usage_and_command():
    argv = [sys.executable, "-c", "import sys; x = b'1' * (64 << 20); print('up', flush=True); sys.stdin.read()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert child.pid in children_of(os.getpid())
        assert "64 << 20" in command_of(child.pid)
        read = UsageProbe().read(child.pid)
        assert read.rss_bytes > 64 << 20
        assert read.minor_faults > (64 << 20) // 4096
        assert read.threads == 1
        child.communicate()
    with pytest.raises(ProcessLookupError):
        UsageProbe().read(child.pid)


@pytest.mark.parametrize("exiting", [True, False])
def test_memory_that_a_process_released_while_it_ends_is_not_zero(exiting, monkeypatch):
    """Its state does not show yet that it ends; one that is swapped out whole has none, and that is known."""
    released = SimpleNamespace(
        oneshot=nullcontext,
        cpu_times=lambda: SimpleNamespace(user=1.0, system=0.0),
        memory_info=lambda: SimpleNamespace(rss=0),
        num_threads=lambda: 1,
    )
    monkeypatch.setattr(usage.psutil, "Process", lambda pid: released)
    monkeypatch.setattr(usage, "is_exiting", lambda pid: exiting)
    assert UsageProbe().read(os.getpid()).rss_bytes == (None if exiting else 0)


def test_a_process_that_ended_and_was_not_reaped_has_no_known_memory():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert UsageProbe().read(child.pid).rss_bytes is None


def test_host_and_clock():
    host, clock = read_host(), read_clock()
    assert host.memory_bytes > 1 << 28
    assert host.cpu_count >= 1
    assert clock.wall_ns > 1.7e18
    assert len(clock.boot_id) == 36


def test_a_table_that_changed_keeps_what_it_had():
    parser = MapsParser()
    before = parser.parse(MAPS)
    lines = MAPS.split(b"\n")
    after = parser.parse(b"\n".join([lines[0], b"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ", *lines[2:]]))
    assert after == parse_maps(b"\n".join([lines[0], b"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ", *lines[2:]]))
    assert after[0] is before[0]
    assert before == parser.parse(MAPS) == parse_maps(MAPS)


@pytest.mark.parametrize(
    ("second", "pending", "goes_on"),
    [("R", "0" * 16, True), ("S", "0000000000004000", True), ("R", "0000000000000100", False), ("Z", "0" * 16, False)],
)
def test_a_process_whose_threads_wait_to_die_has_ended(tmp_path, second, pending, goes_on):
    for tid, state, waits in ((7, "Z", "0" * 16), (8, second, pending)):
        (tmp_path / "7/task" / str(tid)).mkdir(parents=True)
        (tmp_path / str(tid)).mkdir(exist_ok=True)
        (tmp_path / str(tid) / "stat").write_text(f"{tid} (python) {state} " + "0 " * 40)
        (tmp_path / str(tid) / "status").write_text(f"Name:\tpython\nSigPnd:\t{waits}\nShdPnd:\t{'0' * 16}\n")
    assert threads_run_on(7, tmp_path) is goes_on
    assert not threads_run_on(9, tmp_path)
