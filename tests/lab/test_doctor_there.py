"""``doctor`` on other kernels (``machine.py`` says which), and that a guest writes to its scratch directory only."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.lab.machine import ROOT, each_kernel, machine
from tests.support.doctor_truth import assert_true, kernel_config

# A stock kernel does not tell its configuration; the packages of Debian have it beside the image.
SCRIPT = """
cd {root}
uname -r > $SCRATCH/release
zcat /proc/config.gz > $SCRATCH/config 2>/dev/null || cp {config} $SCRATCH/config
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
for who in root nobody; do
  as=; [ $who = root ] || as='setpriv --reuid=nobody --regid=nogroup --clear-groups'
  $as {python} -P -m memtui doctor --json > $SCRATCH/$who.json || bad=$?
  $as {python} -P -m memtui doctor > $SCRATCH/$who.txt || bad=$?
done
touch {outside} /etc/{name} /root/{name} 2>/dev/null
touch {root}/{name} 2>/dev/null
mount -o remount,rw / 2>/dev/null && touch {root}/{name} 2>/dev/null
ls {outside} && echo it-was-written-there
"""


@pytest.mark.slow
@each_kernel
def test_doctor_says_there_what_that_kernel_can(kernel, tmp_path):
    guest = machine(kernel, tmp_path)
    name = f"written-by-a-guest-{tmp_path.parent.name}-{tmp_path.name}"
    outside = tmp_path / name
    config = guest.kernel.replace("vmlinuz-", "config-")
    words = {"root": ROOT, "config": config, "python": sys.executable, "outside": outside, "name": name}
    said = guest.run(SCRIPT.format(**{k: shlex.quote(str(v)) for k, v in words.items()}), seconds=300)

    scratch = tmp_path / "scratch"
    options = kernel_config((scratch / "config").read_text())
    assert "PROC_PAGE_MONITOR" in options
    for who in ("root", "nobody"):
        findings, text = json.loads((scratch / f"{who}.json").read_text()), (scratch / f"{who}.txt").read_text()
        print(f"{who}:\n{text}")
        assert findings["host"]["kernel"] == (scratch / "release").read_text().strip()
        assert_true(findings, text, options, root=who == "root")

    assert "it-was-written-there" in said, "the guest has a layer of its own over this machine's files"
    for place in (outside, ROOT / name, f"/etc/{name}", f"/root/{name}"):
        assert not type(tmp_path)(place).exists(), place
