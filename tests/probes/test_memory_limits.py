"""The limit that leaves least: of recorded machines with cgroups of both versions, and of a real cgroup."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memtui.analysis.limit_forecast import whose_limit
from memtui.core.procfs import PF_EXITING
from memtui.core.readings import MemoryLimit
from memtui.probes.memory_limits import EVERY_NS, MemoryLimits
from tests.support.cgroups import limited_cgroup
from tests.support.folders import put
from tests.support.pagetable_targets import need_root
from tests.support.proc_trees import write_process

PID = 42
MIB = 1 << 20
NONE = {1: str(0x7FFFFFFFFFFFF000), 2: "max"}


class Machine:
    """A machine of 1000 MiB of which 400 are available; the process sits in /job/step."""

    def __init__(self, folder: Path, version: int, root: str = "/") -> None:
        self.proc, self.top, self.version = folder / "proc", folder / "cgroup", version
        kind = {1: "cgroup none rw,memory", 2: "cgroup2 none rw"}[version]
        put(self.proc / "self/mountinfo", f"35 31 0:32 {root} {self.top} rw - {kind}\n")
        put(self.proc / str(PID) / "cgroup", "4:memory:/job/step\n" if version == 1 else "0::/job/step\n")
        self.flags(0)
        self.memory(free=100, available=400)
        for name in ("job", "job/step"):
            self.group(name)

    def flags(self, flags: int) -> None:
        """Set the process's flags of the kernel (PF_EXITING)."""
        write_process(self.proc, PID, "x", 1, 0, flags=flags)

    def memory(self, *, free: int, available: int, swap: int = 0) -> None:
        sizes = {"MemTotal": 1000, "MemFree": free, "MemAvailable": available, "SwapTotal": swap, "SwapFree": swap}
        put(self.proc / "meminfo", "".join(f"{name}:  {mib << 10} kB\n" for name, mib in sizes.items()))

    def group(self, name: str, limit: int | None = None, used: int = 0, cache: int = 0, swap=(None, 0)) -> None:
        """``swap``: how much may be swapped out, and how much is; all in MiB."""
        group, most = self.top / name, NONE[self.version] if limit is None else str(limit * MIB)
        if self.version == 2:
            files = {"memory.max": most, "memory.current": str(used * MIB), "memory.swap.current": str(swap[1] * MIB)}
            files["memory.swap.max"] = "max" if swap[0] is None else str(swap[0] * MIB)
        else:
            files = {"memory.limit_in_bytes": most, "memory.usage_in_bytes": str(used * MIB)}
            both = NONE[1] if swap[0] is None else str(((limit or 0) + swap[0]) * MIB)
            files |= {"memory.memsw.limit_in_bytes": both, "memory.memsw.usage_in_bytes": str((used + swap[1]) * MIB)}
        total = "total_" if self.version == 1 else ""
        lines = f"anon 5\n{total}active_file {cache * MIB // 4}\n{total}inactive_file {cache * MIB * 3 // 4}\n"
        for file, text in (files | {"memory.stat": lines}).items():
            put(group / file, f"{text}\n")

    def read(self) -> MemoryLimit | None:
        return MemoryLimits(PID, self.proc).read(7)


@pytest.fixture(params=[1, 2])
def machine(request, tmp_path) -> Machine:
    return Machine(tmp_path, request.param)


def test_without_limits_of_cgroups_the_machine_has_one(machine):
    limit = machine.read()
    assert limit == MemoryLimit(7, "", 1000 * MIB, 900 * MIB, 300 * MIB, 0)
    assert (limit.needed_bytes, limit.left_bytes) == (600 * MIB, 400 * MIB)


def test_the_cgroup_that_leaves_least_counts(machine):
    machine.group("job", 300, used=250, cache=100)
    assert machine.read() == MemoryLimit(7, "/job", 300 * MIB, 250 * MIB, 100 * MIB, 0)
    machine.group("job/step", 200, used=180, cache=4)
    limit = machine.read()
    assert limit == MemoryLimit(7, "/job/step", 200 * MIB, 180 * MIB, 4 * MIB, 0)
    assert limit.left_bytes == 24 * MIB
    machine.memory(free=5, available=20)
    assert machine.read().cgroup == ""


