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
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    "test_damon.py": "real_kernel",
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


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS or [None])
def test_the_shipped_program_tells_the_truth_there(kernel, tmp_path):
    if not kernel:
        pytest.skip(f"set {VARIABLE} to kernel images, or to debian, to test on other kernels")
    search = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    vng = shutil.which("vng", path=search)
    if not vng or not shutil.which("qemu-system-x86_64"):
        pytest.skip("booting another kernel needs virtme-ng (pip install virtme-ng) and qemu-system-x86_64")
    if kernel == "debian":
        try:
            kernel = str(fetch(CACHE))
        except NoKernel as error:
            pytest.skip(f"the stock kernel of Debian cannot be had: {error}")

    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", "--color=no", "--tb=short"]
    runs = [shlex.join([*command, f"tests/{name}", "-k", f"not fresh and ({tests})"]) for name, tests in CHOSEN.items()]
    script = "\n".join(
        [SET_UP, f"cd {shlex.quote(str(ROOT))}; bad=0", *(f"{r} || bad=$?" for r in runs), "echo guest-status=$bad"]
    )
    where = tmp_path / "guest.sh"
    where.write_text(script)
    machine = ["--disable-kvm", "--force-9p", "--cpus", "2", "--memory", "2G", "--verbose", "--cwd", str(ROOT)]
    # The guest's console comes out on either stream, depending on whether there is a terminal.
    console = tmp_path / "console"
    print(f"{kernel}: tail -f {console}", flush=True)
    with console.open("wb") as output:
        subprocess.run(
            [sys.executable, vng, "--run", kernel, *machine, "--exec", f"bash {where} 2>&1"],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=os.environ | {"PATH": search}, timeout=2400,
        )  # fmt: skip
    # The exit status of the machine is not that of the script, hence the line that it prints.
    said = console.read_text(errors="replace")[-12000:]
    assert "guest-status=0" in said, said
    assert sum(map(int, re.findall(r"(\d+) passed", said))) >= LEAST_PASSED, said
    print(said)
