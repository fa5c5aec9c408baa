"""Who else clears accessed marks or moves pages: from recorded counters, and with a real limit that is hit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memtui.probes.competing_observers import CompetingObservers
from memtui.probes.disturbance import LIMIT, SWAPPED, DisturbanceProbe
from memtui.probes.memory_pressure import memory_cgroup, memory_mounts
from memtui.session.session import Session
from tests.support.cgroups import limited_cgroup
from tests.support.cli import memtui
from tests.support.folders import put
from tests.support.live import needs_root, needs_tracker, pattern, wait_for_samples

pytestmark = pytest.mark.real_clock

PID = 42
VMSTAT = {
    "nr_free_pages": 5,
    "numa_pte_updates": 10,
    "pgscan_kswapd": 7,
    "pgscan_anon": 3,
    "pgscan_file": 4,
    "pgsteal_kswapd": 2,
    "pswpout": 0,
    "thp_collapse_alloc": 101,
    "thp_collapse_alloc_failed": 0,
    "thp_split_page": 1,
    "thp_split_pmd": 239,
    "pgdemote_kswapd": 0,
}


def counters(**numbers: int) -> str:
    return "".join(f"{name} {number}\n" for name, number in numbers.items())


@pytest.fixture
def proc(tmp_path) -> Path:
    """A machine without memory cgroups and without swap."""
    proc = tmp_path / "proc"
    put(proc / "vmstat", counters(**VMSTAT))
    put(proc / "swaps", "Filename\tType\tSize\tUsed\tPriority\n")
    put(proc / "sys/kernel/numa_balancing", "0\n")
    put(proc / "self/mountinfo", "31 23 0:28 / /sys rw - sysfs sys rw\n")
    return proc


@pytest.fixture
def probe(proc):
    made = DisturbanceProbe(proc)
    assert made.read([PID]) == "", "the first reading is where the counting begins"
    yield made
    made.close()


def grow(proc: Path, **more: int) -> None:
    put(proc / "vmstat", counters(**{name: value + more.get(name, 0) for name, value in VMSTAT.items()}))


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({}, ""),
        ({"nr_free_pages": 9, "thp_split_pmd": 5, "thp_collapse_alloc_failed": 1}, ""),
        ({"pgscan_file": 32}, "reclaim on this machine"),
        ({"pgscan_kswapd": 32, "pgscan_anon": 32, "pgsteal_kswapd": 1}, "reclaim on this machine"),
        ({"pgdemote_kswapd": 1}, "reclaim on this machine"),
        ({"pswpout": 1}, "swap-out on this machine"),
        ({"thp_collapse_alloc": 1}, "khugepaged on this machine"),
        ({"thp_split_page": 1}, "huge pages split on this machine"),
        ({"pgscan_file": 1, "thp_collapse_alloc": 1}, "reclaim on this machine; khugepaged on this machine"),
    ],
)
def test_every_counter_has_its_cause(proc, probe, more, cause):
    grow(proc, **more)
    assert probe.read([PID]) == cause
    assert probe.read([PID]) == "", "a rise is told in the window it happened in, and not again"


@pytest.mark.parametrize(("on", "cause"), [("0", ""), ("1", "NUMA balancing on this machine")])
def test_numa_balancing_counts_only_when_it_is_on(proc, on, cause):
    put(proc / "sys/kernel/numa_balancing", on + "\n")
    probe = DisturbanceProbe(proc)
    probe.read([PID])
    grow(proc, numa_pte_updates=500)
    assert probe.read([PID]) == cause
    probe.close()


def test_swapped_out_pages_of_the_target(proc):
    put(proc / "swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0 partition 1 0 -2\n")
    status = "Name:\tx\nVmRSS:\t  100 kB\nVmSwap:\t%8d kB\nThreads:\t1\n"
    put(proc / str(PID) / "status", status % 4)
    probe = DisturbanceProbe(proc)
    assert probe.read([PID]) == ""
    put(proc / str(PID) / "status", status % 0)
    assert probe.read([PID]) == "", "pages that come back are touched"
    put(proc / str(PID) / "status", status % 8)
    assert probe.read([PID]) == SWAPPED
    probe.close()


@pytest.fixture
def version2(proc, tmp_path) -> Path:
    """The folder of the target's cgroup of version 2; that of the process below has no memory controller."""
    top = tmp_path / "cgroup"
    put(proc / "self/mountinfo", f"25 23 0:22 /pod /{top} rw,nosuid - cgroup2 none rw\n".replace("//", "/"))
    put(proc / str(PID) / "cgroup", "0::/pod/train/rank0\n")
    put(top / "train/memory.stat", counters(anon=1, pgscan=5, thp_collapse_alloc=0))
    (top / "train/rank0").mkdir()
    return top / "train"


def test_the_cgroup_of_the_target_says_more_than_the_machine(proc, version2):
    assert memory_cgroup(proc, PID, memory_mounts(proc)) == (2, version2)
    probe = DisturbanceProbe(proc)
    assert probe.read([PID]) == ""
    grow(proc, pgscan_file=100)
    assert probe.read([PID]) == "", "somebody else's reclaim"
    put(version2 / "memory.stat", counters(anon=1, pgscan=6, thp_collapse_alloc=0))
    assert probe.read([PID]) == "reclaim in its memory cgroup"
    grow(proc, pgscan_file=100, thp_split_page=1)
    assert probe.read([PID]) == "huge pages split on this machine", "which this kernel does not count by cgroup"
    (version2 / "memory.stat").unlink()
    probe.close()