POD, ID = "0123abcd-1111-2222-3333-444455556666", "1a2b3c4d5e6f" + 52 * "0"
SLICE = f"kubepods-burstable-pod{POD.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("version", "limited", "below", "whose"),
    [
        (1, "slurm/uid_1000/job_77", "step_0/task_0", "Slurm job 77"),
        (1, "slurm/uid_1000/job_77/step_batch", "task_0", "step batch of Slurm job 77"),
        (2, "system.slice/slurmstepd.scope/job_77", "step_0/user/task_0", "Slurm job 77"),
        (2, "system.slice/slurmstepd.scope/job_77/step_0", "user/task_0", "step 0 of Slurm job 77"),
        (1, f"kubepods/burstable/pod{POD}", ID, "Kubernetes pod 0123abcd"),
        (1, f"kubepods/pod{POD}/{ID}", "", "a container of Kubernetes pod 0123abcd"),
        (2, f"kubepods.slice/kubepods-burstable.slice/{SLICE}", f"cri-{ID}.scope", "Kubernetes pod 0123abcd"),
        (2, f"kubepods.slice/{SLICE}/cri-containerd-{ID}.scope", "", "a container of Kubernetes pod 0123abcd"),
        (1, f"docker/{ID}", "", "Docker container 1a2b3c4d5e6f"),
        (2, f"system.slice/docker-{ID}.scope", "init", "Docker container 1a2b3c4d5e6f"),
        (2, f"machine.slice/libpod-{ID}.scope", "container", "Podman container 1a2b3c4d5e6f"),
        (2, "user.slice/user-1000.slice", "app.slice", "cgroup /user.slice/user-1000.slice"),
    ],
)
def test_limits_of_those_who_start_programs_are_found_and_have_their_name(version, limited, below, whose, tmp_path):
    """Slurm's, Kubernetes', of containers: the limit lies on any level above the process."""
    machine = Machine(tmp_path, version)
    path = f"/{limited}/{below}".rstrip("/")
    put(machine.proc / str(PID) / "cgroup", f"4:memory:{path}\n" if version == 1 else f"0::{path}\n")
    names = path.strip("/").split("/")
    for depth in range(1, len(names) + 1):
        machine.group("/".join(names[:depth]))
    machine.group(limited, 300, used=250)
    limit = machine.read()
    assert (limit.cgroup, limit.left_bytes) == (f"/{limited}", 50 * MIB)
    assert whose_limit(limit.cgroup) == whose


def test_swap_is_room(machine):
    machine.memory(free=100, available=400, swap=50)
    assert machine.read().left_bytes == 450 * MIB
    machine.group("job", 300, used=250)
    assert machine.read() == MemoryLimit(7, "/job", 300 * MIB, 250 * MIB, 0, 50 * MIB)
    machine.group("job", 300, used=250, swap=(30, 10))
    assert machine.read().swap_bytes == 20 * MIB
    machine.group("job", 300, used=250, swap=(0, 0))
    assert machine.read().swap_bytes == 0


def test_in_a_container_the_topmost_cgroup_has_the_limit(tmp_path):
    """Its own cgroup is all that it sees: with version 2 as the root, with version 1 under its path on the machine."""
    for version, root, path in ((1, "/docker/1a", "/docker/1a"), (2, "/", "/")):
        machine = Machine(tmp_path / str(version), version, root)
        put(machine.proc / str(PID) / "cgroup", f"4:memory:{path}\n" if version == 1 else f"0::{path}\n")
        machine.group(".", 128, used=100, cache=20)
        assert machine.read() == MemoryLimit(7, path, 128 * MIB, 100 * MIB, 20 * MIB, 0)


def test_the_boundary_that_throttles_is_the_one_that_leaves_least(machine):
    """memory.high, which version 2 has; what is killed for is another limit."""
    machine.group("job", 300, used=250)
    assert machine.read().high_cgroup == ""
    for name, high in (("job", 280 * MIB), ("job/step", 200 * MIB)):
        put(machine.top / name / "memory.high", f"{high}\n")
        put(machine.top / name / "memory.events", "low 0\nhigh 9\nmax 0\n")
    put(machine.top / "job/memory.events.local", "low 0\nhigh 5\nmax 3\n")
    limit = machine.read()
    assert (limit.cgroup, limit.limit_bytes) == ("/job", 300 * MIB)
    boundary = limit.high_cgroup, limit.high_bytes, limit.high_used_bytes, limit.high_events
    assert boundary == (("/job", 280 * MIB, 250 * MIB, 5) if machine.version == 2 else ("", None, None, None))
    machine.group("job/step", used=195)
    put(machine.top / "job/step/memory.high", f"{200 * MIB}\n")
    assert machine.read().high_events == (9 if machine.version == 2 else None), "an old kernel has no local ones"
    put(machine.top / "job/step/memory.high", "max\n")
    assert machine.read().high_cgroup == ("/job" if machine.version == 2 else "")


