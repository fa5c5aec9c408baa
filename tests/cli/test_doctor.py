"""``doctor`` on this machine; ``tests/lab`` has it on other kernels."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.cli.doctor_findings import examine, format_findings
from memtui.core.samples import Capability
from memtui.probes.pages import select_tracker
from tests.support.cli import memtui
from tests.support.doctor_truth import assert_true, config_of_this_machine
from tests.support.folders import names_in
from tests.support.live import TRACKED, needs_root, pattern
from tests.support.users import as_other

OPTIONS = config_of_this_machine()
known = pytest.mark.skipif(OPTIONS is None, reason="this kernel does not tell its configuration (/proc/config.gz)")
plain = pytest.mark.skipif(platform.machine() != "x86_64", reason="judges what is said on x86-64")


def doctor(**more) -> tuple[dict, str]:
    """(the document, the page of text)."""
    answers = [memtui("doctor", *options, **more) for options in (["--json"], [])]
    assert [(a.returncode, a.stderr) for a in answers] == [(0, "")] * 2
    return json.loads(answers[0].stdout), answers[1].stdout


@known
@plain
@needs_root
def test_what_it_says_here_is_what_the_kernel_can():
    assert_true(*doctor(), OPTIONS, root=True)


@known
@plain
@needs_root
def test_what_it_says_to_a_user():
    with as_other() as (_, other):
        assert_true(*doctor(**other), OPTIONS, root=False)


@pytest.mark.real_clock(alone=False)
@needs_root
def test_the_choice_is_the_one_that_a_recording_makes(tmp_path):
    findings, _ = doctor()
    with pattern("random", "--pages", 64, "--touched", 8) as truth:
        argv = ("record", truth["pid"], "-o", tmp_path / "s.memtui", "--interval", 0.2, "--duration", 1, "--json")
        report = json.loads(memtui(*argv).stdout)
    assert [report[key] for key in ("tracker", "flush")] == [findings["auto"][key] for key in ("tracker", "flush")]


def test_it_leaves_nothing_behind():
    def children():
        with Path(f"/proc/self/task/{os.getpid()}/children").open() as file:
            return file.read().split()

    examine()
    before = len(names_in("/proc/self/fd")), children()
    findings = examine()
    assert (len(names_in("/proc/self/fd")), children()) == before
    assert json.loads(json.dumps(findings.to_dict())) == findings.to_dict()
    assert format_findings(findings).count("\ntracker ") == len(findings.trackers)


def test_the_latency_of_page_faults_is_measured_when_asked_and_kept(tmp_path):
    environment = {"env": os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}}
    findings, text = doctor(**environment)
    assert findings["fault_latencies"] is None
    assert "faults   no  latency of major faults: not measured" in text
    done = memtui("doctor", "--measure", tmp_path, "--json", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    measured = json.loads(done.stdout)["fault_latencies"]
    assert len(measured["latencies"]) + len(measured["unmeasured"]) == 3
    findings, text = doctor(**environment)
    assert findings["fault_latencies"] == measured
    for latency in measured["latencies"]:
        assert f"faults   yes {latency['source']} ({latency['where']}): a page comes back in " in text
    for reason in measured["unmeasured"]:
        assert f"faults   no  {reason}" in text
    assert f"measured on {platform.node()}, {measured['measured']}" in text


def test_the_name_of_a_folder_cannot_write_to_the_terminal(tmp_path):
    folder = tmp_path / "a\x1b[2Jb"
    folder.mkdir()
    done = memtui("doctor", "--measure", folder, env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")})
    assert done.returncode == 0
    assert "faults " in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    done = memtui("doctor", "--measure", tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.rstrip("\n") == f"memtui doctor: {tmp_path}/none: is not a folder; name the one with your data"


# -- a processor with other page tables; setarch makes the kernel say that this is one


@pytest.fixture
def elsewhere():
    """What to put before a command so that it finds itself on a machine that is not x86-64."""
    setarch = shutil.which("setarch")
    if not setarch or platform.machine() != "x86_64":
        pytest.skip("needs setarch (util-linux) on x86-64")
    return [setarch, "i686", sys.executable, "-m", "memtui"]


def test_on_another_processor_it_says_so_and_takes_what_works(elsewhere):
    done = subprocess.run([*elsewhere, "doctor", "--json"], capture_output=True, text=True, check=True)
    findings = json.loads(done.stdout)
    trackers = {finding["name"]: finding for finding in findings["trackers"]}
    assert trackers["pagetable"]["reason"] == "it reads x86-64 and arm64 page tables; this is Linux on i686"
    (cold,) = [finding for finding in findings["flushes"] if finding["name"] == "cold"]
    assert cold["reason"] == trackers["pagetable"]["reason"]
    expected = next(name for name in select_tracker.AUTO_ORDER if trackers[name]["ok"])
    assert findings["auto_tracker"] == expected != "pagetable"
    assert "pagetable is out: it reads x86-64 and arm64 page tables" in findings["auto"]["reason"]


def test_on_another_processor_the_page_tables_are_refused_in_one_line(elsewhere, tmp_path):
    with pattern("random", "--pages", 64, "--touched", 8) as truth:
        argv = ["record", str(truth["pid"]), "--tracker", "pagetable", "-o", str(tmp_path / "s.memtui")]
        done = subprocess.run([*elsewhere, *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert (
        "tracker pagetable does not work here: it reads x86-64 and arm64 page tables; this is Linux on i686"
        in done.stderr
    )
    assert "these would: " in done.stderr


def test_on_another_processor_auto_takes_the_next_that_works(monkeypatch):
    monkeypatch.setattr("memtui.probes.pages.pagetable.proof.platform.machine", lambda: "riscv64")
    monkeypatch.setattr("memtui.probes.pages.idle.tracker.prove", lambda: Capability("idle", False, "no", ""))
    tracker, rejected = select_tracker.choose("auto", "auto")
    tracker.close()
    assert tracker.name == "referenced"
    assert rejected[0] == Capability(
        "pagetable", False, "it reads x86-64 and arm64 page tables; this is Linux on riscv64"
    )


@pytest.mark.skipif(not TRACKED.ok, reason=f"the page-table tracker is out here: {TRACKED.reason}")
def test_where_soft_dirty_pages_are_tracked_the_price_is_reported(monkeypatch):
    monkeypatch.setattr("memtui.cli.doctor_findings.soft_dirty_is_tracked", lambda: True)
    findings = examine()
    (flush,) = [flush for flush in findings.flushes if flush.name == "soft-dirty"]
    assert flush.ok
    assert "CONFIG_MEM_SOFT_DIRTY: it write-protects" in flush.reason
    assert f"flush    yes soft-dirty: {flush.reason}" in format_findings(findings)
