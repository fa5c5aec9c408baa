"""The kernel's direct map is found, whatever lies in memory.

Where a wrong candidate would have a page table lies the data of programs. Seen from there, every small integer with
the right two bits is an entry that maps the process's page directory where it is: 11 of 20 starts failed beside 14 GiB
of them, of 24, before a word of the process had to be found, too.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import psutil

from memtui.probes.pages.pagetable.walk import Walker
from tests.support.pagetable_targets import need_pagetable

PRESENT_LEAF = 0x81  # an entry that maps the first GiB
PROCESSES = 6  # each has its page directory in another place
FIND_IT = (
    "from memtui.core import single_threaded; from memtui.probes.pages.pagetable.proof import prove; print(prove())"
)


def test_small_integers_all_over_memory_are_not_taken_for_page_tables():
    need_pagetable()
    bait = np.full(psutil.virtual_memory().available // 4 // 8, PRESENT_LEAF, np.int64)
    for _ in range(PROCESSES):
        done = subprocess.run([sys.executable, "-c", FIND_IT], capture_output=True, text=True, check=True).stdout
        assert "ok=True" in done, done
    assert bait[-1] == PRESENT_LEAF


def test_two_walkers_find_the_same_one():
    need_pagetable()
    walkers = [Walker() for _ in range(2)]
    try:
        assert len({walker._memory.get("direct_map") for walker in walkers}) == 1
    finally:
        for walker in walkers:
            walker.close()
