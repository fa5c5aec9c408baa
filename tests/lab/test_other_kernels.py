"""The page-table tracker on other kernels than this machine's, booted in a virtual machine.

Set ``MEMTUI_LAB_KERNEL`` to images of kernels with BTF, separated by commas; ``debian`` means the stock kernel of this
Debian, which is fetched and unpacked below build/. They are booted with virtme-ng (PyPI) on QEMU in software, sharing
this machine's files read-only. Worth trying: kernels with MEM_SOFT_DIRTY (most distributions), with 5-level paging
(QEMU's processor has it), and old ones, whose verifier refuses programs that newer ones take. The guest has swap,
memory cgroups of version 2 and a file system on a disk. Takes some ten minutes for each.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from benchmarks.guest import boot
from benchmarks.table import Skip
from tests.lab.debian_kernel import NoKernel, fetch

VARIABLE = "MEMTUI_LAB_KERNEL"
KERNELS = [kernel for kernel in os.environ.get(VARIABLE, "").split(",") if kernel]
ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "kernels"
# What depends on the kernel, and what stale translations would spoil: an emulated processor keeps very many of them.
CHOSEN = {
    "test_pagetable.py": (
        "proves_itself or instructions or small_loop or first_window or resident_pages or huge_page or zero_page or "
        "made_inaccessible or two_thousand or growth_loses or older_kernels"
    ),
    "test_flush.py": "both_flushes or either_flush or costs_the_target or longer_span",
    "test_rearm.py": (
        "every_window or not_touched_again or no_list_yet or files_and_shared or cannot_be_cleared or locked or "
        "huge_page or large_folio or cheaper_way or ranges_are_all_taken"
    ),
    "test_idle.py": "real or exact or again or touched or agrees or page or processes or generation or costs_nothing",
    "test_referenced.py": "counts_exactly or flush_is_proved or exec",
    "test_kinds_of_memory.py": "hugetlb or shared",
    "test_disturbance.py": "real_limit",
    "test_mappings.py": "noticed or table_is",
    "test_reclaim.py": "swapped_out",
}
LEAST_PASSED = 40
# /tmp in the guest is memory, so nothing that is written there comes back.
SET_UP = """
uname -r
mkdir -p /tmp/disk
modprobe -qa loop ext4
truncate -s 640M /tmp/disk.image && mkfs.ext4 -qF /tmp/disk.image && mount -o loop /tmp/disk.image /tmp/disk
dd if=/dev/zero of=/tmp/disk/swap bs=1M count=192 status=none && chmod 600 /tmp/disk/swap
mkswap -q /tmp/disk/swap && swapon /tmp/disk/swap
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
export TMPDIR=/tmp/disk PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=default OMP_NUM_THREADS=1
"""


def image(kernel: str) -> str:
    """The kernel that a name stands for. Raises Skip where it cannot be had."""
    if kernel != "debian":
        return kernel
    try:
        return str(fetch(CACHE))
    except NoKernel as error:
        raise Skip(f"the stock kernel of Debian cannot be had: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS or [None])
def test_the_shipped_program_tells_the_truth_there(kernel, tmp_path):
    if not kernel:
        pytest.skip(f"set {VARIABLE} to kernel images, or to debian, to test on other kernels")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", "--color=no", "--tb=short"]
    runs = [shlex.join([*command, f"tests/{name}", "-k", f"not fresh and ({tests})"]) for name, tests in CHOSEN.items()]
    script = "\n".join(
        [SET_UP, f"cd {shlex.quote(str(ROOT))}; bad=0", *(f"{r} || bad=$?" for r in runs), "echo guest-status=$bad"]
    )
    console = tmp_path / "console"
    print(f"{kernel}: tail -f {console}", flush=True)
    try:
        said = boot(image(kernel), script, console)[-12000:]
    except Skip as why:
        pytest.skip(str(why))
    assert "guest-status=0" in said, said
    assert sum(map(int, re.findall(r"(\d+) passed", said))) >= LEAST_PASSED, said
    print(said)
