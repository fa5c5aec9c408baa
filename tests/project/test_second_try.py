"""What the gate runs a second time: what failed of the tests that race with a real clock, and nothing else.

And the line that every gate prints of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import second_try
from tests.support.repository import ROOT

ONCE = """
    seen = pathlib.Path("seen-{}")
    if not seen.exists():
        seen.touch()
        {}
"""
WITHOUT = ("-p", "no:hypothesispytest", "-p", "no:asyncio")  # they take longer to load than the tests
IMPORTS = "import os, pathlib, signal, pytest"


@pytest.fixture
def gate(tmp_path, monkeypatch, capsys):
    """Run tests given by name and body in two workers, then again; what races is marked. Exit code and second tries."""

    def gate(**tests: str) -> tuple[int, dict[str, bool]]:
        lines = [IMPORTS]
        for name, body in tests.items():
            lines += ["@pytest.mark.real_clock"] * name.startswith("races")
            lines += ["@pytest.mark.parametrize('at', ['a@b'])", f"def test_{name}(at):", body]
        (tmp_path / "test_it.py").write_text("\n".join(lines))
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    real_clock: races\n")
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *WITHOUT]
        status = subprocess.run(command, capture_output=True, check=False).returncode
        code = second_try.main([str(status)])
        tries = recorded(capsys.readouterr().out, passed=code == 0)
        assert all(set(rerun) == {"test", "passed"} for rerun in tries)
        return code, {rerun["test"].partition("::test_")[2]: rerun["passed"] for rerun in tries}

    monkeypatch.chdir(tmp_path)
    return gate


def recorded(printed: str, *, passed: bool) -> list[dict]:
    """The second tries of the only gate, of which the last line that was printed says what the record has."""
    (line,) = second_try.RERUNS.read_text().splitlines()
    assert printed.splitlines()[-1] == f"second tries: {line}"
    record = json.loads(line)
    assert set(record) == {"date", "commit", "passed", "second_tries"}
    assert record["passed"] == passed
    return record["second_tries"]


def test_what_races_may_fail_once(gate):
    result = gate(races=ONCE.format("races", "assert False"), passes="    pass")
    assert result == (0, {"races[a@b]": True})


def test_what_fails_twice_is_a_defect(gate):
    assert gate(races="    assert False", passes="    pass") == (1, {"races[a@b]": False})


def test_what_does_not_race_is_a_defect_at_once(gate):
    result = gate(races=ONCE.format("races", "assert False"), fails=ONCE.format("fails", "assert False"))
    assert result == (1, {"races[a@b]": True, "fails[a@b]": False})


def test_a_gate_without_a_second_try_has_its_line_too(gate):
    assert gate(passes="    pass") == (0, {})


def test_a_test_that_failed_in_an_earlier_gate_is_not_of_this_one(gate, capsys):
    assert gate(fails="    assert False") == (1, {"fails[a@b]": False})
    second_try.RERUNS.unlink()
    assert second_try.main(["0"]) == 0
    assert recorded(capsys.readouterr().out, passed=True) == []


@pytest.mark.parametrize("status", [0, 2])
def test_the_gate_asks_for_its_line_whether_tests_failed_or_not(status, tmp_path):
    """The lines of ``.ci/run`` from the tests on, with a make and a Python that only say how they are called."""
    text = (ROOT / ".ci" / "run").read_text()
    part = "set -euo pipefail\nstatus=0\n" + text.partition("\nstatus=0\n")[2].partition("\nif ")[0]
    stubs = {"make": f"exit {status}", "bin/python": "exit 7"}
    for name, end in stubs.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*"\n{end}\n')
        path.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "VENV": str(tmp_path)}
    command = [shutil.which("bash") or "bash", "-c", part]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"make VENV={tmp_path} test", f"bin/python -m tests.second_try {status}"]
    assert done.returncode == 7, "the second try decides"


@pytest.mark.slow
def test_what_races_runs_in_one_worker():
    """And so does each other module, in one that may be another."""
    racing = ["tests/probes/test_contiguous_entries.py", "tests/probes/test_window_reader.py"]
    others = ["tests/core/test_units.py", "tests/core/test_shorten.py"]
    command = [sys.executable, "-m", "pytest", "-v", "-n", "3", "--dist", "loadscope", *racing, *others]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    ran = [match.groups() for line in lines if (match := re.match(r"\[(gw\d)\] .* [A-Z]+ ([^: ]+)::", line))]
    workers = {module: {worker for worker, name in ran if name == module} for module in (*racing, *others)}
    assert all(len(used) == 1 for used in workers.values()), lines
    assert workers[racing[0]] == workers[racing[1]]
    assert len(set.union(*workers.values())) > 1


def test_without_a_record_of_what_failed_nothing_has_passed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert second_try.main(["2"]) == 1
    printed = capsys.readouterr()
    assert "says of no test that it failed" in printed.err
    assert recorded(printed.out, passed=False) == []
