"""The trackers on other kernels than this machine's (``machine.py`` says which and how).

Worth trying: kernels with MEM_SOFT_DIRTY (most distributions), with 5-level paging (QEMU's processor has it), and old
ones, whose verifier refuses programs that newer ones take. The guest has swap, memory cgroups of version 2 and a file
system on a disk. Takes some ten minutes for each.
"""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from tests.lab.machine import ROOT, each_kernel, machine

# What depends on the kernel, and what stale translations would spoil: an emulated processor keeps very many of them.
CHOSEN = {
    "probes/test_pagetable.py": (
        "proves_itself or instructions or small_loop or first_window or resident_pages or huge_page or zero_page or "
        "made_inaccessible or two_thousand or growth_loses or older_kernels"
    ),
    "probes/test_direct_map.py": "two_walkers",
    "probes/test_parallel_walk.py": "leaves_out or files_are_cleared",
    "probes/test_tlb_flush.py": "both_flushes or either_flush or costs_the_target or longer_span",
    "probes/test_rearm.py": (
        "every_window or not_touched_again or no_list_yet or files_and_shared or cannot_be_cleared or locked or "
        "huge_page or large_folio or cheaper_way or ranges_are_all_taken"
    ),
    "probes/test_idle.py": "real or exact or again or touched or page or processes or generation or costs_nothing",
    "probes/test_trackers_agree.py": "",
    "probes/test_referenced.py": "counts_exactly or flush_is_proved or exec",
    "end_to_end/test_kinds_of_memory.py": "hugetlb or shared",
    "probes/test_disturbance.py": "real_limit",
    "probes/test_window_reader.py": "noticed or table_is or allocator or whatever_changes",
    "probes/test_reclaim.py": "swapped_out",
    "probes/test_memory_limits.py": "",
    "probes/test_oom_kills.py": "",
    "end_to_end/test_killed.py": "",
    "probes/test_damon.py": "real_kernel",
}
LEAST_PASSED = 70
SET_UP = """
uname -r
mkdir -p /tmp/disk
modprobe -qa loop ext4
truncate -s 640M /tmp/disk.image && mkfs.ext4 -qF /tmp/disk.image && mount -o loop /tmp/disk.image /tmp/disk
dd if=/dev/zero of=/tmp/disk/swap bs=1M count=192 status=none && chmod 600 /tmp/disk/swap
mkswap -q /tmp/disk/swap && swapon /tmp/disk/swap
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
export TMPDIR=/tmp/disk HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=default OMP_NUM_THREADS=1
"""


@pytest.mark.slow
@each_kernel
def test_the_shipped_program_tells_the_truth_there(kernel, tmp_path):
    guest = machine(kernel, tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", "--color=no", "--tb=short"]
    runs = [
        shlex.join([*command, f"tests/{name}", "-k", f"not fresh and ({tests})" if tests else "not fresh"])
        for name, tests in CHOSEN.items()
    ]
    said = guest.run(
        "\n".join([SET_UP, f"cd {shlex.quote(str(ROOT))}", *(f"{r} || bad=$?" for r in runs)]), seconds=2400
    )
    assert sum(map(int, re.findall(r"(\d+) passed", said))) >= LEAST_PASSED, said[-12000:]
    print(said[-12000:])
