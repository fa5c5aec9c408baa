"""A virtual machine with two NUMA nodes: a program that runs on one and whose memory lies on the other is found."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.lab.machine import ROOT, each_kernel, machine

# MPOL_BIND: all memory from here on comes from one node.
PROGRAM = """
import ctypes, mmap, os, platform, sys
cpu, node = int(sys.argv[1]), int(sys.argv[2])
os.sched_setaffinity(0, {cpu})
number = {"x86_64": 238, "aarch64": 237}[platform.machine()]
mask = ctypes.c_ulong(1 << node)
assert ctypes.CDLL(None, use_errno=True).syscall(number, 2, ctypes.byref(mask), 64) == 0
memory = mmap.mmap(-1, 192 << 20)
for start in range(0, len(memory), 1 << 20):
    memory[start : start + (1 << 20)] = b"x" * (1 << 20)
while True:
    for place in range(0, len(memory), 4096):
        memory[place] = 1
"""


@pytest.mark.slow
@each_kernel
def test_pages_of_the_other_node_are_found_and_those_of_its_own_are_not(kernel, tmp_path):
    there = machine(kernel, tmp_path)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    memtui = shlex.join([sys.executable, "-m", "memtui"])
    runner = shlex.join([sys.executable, str(program)])
    # An emulated processor takes a tenth of a second for a reading, and rests a thousand times as long.
    script = f"""
cat /sys/devices/system/node/has_memory
export PYTHONPATH={ROOT} PYTHONDONTWRITEBYTECODE=1
for node in 1 0; do
    {memtui} record --interval 5 --max-overhead none --duration 300 -o /tmp/$node.memtui -- {runner} 0 $node || bad=$?
    {memtui} report --json /tmp/$node.memtui > $SCRATCH/$node.json || bad=$?
    {memtui} report /tmp/$node.memtui
    {memtui} export /tmp/$node.memtui --to csv -o /tmp/$node && cp /tmp/$node/numa_use.csv $SCRATCH/$node.csv || bad=$?
done
"""
    there.run(script, seconds=2400, nodes=("1G,cpus=0", "1G,cpus=1"))
    other, own = (_numa(tmp_path / "scratch" / f"{node}.json") for node in (1, 0))
    assert other["finding"]["sentence"].startswith("It runs on NUMA node 0, and ")
    assert "lies on node 1" in other["finding"]["sentence"]
    assert (own["measured"], own["finding"]) == (True, None)
    header, *rows = (tmp_path / "scratch" / "1.csv").read_text().splitlines()
    assert header == "t_ns,pid,node,pages,threads"
    assert len({row.split(",")[2] for row in rows}) == 2


def _numa(report: Path) -> dict:
    (check,) = [check for check in json.loads(report.read_text())["verdict"]["checks"] if check["rule"] == "numa"]
    return check
