"""Prepares the process of a run's program (end with the worker, CPUs, cgroup) and then executes the program in it.

Run as ``python -m memtui.study.runs.program_launcher PARENT CPUS CGROUP PROGRAM...``: pid of the worker, CPU numbers
joined with commas, and a cgroup: the folder of a cgroup to join, the name of a cgroup that another process puts this
one into, or nothing. In a container of an engine the worker cannot be seen: PARENT is ``box:NAME`` there, and the
launcher waits for a line of input, the environment of the program as JSON, before it executes the program.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

CONTAINER_PARENT = "box:"
_PR_SET_PDEATHSIG = 1
_JOIN_SECONDS = 60.0


def command_line(cpus: Sequence[int], cgroup: str, program: Sequence[str], parent: str = "") -> tuple[str, ...]:
    """Return the command line of a launcher, for a child of this process or, with ``parent``, for a container."""
    listed = ",".join(map(str, cpus))
    return (
        sys.executable,
        "-P",
        "-m",
        "memtui.study.runs.program_launcher",
        parent or str(os.getpid()),
        listed,
        cgroup,
        *program,
    )


def main() -> int:
    """Return only when the program cannot be started."""
    parent, cpus, cgroup, *program = sys.argv[1:]
    if parent.startswith(CONTAINER_PARENT):
        line = sys.stdin.readline()
        if not line:
            return 1  # the worker ended before it was time
        os.environ.clear()
        os.environ.update(json.loads(line))
    else:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != int(parent):
            return 1  # the worker ended before this process started
    os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
    if cgroup.startswith("/"):
        Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
    elif cgroup and not _put_into(cgroup):
        print(f"nobody put this process into the cgroup {cgroup}", file=sys.stderr)
        return 1
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        print(f"{program[0]}: cannot be started: {error.strerror}", file=sys.stderr)
        return 126


def _put_into(name: str) -> bool:
    """Wait until this process is in the cgroup with this name: memory that it maps before is not counted there."""
    deadline_s = time.monotonic() + _JOIN_SECONDS
    while time.monotonic() < deadline_s:
        if any(line.endswith(f"/{name}") for line in Path("/proc/self/cgroup").read_text().splitlines()):
            return True
        time.sleep(0.01)
    return False


if __name__ == "__main__":
    sys.exit(main())
