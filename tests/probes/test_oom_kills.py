"""Kills for want of memory: the counters of recorded trees, records of a log, and a real cgroup that is too small."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memtui.core.procfs import PF_EXITING
from memtui.probes import oom_kills
from memtui.probes.oom_kills import SIGKILL, KernelLog, OomKills
from tests.support.cgroups import limited_cgroup
from tests.support.folders import put
from tests.support.pagetable_targets import need_root
from tests.support.proc_trees import write_process

PID, CHILD = 42, 43
MIB = 1 << 20
REASON = (
    "oom-kill:constraint={},nodemask=(null),cpuset=/,mems_allowed=0{},task_memcg=/job/step,task=python,pid={},uid=0"
)
VICTIM = (
    "{}Killed process {} (python) total-vm:70000kB, anon-rss:60000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB"
)


class Machine:
    """A recorded tree of /proc and cgroups; the process sits in /job/step, and /job is limited."""

    def __init__(self, folder: Path, version: int | None) -> None:
        self.proc, self.top, self.version = folder / "proc", folder / "cgroup", version
        kind = {1: "cgroup none rw,memory", 2: "cgroup2 none rw", None: "tmpfs none rw"}[version]
        put(self.proc / "self/mountinfo", f"35 31 0:32 / {self.top} rw - {kind}\n")
        put(self.proc / str(PID) / "cgroup", "4:memory:/job/step\n" if version == 1 else "0::/job/step\n")
        write_process(self.proc, PID, "x", 1, 0)
        (self.proc / "self/ns").mkdir()
        (self.proc / "self/ns/pid").symlink_to("pid:[4026531836]")
        for name, limit in (("job", 256 * MIB), ("job/step", None)):
            group = self.top / name
            put(group / "memory.stat", "anon 5\n")
            put(group / "memory.max", "max\n" if limit is None else f"{limit}\n")
            put(group / "memory.limit_in_bytes", f"{limit or 0x7FFFFFFFFFFFF000}\n")
            put(group / "memory.events.local", "low 0\nhigh 0\nmax 9\noom 0\noom_kill 0\n")
        self.count(0)

    def count(self, kills: int, reached: str = "") -> None:
        """Set the counters; ``reached``: the cgroup whose own limit was reached."""
        step = self.top / "job/step"
        put(step / "memory.oom_control", f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
        put(step / "memory.events", f"low 0\nhigh 0\nmax 0\noom 0\noom_kill {kills}\noom_group_kill 0\n")
        put(self.proc / "vmstat", f"nr_free_pages 5\noom_kill {kills}\n")
        if reached:
            put(self.top / reached / "memory.events.local", f"max 99\noom {kills}\noom_kill 0\n")


class Log:
    """A pipe that keeps records apart, as /dev/kmsg does."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
        self.log = KernelLog(Path(f"/proc/self/fd/{self._reader}"))

    def write(self, *lines: str, level: int = 3) -> None:
        for line in lines:
            os.write(self._writer, f"{level},17,123456,-;{line}\n SUBSYSTEM=x\n".encode())

    def close(self) -> None:
        self.log.close()
        os.close(self._reader)
        os.close(self._writer)


@pytest.fixture
def log():
    log = Log()
    yield log
    log.close()


def no_log(tmp_path: Path) -> KernelLog:
    return KernelLog(tmp_path / "not there")


@pytest.mark.parametrize(
    ("version", "reached", "cause"),
    [
        (1, "", "memory ran out, and cgroup /job is limited to 256 MiB"),
        (2, "", "memory ran out, and cgroup /job is limited to 256 MiB"),
        (2, "job", "cgroup /job reached its limit of 256 MiB"),
        (None, "", "the machine ran out of memory"),
    ],
)
def test_counters_alone_make_it_probable(tmp_path, version, reached, cause):
    machine = Machine(tmp_path, version)
    machine.count(3)  # kills from before are no news
    kills = OomKills(PID, no_log(tmp_path), machine.proc)
    assert kills.new([PID]) == []
    machine.count(4, reached)
    texts = kills.new([PID])  # the kernel counts before the process has ended
    what = [f"the kernel killed a process of cgroup /job/step: {cause}"]
    assert texts == ([] if version is None else what)
    assert kills.explained(SIGKILL, [PID]) == (f"killed by SIGKILL, probably by the kernel: {cause}", [])


def test_a_kill_long_ago_is_not_this_one(tmp_path, monkeypatch):
    machine = Machine(tmp_path, 2)
    kills = OomKills(PID, no_log(tmp_path), machine.proc)
    machine.count(2)
    assert kills.new([PID]) == [
        "the kernel killed 2 processes of cgroup /job/step: memory ran out, and cgroup /job is limited to 256 MiB"
    ]
    later_ns = time.monotonic_ns() + oom_kills.RECENT_NS
    monkeypatch.setattr(oom_kills.time, "monotonic_ns", lambda: later_ns)
    assert kills.explained(SIGKILL, [PID]) == ("killed by SIGKILL, and not because memory ran out", [])


def test_nothing_is_said_where_nothing_is_known(tmp_path):
    machine = Machine(tmp_path, 2)
    (machine.top / "job/step/memory.events").unlink()
    kills = OomKills(PID, no_log(tmp_path), machine.proc)
    assert kills.explained(SIGKILL, [PID]) == (SIGKILL, [])
    assert kills.explained("exited", [PID]) == ("exited", [])