def test_a_limit_of_version_1_further_up(proc, tmp_path):
    top = tmp_path / "memory"
    put(
        proc / "self/mountinfo", f"35 31 0:32 / {top} rw - cgroup none rw,memory\n41 31 0:3 / /x rw - cgroup2 none rw\n"
    )
    put(proc / str(PID) / "cgroup", "9:name=systemd:/\n4:memory:/a/b\n0::/\n")
    for group in ("", "a", "a/b"):
        put(top / group / "memory.stat", "cache 0\n")
        put(top / group / "memory.failcnt", "3\n")
    probe = DisturbanceProbe(proc)
    assert probe.read([PID]) == ""
    put(top / "a/memory.failcnt", "4\n")
    assert probe.read([PID]) == "", "the limit was hit by memory that needed no look at other pages"
    put(top / "a/memory.failcnt", "9\n")
    grow(proc, pgscan_file=32)
    assert probe.read([PID]) == LIMIT
    grow(proc, pgscan_file=64)
    assert probe.read([PID]) == "reclaim on this machine"
    probe.close()


def test_nothing_to_read_is_no_failure(tmp_path):
    probe = DisturbanceProbe(tmp_path)
    assert [probe.read([PID]), probe.read([PID, 43]), probe.read([])] == ["", "", ""]
    probe.close()


# -- others who write to clear_refs


def command(proc: Path, pid: int, *argv: str) -> None:
    put(proc / str(pid) / "cmdline", "\0".join(argv) + "\0")


def test_wss_names_its_target(tmp_path):
    command(tmp_path, 7, "/usr/bin/perl", "-w", "/opt/wss/wss.pl", str(PID), "0.01")
    command(tmp_path, 8, "/opt/wss/wss-v2", "99", "1")
    command(tmp_path, 9, "vim", "wss.txt", str(PID))
    rivals = CompetingObservers(tmp_path)
    assert rivals.poll((PID,), 0) == ("wss (pid 7) clears its marks",)
    (tmp_path / "7/cmdline").unlink()
    (tmp_path / "7").rmdir()
    assert rivals.poll((PID,), 500_000_000) == ("wss (pid 7) clears its marks",), "not time yet for another look"
    assert rivals.poll((PID,), 1_500_000_000) == ()


def test_a_memtui_is_known_by_the_file_it_holds(tmp_path):
    for pid, target in ((7, PID), (8, 99)):
        command(tmp_path, pid, "bash")
        (tmp_path / str(pid) / "fd").mkdir()
        (tmp_path / str(pid) / "fd/5").symlink_to(tmp_path / str(target) / "clear_refs")
    rivals = CompetingObservers(tmp_path)
    assert rivals.poll((PID,), 0) == ()
    for pid in (7, 8):
        command(tmp_path, pid, "/usr/bin/python3", "-P", "-m", "memtui.recording.sampler")
    assert rivals.poll((PID,), 1_500_000_000) == ("another memtui (pid 7) clears its marks",), "a shell became it"


@needs_tracker
def test_two_memtuis_on_one_process_name_each_other(tmp_path):
    """The lock that forbids it does not reach from one mount of /proc to another, which containers have."""
    with pattern("loop", "--pages", 300) as truth:
        argv = ("record", truth["pid"], "--interval", 0.2, "--duration", 4, "-o")
        elsewhere = ["unshare", "--mount", "sh", "-c", 'mount -t proc proc /proc && exec "$@"', "sh"]
        other = [sys.executable, "-m", "memtui", *map(str, argv), str(tmp_path / "other.memtui")]
        with subprocess.Popen(elsewhere + other, stdout=subprocess.DEVNULL):
            assert memtui(*argv, tmp_path / "s.memtui").returncode == 0
    for name in ("s", "other"):
        reader = Session(tmp_path / f"{name}.memtui")
        assert any("another memtui (pid" in cause for cause in reader.samples.disturbed), name
        reader.close()


# -- a real limit

EATER = """
import os, sys, time
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
path = sys.argv[2]
with open(path, "wb") as file:
    file.truncate(96 << 20)
print("up", flush=True)
sys.stdin.readline()
piece = bytearray(1 << 20)
with open(path, "rb", buffering=0) as file:
    while True:
        file.seek(0)
        while file.readinto(piece):
            pass
"""


@needs_root
def test_reclaim_at_a_real_limit_is_in_the_session_and_quiet_before(tmp_path):
    """No swap is needed: a file larger than the limit is read round and round."""
    path = tmp_path / "s.memtui"
    with limited_cgroup(32 << 20) as (version, folder):
        argv = [sys.executable, "-c", EATER, str(folder), str(tmp_path / "file")]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin
            assert child.stdout
            try:
                child.stdout.readline()
                record = [sys.executable, "-m", "memtui", "record", str(child.pid), "-o", str(path)]
                options = ["--interval", "0.1", "--duration", "5", "--tracker", "rss"]
                with subprocess.Popen([*record, *options], stdout=subprocess.DEVNULL) as recording:
                    wait_for_samples(path, 10, 60).close()
                    child.stdin.write(b"go\n")
                    child.stdin.flush()
                    assert recording.wait() == 0
            finally:
                child.kill()
    wanted = LIMIT if version == 1 else "reclaim in its memory cgroup"
    reader = Session(path)
    disturbed = [wanted in cause for cause in reader.samples.disturbed]
    reader.close()
    assert disturbed[-2], "while it reads"
    assert sum(disturbed) >= 10
    assert not any(disturbed[:8]), "before it reads"
    assert f"windows: {wanted}" in memtui("report", path).stdout


def test_it_costs_little():
    """Less than 0.2 ms a window on a quiet machine; this bound leaves room for a busy one."""
    probe = DisturbanceProbe()
    pids = (os.getppid(),)
    probe.read(pids)
    start_ns = time.process_time_ns()
    for _ in range(200):
        probe.read(pids)
    spent_ns = (time.process_time_ns() - start_ns) / 200
    probe.close()
    assert spent_ns < 1_000_000
