"""Placement on a machine with two NUMA nodes, which a kernel makes of one (``numa=fake=2``).

As ``test_other_kernels``: ``MEMTUI_LAB_KERNEL`` names the kernels; one without CONFIG_NUMA_EMU has one node only, and
is skipped. The guest is emulated, so its times mean nothing but beside each other, and importing torch takes it a
minute or two.
"""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.lab.machine import ROOT, each_kernel, machine

pytest.importorskip("torch")

SCRIPT = """
nodes=$(cat /sys/devices/system/node/has_memory)
echo memory on nodes: $nodes
cd {root}
export PYTHONPATH={root} PYTHONDONTWRITEBYTECODE=1 XDG_STATE_HOME=/tmp/state
place() {{ {python} -P -m memtui place "$@" --no-config; }}
pools() {{ place profile mlp --mode isolated --no-tui --batch 4 --seconds 0.001 --threads 1 "$@"; }}
if [ $nodes = 0-1 ]; then
    pools --pools numa:0,numa:1 -o /tmp/p.memtui || bad=$?
    place solve /tmp/p.memtui --ratio 1:1 --run --json > $SCRATCH/run.json || bad=$?
    pools --pools dram,numa:2 -o /tmp/q.memtui
    [ $? = 2 ] || bad=1
fi
"""


@pytest.mark.slow
@each_kernel
def test_the_second_node_is_another_pool_and_a_plan_puts_pages_there(kernel, tmp_path):
    script = SCRIPT.format(root=shlex.quote(str(ROOT)), python=shlex.quote(sys.executable))
    said = machine(kernel, tmp_path).run(script, seconds=1800, memory="3G", words="numa=fake=2")
    if "memory on nodes: 0-1" not in said:
        pytest.skip("this kernel makes no second node")
    assert "numa:2: there is no memory on node 2: this machine has some on 0, 1" in said
    assert "isolated: 148 configurations" in said
    ran = json.loads((tmp_path / "scratch" / "run.json").read_text())
    plan, touched = ran["run"]
    assert not ran["emulated"]
    for each in (plan, touched):
        assert each["equal"]
        # Every page of what lies in a pool is on its node, as move_pages tells after the last run.
        assert each["pages"]["numa:0"] == {"0": each["fast_bytes"] // 4096}
        assert each["pages"]["numa:1"] == {"1": each["slow_bytes"] // 4096}
        assert each["slow_bytes"] > 0
    print(json.dumps(ran["run"], indent=2))