def test_another_cgroup_begins_anew(tmp_path):
    """A launcher moves the process; the counter of its new cgroup says nothing of the time before."""
    machine = Machine(tmp_path, 2)
    kills = OomKills(PID, no_log(tmp_path), machine.proc)
    put(machine.proc / str(PID) / "cgroup", "0::/job\n")
    put(machine.top / "job/memory.events", "oom 0\noom_kill 77\n")
    assert kills.new([PID]) == []
    put(machine.top / "job/memory.events", "oom 0\noom_kill 78\n")
    assert len(kills.new([PID])) == 1


def test_a_process_that_is_ending_is_counted_in_the_cgroup_that_it_was_in(tmp_path):
    machine = Machine(tmp_path, 2)
    kills = OomKills(PID, no_log(tmp_path), machine.proc)
    put(machine.proc / str(PID) / "cgroup", "0::/\n")
    write_process(machine.proc, PID, "x", 1, 0, flags=PF_EXITING)
    machine.count(1)
    assert len(kills.new([PID])) == 1


def test_the_log_names_the_process_and_the_limit(tmp_path, log):
    machine = Machine(tmp_path, 1)
    kills = OomKills(PID, log.log, machine.proc)
    machine.count(2)
    log.write(
        REASON.format("CONSTRAINT_MEMCG", ",oom_memcg=/job", CHILD),
        VICTIM.format("Memory cgroup out of memory: ", CHILD),
        REASON.format("CONSTRAINT_NONE", ",global_oom", PID),
        VICTIM.format("Out of memory: ", PID),
    )
    assert kills.new([PID, CHILD]) == ["the kernel killed pid 43 (python): cgroup /job reached its limit of 256 MiB"]
    assert kills.explained(SIGKILL, [PID]) == ("killed by the kernel (SIGKILL): the machine ran out of memory", [])


def test_the_end_of_the_root_is_seen_with_the_kill(tmp_path, log):
    machine = Machine(tmp_path, 1)
    kills = OomKills(PID, log.log, machine.proc)
    machine.count(1)
    log.write(
        REASON.format("CONSTRAINT_MEMCG", ",oom_memcg=/job", PID), VICTIM.format("Memory cgroup out of memory: ", PID)
    )
    how = "killed by the kernel (SIGKILL): cgroup /job reached its limit of 256 MiB"
    assert kills.explained(SIGKILL, [PID]) == (how, [])


def test_a_child_that_ended_before_the_log_was_read_is_known(tmp_path, log):
    machine = Machine(tmp_path, 2)
    kills = OomKills(PID, log.log, machine.proc)
    assert kills.new([PID, CHILD]) == []
    log.write(VICTIM.format("Memory cgroup out of memory: ", CHILD))  # without the reason: dump_header is limited
    assert kills.new([PID]) == [
        "the kernel killed pid 43 (python): memory ran out, and cgroup /job is limited to 256 MiB"
    ]
    log.write(VICTIM.format("Memory cgroup out of memory: ", CHILD))
    assert kills.new([PID]) == []  # two looks ago: the number may be another process's by now


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (VICTIM.format("Out of memory: ", 4242), 3),  # of another tree
        (VICTIM.format("Out of memory: ", PID), 11),  # a program wrote it: facility 1
        (f"python[{PID}]: segfault at 0", 3),
    ],
)
def test_what_the_log_says_of_others_is_left_out(tmp_path, log, line, level):
    machine = Machine(tmp_path, 2)
    kills = OomKills(PID, log.log, machine.proc)
    log.write(line, level=level)
    assert kills.new([PID]) == []
    assert kills.explained(SIGKILL, [PID]) == ("killed by SIGKILL, and not because memory ran out", [])


def test_pids_of_a_namespace_are_not_those_of_the_log(tmp_path, log):
    machine = Machine(tmp_path, 2)
    (machine.proc / "self/ns/pid").unlink()
    (machine.proc / "self/ns/pid").symlink_to("pid:[4026532170]")
    kills = OomKills(PID, log.log, machine.proc)
    log.write(VICTIM.format("Out of memory: ", PID))
    assert kills.explained(SIGKILL, [PID]) == ("killed by SIGKILL, and not because memory ran out", [])


def test_a_real_cgroup_that_is_too_small(tmp_path):
    need_root()
    eats = "import time\nkept = []\nwhile True: kept.append(b'x' * (4 << 20)); time.sleep(0.01)"
    with limited_cgroup(64 * MIB) as (_, folder):
        process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.stdin.read(1)\n{eats}"], stdin=subprocess.PIPE
        )
        try:
            (folder / "cgroup.procs").write_text(str(process.pid))
            counted, named = (OomKills(process.pid, log) for log in (no_log(tmp_path), KernelLog()))
            process.communicate(b"x", 60)
            assert process.returncode == -9
        finally:
            process.kill()
            process.wait()
        how, texts = counted.explained(SIGKILL, [process.pid])
        assert how.startswith("killed by SIGKILL, probably by the kernel: ")
        assert how.endswith(f"cgroup /{folder.name} is limited to 64.0 MiB") or "reached its limit of 64.0 MiB" in how
        assert len(texts) == 1
        if not named._names_pids:
            pytest.skip("the log of this kernel cannot be read here: only its counter was")
        how, texts = named.explained(SIGKILL, [process.pid])
        assert how == f"killed by the kernel (SIGKILL): cgroup /{folder.name} reached its limit of 64.0 MiB"
        assert texts == []
