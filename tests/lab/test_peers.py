"""What a sample costs beside MemSnoop's procedure and wss-v2, on a kernel with idle page tracking.

As ``test_other_kernels``: ``MEMTUI_LAB_KERNEL`` names the kernels. The virtual machine is emulated, so its times mean
nothing but beside each other.
"""

from __future__ import annotations

import json

import pytest

from benchmarks import peers
from benchmarks.table import Skip
from tests.lab.machine import each_kernel, machine


@pytest.mark.slow
@each_kernel
def test_a_sample_is_many_times_cheaper_than_one_of_memsnoops(kernel, tmp_path):
    try:
        said = peers.in_guest(machine(kernel, tmp_path).kernel, peers.GUEST_MEMORY[-1], "--json")
    except Skip as why:
        pytest.skip(str(why))
    print(said)
    for costs in json.loads(said).values():
        by_tool = {cost["tool"]: cost for cost in costs}
        memsnoop = by_tool[peers.MEMSNOOP]
        assert memsnoop["found"] > 0.9 * memsnoop["touched"], "the procedure is not what it should be"
        for name, times in peers.TIMES.items():
            ours = by_tool[name]
            assert ours["found"] == ours["touched"], name
            assert memsnoop["whole_ms"] >= times * ours["whole_ms"], name
