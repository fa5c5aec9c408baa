"""A program that its memory cgroup kills on other kernels (``machine.py``), where cgroups are of version 2."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.lab.machine import ROOT, each_kernel, machine
from tests.support.cgroups import EATS

SCRIPT = """
cd {root}
export PYTHONPATH={root} PYTHONDONTWRITEBYTECODE=1
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control || bad=1
mkdir -p /sys/fs/cgroup/job/step && echo +memory > /sys/fs/cgroup/job/cgroup.subtree_control || bad=1
echo 1G > /sys/fs/cgroup/job/memory.max
{python} -m memtui record --interval 5 -o /tmp/s.memtui -- \
    sh -c 'echo $$ > /sys/fs/cgroup/job/step/cgroup.procs; exec "$0" -c "$1"' {python} {program} 2> $SCRATCH/stderr
echo $? > $SCRATCH/status
cat /sys/fs/cgroup/job/memory.events
{python} -m memtui report --json /tmp/s.memtui > $SCRATCH/report.json || bad=1
"""


@pytest.mark.slow
@each_kernel
def test_the_last_line_says_what_killed_it(kernel, tmp_path):
    """The limit is that of the parent of its cgroup, as in a container or a job of Slurm."""
    words = {"root": ROOT, "python": sys.executable, "program": EATS}
    machine(kernel, tmp_path).run(
        SCRIPT.format(**{name: shlex.quote(str(word)) for name, word in words.items()}), seconds=1200, memory="3G"
    )
    scratch = tmp_path / "scratch"
    assert (scratch / "status").read_text() == f"{128 + 9}\n"
    last = (scratch / "stderr").read_text().splitlines()[-1]
    assert last.startswith("memtui record: target killed by the kernel (SIGKILL): ")
    assert "/job" in last
    assert "1.00 GiB" in last
    assert "resident memory went from" in last
    assert "anonymous memory by" in last
    report = json.loads((scratch / "report.json").read_text())
    assert f"target {report['end_reason']}; " in last
    grown = report["post_mortem"]
    assert grown["last_bytes"] - grown["first_bytes"] > 200 << 20
    assert grown["grown"][0]["name"] == "anonymous memory"
