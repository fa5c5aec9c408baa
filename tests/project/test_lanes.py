"""What the gate runs a second time: what failed, and nothing that passed."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests import lanes

PASSES = "def test_passes():\n    pass\n"
FAILS_ONCE = """
import pathlib
def test_fails_once():
    seen = pathlib.Path("seen")
    if not seen.exists():
        seen.touch()
        assert False
def test_passes():
    pass
"""
DIES_ONCE = """
import os, pathlib, signal
def test_dies_once():
    died = pathlib.Path("died")
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""
ALWAYS_FAILS = "def test_fails():\n    assert False\n"


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Three lanes of one file each; a run's exit code, and the last line of each lane that ran."""

    def run(*words: str) -> tuple[int, list[str]]:
        code = lanes.main([*words])
        return code, re.findall(r"^=+ (.+) in [0-9.]+s =+$", capfd.readouterr().out, re.MULTILINE)

    def command(lane: str, words: list[str]) -> list[str]:
        cache = ("-o", f"cache_dir={lanes.CACHE / lane}")
        return [sys.executable, "-m", "pytest", *cache, f"test_{lane}.py", *words]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lanes, "LANES", ("one", "two", "three"))
    monkeypatch.setattr(lanes, "_command", command)
    return run


def write(tmp_path, *texts: str) -> None:
    for lane, text in zip(("one", "two", "three"), texts, strict=True):
        (tmp_path / f"test_{lane}.py").write_text(text)


def test_again_runs_what_failed_and_a_lane_that_died(run, tmp_path):
    write(tmp_path, PASSES, FAILS_ONCE, DIES_ONCE)
    assert run() == (9, ["1 passed", "1 failed, 1 passed"])
    assert run("--again") == (0, ["1 passed, 1 deselected", "1 passed"])
    record = [json.loads(line) for line in lanes.RERUNS.read_text().splitlines()]
    assert [(one["test"], one["passed"]) for one in record] == [
        ("test_two.py::test_fails_once", True), ("lane three", True),
    ]  # fmt: skip
    assert all(set(one) == {"date", "commit", "test", "passed"} for one in record)


def test_what_fails_twice_is_a_defect(run, tmp_path):
    write(tmp_path, PASSES, ALWAYS_FAILS, PASSES)
    assert run()[0] == 1
    assert run("--again") == (1, ["1 failed"])
    (line,) = lanes.RERUNS.read_text().splitlines()
    assert not json.loads(line)["passed"]


@pytest.mark.slow
def test_a_run_forgets_what_failed_before(run, tmp_path):
    write(tmp_path, PASSES, FAILS_ONCE, PASSES)
    assert run()[0] == 1
    assert run()[0] == 0
    assert run("--again") == (0, [])
