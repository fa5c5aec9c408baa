"""Whether reclaim is near: read from recorded trees of both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.probes.memory_pressure import reclaim_is_near
from tests.support.folders import put

PID = 42
MIB = 1 << 20


@pytest.fixture
def proc(tmp_path) -> Path:
    proc, top = tmp_path / "proc", tmp_path / "cgroup"
    put(proc / "meminfo", "MemTotal:  1000 kB\nMemAvailable:  500 kB\nSwapTotal:  64 kB\n")
    put(
        proc / "self/mountinfo",
        f"35 31 0:32 / {top}/v1 rw - cgroup none rw,memory\n41 31 0:3 / {top}/v2 rw - cgroup2 x rw\n",
    )
    return proc


def group(proc: Path, version: int, used: int, inactive_file: int = 0, limit: str = str(100 * MIB)) -> None:
    """The process sits in a/b; the limit is on a."""
    top = proc.parent / f"cgroup/v{version}"
    put(proc / str(PID) / "cgroup", "4:memory:/a/b\n" if version == 1 else "0::/a/b\n")
    names = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")}
    names[2] = "memory.max", "memory.current", "inactive_file"
    for name, most in (("a", limit), ("a/b", "max" if version == 2 else str(1 << 62))):
        put(top / name / names[version][0], most + "\n")
        put(top / name / names[version][1], f"{used}\n")
        put(top / name / "memory.stat", f"anon 5\n{names[version][2]} {inactive_file}\n")


def test_without_swap_nothing_is_swapped_out(proc):
    put(proc / "meminfo", "MemTotal:  1000 kB\nMemAvailable:  5 kB\nSwapTotal:  0 kB\n")
    assert not reclaim_is_near(PID, proc)


def test_little_memory_on_the_machine(proc):
    assert not reclaim_is_near(PID, proc)
    put(proc / "meminfo", "MemTotal:  1000 kB\nMemAvailable:  99 kB\nSwapTotal:  64 kB\n")
    assert reclaim_is_near(PID, proc)


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_near_its_limit(proc, version):
    group(proc, version, 89 * MIB)
    assert not reclaim_is_near(PID, proc)
    group(proc, version, 91 * MIB)
    assert reclaim_is_near(PID, proc)
    group(proc, version, 91 * MIB, inactive_file=20 * MIB)
    assert not reclaim_is_near(PID, proc), "files go first"


def test_no_limit_and_nothing_to_read(proc):
    group(proc, 2, 91 * MIB, limit="max")
    assert not reclaim_is_near(PID, proc)
    assert not reclaim_is_near(PID + 1, proc)
    assert not reclaim_is_near(PID, proc.parent / "nowhere")
