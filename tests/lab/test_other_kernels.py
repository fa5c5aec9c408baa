"""The page-table tracker on another kernel than this machine's, booted in a virtual machine.

Set ``MEMTUI_LAB_KERNEL`` to a kernel image with BTF and 9p; it is booted with virtme-ng (PyPI) on QEMU in software,
sharing this machine's files read-only. Worth trying: kernels with MEM_SOFT_DIRTY (most distributions), with 5-level
paging (QEMU's processor has it), and old ones. Takes minutes.
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

VARIABLE = "MEMTUI_LAB_KERNEL"
ROOT = Path(__file__).parents[2]
# What depends on the kernel, and what stale translations would spoil: an emulated processor keeps very many of them.
CHOSEN = (
    "proves_itself or small_loop or first_window or resident_pages or huge_page or made_inaccessible or zero_page or "
    "two_thousand or growth_loses or older_kernels or both_flushes or either_flush or costs_the_target or longer_span"
)


@pytest.mark.slow
def test_the_shipped_program_tells_the_truth_there(tmp_path):
    kernel = os.environ.get(VARIABLE)
    if not kernel:
        pytest.skip(f"set {VARIABLE} to a kernel image to test on another kernel")
    search = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    vng = shutil.which("vng", path=search)
    if not vng or not shutil.which("qemu-system-x86_64"):
        pytest.skip("booting another kernel needs virtme-ng (pip install virtme-ng) and qemu-system-x86_64")

    tests = [str(ROOT / "tests" / name) for name in ("test_pagetable.py", "test_flush.py")]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", "--color=no", "--tb=short"]
    command += [*tests, "-k", f"not fresh and ({CHOSEN})"]
    # /tmp in the guest is a copy-on-write view of this machine's, so nothing that is written there comes back.
    environment = "PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=default OMP_NUM_THREADS=1"
    script = f"uname -r; cd {shlex.quote(str(ROOT))} && {environment} {shlex.join(command)}; echo guest-status=$?"
    where = tmp_path / "guest.sh"
    where.write_text(script)
    machine = ["--disable-kvm", "--force-9p", "--cpus", "2", "--memory", "2G", "--verbose", "--cwd", str(ROOT)]
    # The guest's console comes out on either stream, depending on whether there is a terminal.
    done = subprocess.run(
        [sys.executable, vng, "--run", kernel, *machine, "--exec", f"bash {where} 2>&1"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env=os.environ | {"PATH": search}, timeout=1200,
    )  # fmt: skip
    # The exit status of the machine is not that of the script, hence the line that it prints.
    said = done.stdout[-6000:]
    assert "guest-status=0" in said, said
    passed = re.search(r"(\d+) passed", said)
    assert passed, said
    assert int(passed[1]) >= 15, said
    print(said)
