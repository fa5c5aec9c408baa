"""What the gate runs a second time: what failed of the tests that race with a real clock, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests import second_try

ONCE = """
    seen = pathlib.Path("seen-{}")
    if not seen.exists():
        seen.touch()
        {}
"""
IMPORTS = "import os, pathlib, signal, pytest"


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """Run tests given by name and body in two workers, then again; what races is marked. Exit code and records."""

    def gate(**tests: str) -> tuple[int, dict[str, bool]]:
        lines = [IMPORTS]
        for name, body in tests.items():
            lines += ["@pytest.mark.real_clock"] * name.startswith("races")
            lines += ["@pytest.mark.parametrize('at', ['a@b'])", f"def test_{name}(at):", body]
        (tmp_path / "test_it.py").write_text("\n".join(lines))
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    real_clock: races\n")
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 1
        code = second_try.main()
        records = [json.loads(line) for line in second_try.RERUNS.read_text().splitlines()]
        assert all(set(record) == {"date", "commit", "test", "passed"} for record in records)
        return code, {record["test"].partition("::test_")[2]: record["passed"] for record in records}

    monkeypatch.chdir(tmp_path)
    return gate


def test_what_races_may_fail_once(gate):
    result = gate(races=ONCE.format("races", "assert False"), passes="    pass")
    assert result == (0, {"races[a@b]": True})


def test_what_fails_twice_is_a_defect(gate):
    assert gate(races="    assert False", passes="    pass") == (1, {"races[a@b]": False})


def test_what_does_not_race_is_a_defect_at_once(gate):
    result = gate(races=ONCE.format("races", "assert False"), fails=ONCE.format("fails", "assert False"))
    assert result == (1, {"races[a@b]": True, "fails[a@b]": False})


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
    assert second_try.main() == 1
    assert "says of no test that it failed" in capsys.readouterr().err
