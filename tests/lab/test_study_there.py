"""``study fast-memory`` on other kernels (``machine.py``): memory cgroups of version 2, and of 1 if it has them.

The guest is emulated, so its times mean nothing; how many pages come from swap does not depend on them. Its swap file
lies in memory, because the files of this machine are another machine's to it.
"""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.lab.machine import ROOT, each_kernel, machine

pytest.importorskip("matplotlib")

STEP = 512  # touches; sixteen steps go once round the ring
SCRIPT = """
cd {root}
export PYTHONPATH={root} PYTHONDONTWRITEBYTECODE=1 XDG_STATE_HOME=/tmp/state MPLCONFIGDIR=/tmp/mpl
study() {{
    {python} -P -m memtui study fast-memory --quick --cpus 1 --seconds 25 -o /tmp/$1 --json -- \
        {python} -P -m memtui.study.workloads.known_accesses cyclic \
        --pages {pages} --per-step {step} --pause-seconds 0.4
}}
nothing_left() {{
    grep -q loop /proc/swaps && bad=1
    ls -d $1/memtui-limit-* 2>/dev/null && bad=1
    cat /sys/block/loop*/loop/backing_file 2>/dev/null && bad=1
    cat /proc/swaps
}}
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
echo -memory > /sys/fs/cgroup/cgroup.subtree_control
study refused; [ $? = 2 ] || bad=1
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
study two > $SCRATCH/two.json || bad=1
nothing_left /sys/fs/cgroup
echo -memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir -p /tmp/memory
if mount -t cgroup -o memory none /tmp/memory; then
    study one > $SCRATCH/one.json || bad=1
    nothing_left /tmp/memory
fi
"""


@pytest.mark.slow
@each_kernel
def test_a_ring_in_too_little_memory_is_brought_in_as_the_curve_says(kernel, tmp_path):
    words = {"root": shlex.quote(str(ROOT)), "python": shlex.quote(sys.executable), "pages": 16 * STEP, "step": STEP}
    said = machine(kernel, tmp_path).run(SCRIPT.format(**words), seconds=3000, memory="3G")
    assert "does not hand on the memory controller (echo +memory > cgroup.subtree_control)" in said
    for version, name in ((2, "two"), (1, "one")):
        path = tmp_path / "scratch" / f"{name}.json"
        if version == 1 and not path.exists():
            print("this kernel has no memory cgroups of version 1")
            continue
        document = json.loads(path.read_text())
        print("\n".join(document["conclusion"] + document["doubts"]))
        numbers = document["numbers"]
        assert numbers["cgroup_version"] == [version]
        free, *limited = numbers["programs"]["the program"]["points"]
        assert free["major_faults"]["median"] < 0.01 * STEP
        for point in limited:
            assert point["runs"] == 2
            assert point["room_bytes"] < point["limit_bytes"]
            low, high = point["predicted"]
            assert 0.8 * STEP < low <= high < 1.25 * STEP, point
            assert 0.3 * STEP < point["swapped_in"]["median"] < 3 * STEP, point