def test_how_long_tasks_waited_for_memory(machine):
    """That of the cgroup where it is counted (version 2), else that of the machine."""
    text = "some avg10=1.50 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    machine.group("job", 300, used=250)
    put(machine.proc / "pressure/memory", text.format(70, 30))
    put(machine.top / "job/memory.pressure", text.format(5, 4))
    limit = machine.read()
    stalls = limit.stall_cgroup, limit.some_stall_ns, limit.full_stall_ns
    assert stalls == (("/job", 5000, 4000) if machine.version == 2 else ("", 70_000, 30_000))
    (machine.top / "job/memory.pressure").unlink()
    put(machine.proc / "pressure/memory", "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\n")
    limit = machine.read()
    assert (limit.stall_cgroup, limit.some_stall_ns, limit.full_stall_ns) == ("", 9000, None)
    (machine.proc / "pressure/memory").unlink()
    assert machine.read().some_stall_ns is None


def test_pages_that_were_read_again_are_counted(machine):
    assert machine.read().refaults is None, "this kernel does not count them"
    put(machine.proc / "vmstat", "nr_free_pages 5\nworkingset_refault_anon 4\nworkingset_refault_file 30\n")
    assert machine.read().refaults == 34
    put(machine.proc / "vmstat", "workingset_refault 7\nworkingset_activate 3\n")  # before Linux 5.9
    assert machine.read().refaults == 7
    machine.group("job", 300, used=250)
    assert machine.read().refaults is None
    stat = machine.top / "job/memory.stat"
    total = "total_" * (machine.version == 1)
    counts = f"{total}workingset_refault_anon 2\n{total}workingset_refault_file 20\n"
    put(stat, stat.read_text() + "workingset_refault_file 1\n" * (machine.version == 1) + counts)
    assert machine.read().refaults == 22


@pytest.mark.parametrize(("text", "adjustment"), [("-1000\n", -1000), ("0\n", 0), ("300\n", 300), ("", None)])
def test_what_the_kernel_looks_at_when_it_kills(machine, text, adjustment):
    assert machine.read().oom_score_adj is None, "there is no such file"
    put(machine.proc / str(PID) / "oom_score_adj", text)
    assert machine.read().oom_score_adj == adjustment


def test_the_adjustment_of_a_real_process():
    with subprocess.Popen(["sleep", "100"]) as child:
        Path(f"/proc/{child.pid}/oom_score_adj").write_text("321")
        read = MemoryLimits(child.pid).read(7)
        child.kill()
    assert read.oom_score_adj == 321


def test_a_process_that_is_gone_leaves_the_machine(machine):
    (machine.proc / str(PID) / "cgroup").unlink()
    machine.group("job", 300, used=299)
    assert machine.read().cgroup == ""


def test_nothing_can_be_read(tmp_path):
    assert MemoryLimits(PID, tmp_path).read(7) is None
    assert MemoryLimits(PID, tmp_path).poll(7) == ()


def test_it_is_read_now_and_then(machine):
    limits = MemoryLimits(PID, machine.proc)
    assert [len(limits.poll(t_ns)) for t_ns in (1, EVERY_NS, EVERY_NS + 1, EVERY_NS + 2)] == [1, 0, 1, 0]


def test_a_process_that_is_ending_has_left_its_cgroup(machine):
    """The kernel shows the topmost cgroup then, and its limit would be taken for that of the program."""
    machine.group("job", 300, used=299)
    limits = MemoryLimits(PID, machine.proc)
    assert [limit.cgroup for limit in limits.poll(1)] == ["/job"]
    put(machine.proc / str(PID) / "cgroup", "4:memory:/\n" if machine.version == 1 else "0::/\n")
    machine.flags(PF_EXITING)
    assert limits.poll(1 + EVERY_NS) == ()


def test_a_real_cgroup_of_which_the_use_is_known():
    need_root()
    eats = "import sys; kept = b'x' * (64 << 20); print(flush=True); sys.stdin.read()"
    with limited_cgroup(256 * MIB) as (_, folder):
        program = f'echo $$ > {folder}/cgroup.procs; exec "$0" -c "$1"'
        argv = ["sh", "-c", program, sys.executable, eats]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            limit = MemoryLimits(process.pid).read(7)
            process.stdin.close()
            process.wait()
    assert limit.cgroup.endswith(folder.name)
    assert limit.limit_bytes == 256 * MIB
    assert 64 * MIB <= limit.needed_bytes < 100 * MIB
