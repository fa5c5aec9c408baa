"""A program that its memory cgroup kills: a recording says of what it died and what grew."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.cgroups import EATS, limited_cgroup
from tests.support.pagetable_targets import need_root

pytestmark = pytest.mark.real_clock  # one that is read from outside while it eats


def test_the_last_line_says_what_killed_it(tmp_path):
    need_root()
    path = tmp_path / "s.memtui"
    with limited_cgroup(128 << 20) as (_, folder):
        program = f'echo $$ > {folder}/cgroup.procs; exec "$0" -c "$1"'
        memtui = [sys.executable, "-m", "memtui"]
        done = subprocess.run(
            [*memtui, "record", "--interval", "0.2", "-o", path, "--", "sh", "-c", program, sys.executable, EATS],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 128 + 9
        last = done.stderr.splitlines()[-1]
        # The kernel's log names the cgroup where it may be read; else its counter does.
        named, counted = "killed by the kernel (SIGKILL): ", "killed by SIGKILL, probably by the kernel: "
        assert last.startswith((f"memtui record: target {named}", f"memtui record: target {counted}"))
        assert folder.name in last
        assert "128 MiB" in last
        assert "resident memory went from" in last
        assert "anonymous memory by" in last
    report = json.loads(subprocess.run([*memtui, "report", "--json", path], capture_output=True, check=True).stdout)
    assert f"target {report['end_reason']}; " in last
    grown = report["post_mortem"]
    assert grown["last_bytes"] - grown["first_bytes"] > 40 << 20
    assert grown["grown"][0]["name"] == "anonymous memory"
    page = subprocess.run([*memtui, "report", path], capture_output=True, text=True, check=True).stdout
    assert "\ngrew         in its last " in page


def test_who_sends_sigkill_is_not_the_kernel(tmp_path):
    need_root()
    code = "import os, time; time.sleep(1); os.kill(os.getpid(), 9)"
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "record", "-o", tmp_path / "s.memtui", "--", sys.executable, "-c", code],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    # On a slow machine it grew while it started, and that is said, too.
    assert last.startswith("memtui record: target killed by SIGKILL, and not because memory ran out")
