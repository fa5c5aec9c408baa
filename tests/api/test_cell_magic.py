"""``%%memtui`` in an IPython shell of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import memtui
from memtui.api import cell_magic

pytest.importorskip("IPython", reason="IPython is not installed")
pytestmark = pytest.mark.real_clock

SHELL = """
import sys
import matplotlib
matplotlib.use("agg")
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "memtui")
for cell in sys.argv[1:]:
    shell.run_cell(cell)
print("x is there:", len(shell.user_ns.get("x", "")))
"""
CELL = """%%memtui 0.1
import time
x = bytearray(b"x") * (64 << 20)
until = time.monotonic() + 2
while time.monotonic() < until:
    x[::4096] = x[::4096]
    time.sleep(0.01)
print("done")
"""


def run(tmp_path: Path, *cells: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "PYTHONPATH": str(Path(memtui.__file__).parents[1]),
    }
    return subprocess.run(
        [sys.executable, "-c", SHELL, *cells], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_cell_is_measured_and_its_names_stay(tmp_path):
    done = run(tmp_path, CELL)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "done"
    took = next(line for line in lines if line.startswith("time  "))
    assert ".memtui" in took
    assert any(line.startswith("working set  ") for line in lines)
    (resident,) = (line for line in lines if line.startswith("resident  "))
    assert "MiB" in resident
    assert lines[-1] == f"x is there: {64 << 20}"
    assert len(list((tmp_path / "state").rglob("*.memtui"))) == 1


def test_an_error_of_the_cell_is_its_own(tmp_path):
    done = run(tmp_path, "%%memtui\nx = 'a'\n1 / 0", "print('next')")
    assert "ZeroDivisionError" in done.stdout
    assert "time  " in done.stdout
    assert "next" in done.stdout
    assert done.stdout.endswith("x is there: 1\n")


def test_what_cannot_be_recorded_is_not_run(tmp_path):
    done = run(tmp_path, "%%memtui often\nx = 'a'", "%%memtui 0\nx = 'a'")
    first, second = done.stderr.splitlines()
    assert first == "memtui: the cell was not run: %%memtui takes seconds between windows, and not 'often'"
    assert second.startswith("memtui: the cell was not run: an interval is a number of seconds above 0")
    assert done.stdout == "x is there: 0\n"


def test_seconds_between_windows():
    assert cell_magic._interval_s("") is None
    assert cell_magic._interval_s(" 0.5 ") == 0.5
    with pytest.raises(ValueError, match="not '1 2'"):
        cell_magic._interval_s("1 2")
