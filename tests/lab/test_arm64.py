"""The page-table tracker on arm64, in software: Debian's kernels with tables of four and of five levels."""

from __future__ import annotations

import json
import os
import re
import shlex

import pytest

from tests.lab.arm64_machine import fetch
from tests.lab.debian_kernel import NoKernel
from tests.lab.machine import ROOT, cache

VARIABLE = "MEMTUI_LAB_ARM64"
FOUR, FIVE, LARGE = "linux-image-cloud-arm64", "linux-image-6.12-cloud-arm64", "linux-image-6.12-arm64-16k"
# A processor that has no access flag of its own: the kernel sets it in a fault.
OLD, NEW = "cortex-a57", "max,pauth-impdef=on"
SET_UP = """
uname -a
echo madvise > /sys/kernel/mm/transparent_hugepage/enabled
mount -t cgroup2 none /sys/fs/cgroup
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
"""
CHOSEN = {
    "probes/test_pagetable.py": (
        "not fresh and (proves_itself or instructions or small_loop or first_window or resident_pages or huge_page or "
        "zero_page or two_thousand or growth_loses or older_kernels)"
    ),
    "probes/test_trackers_agree.py": "referenced",
    "probes/test_tlb_flush.py": "not cold and (either_flush or arm64)",
    "probes/test_contiguous_entries.py": "sixteen",
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"set {VARIABLE}=1 to boot arm64 kernels in software"),
]


def boot(package: str, processor: str, script: str, folder) -> str:
    try:
        guest = fetch(cache(), package)
    except NoKernel as error:
        pytest.skip(f"no arm64 machine can be made here: {error}")
    files = {name: ROOT / name for name in ("memtui", "tests", "pyproject.toml")}
    return guest.run(f"{SET_UP}\n{script}", files, folder, processor=processor, seconds=1800)


def doctor(said: str) -> dict:
    return json.loads(re.search(r"^{$.*?^}$", said.replace("\r", ""), re.M | re.S)[0])


@pytest.mark.parametrize(("package", "processor"), [(FOUR, NEW), (FIVE, NEW), (FIVE, OLD)])
def test_the_page_tables_tell_the_truth_there(package, processor, tmp_path):
    command = "python3 -m pytest -p no:cacheprovider -q -rs --color=no --tb=short"
    runs = [f"{command} tests/{name} -k {shlex.quote(k)} || bad=$?" for name, k in CHOSEN.items()]
    said = boot(package, processor, "\n".join(["python3 -m memtui doctor --json", *runs]), tmp_path)
    print(said[-6000:])
    findings = doctor(said)
    assert findings["host"]["architecture"] == "aarch64"
    assert [findings["auto"][key] for key in ("tracker", "flush", "rearm")] == ["pagetable", "soft-dirty", "full"]
    (cold,) = [found for found in findings["flushes"] if found["name"] == "cold"]
    assert not cold["ok"]
    assert "what MADV_COLD flushes on arm64" in cold["reason"]
    assert sum(map(int, re.findall(r"(\d+) passed", said))) >= 12, said[-6000:]


def test_pages_of_16_kib_are_refused_with_the_reason(tmp_path):
    findings = doctor(boot(LARGE, NEW, "python3 -m memtui doctor --json", tmp_path))
    trackers = {found["name"]: found for found in findings["trackers"]}
    assert findings["auto_tracker"] == "rss"
    for name in ("pagetable", "referenced"):
        assert "those of this kernel are of 16 KiB" in trackers[name]["reason"]
        assert trackers[name]["remedy"] == "a kernel with pages of 4 KiB"
