"""``memtui.trace()`` in programs as a user writes them: with a recording that runs, and without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import memtui

pytestmark = pytest.mark.real_clock(alone=False)

torch = pytest.importorskip("torch", reason="torch is not installed")

PROGRAM = """
import sys
import torch
import memtui
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(steps):
    for _ in range(steps):
        x, y = torch.randn(10, 784), torch.randint(0, 10, (10,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


train(3)
print("before", flush=True)
sys.stdin.readline()
with memtui.trace(model, optimizer, every=10, output=sys.argv[1] if len(sys.argv) > 1 else None):
    train(31)
train(3)
print("after")
"""


def run(tmp_path: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "train.py").write_text(PROGRAM)
    return subprocess.run(
        [*(argv or (sys.executable, "train.py"))],
        cwd=tmp_path,
        env=environment(tmp_path),
        input="\n",
        capture_output=True,
        text=True,
        timeout=120,
    )


def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": str(Path(memtui.__file__).parents[1]),
    }


def report(tmp_path: Path, path: Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "report", "--json", str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(tmp_path),
    )
    return json.loads(done.stdout)


def test_without_a_recording_one_of_its_own_begins_and_ends(tmp_path):
    done = run(tmp_path, sys.executable, "train.py", "own.memtui")
    assert done.returncode == 0
    assert done.stdout == "before\nafter\n"
    assert done.stderr == f"memtui: {tmp_path / 'own.memtui'} has the training (memtui replay)\n"
    document = report(tmp_path, tmp_path / "own.memtui")
    assert document["end"] == "stopped"
    (training,) = document["training"]
    assert training["steps"] == 30  # the start of the first step is not known
    assert document["allocations"]["steps"] == 3
    assert document["allocations"]["pids"] == [training["pid"]]
    again = run(tmp_path, sys.executable, "train.py", "own.memtui")
    assert (again.returncode, again.stdout) == (0, "before\nafter\n")
    assert again.stderr.startswith("memtui: nothing is recorded from inside: ")
    assert "own.memtui: exists already" in again.stderr
    assert again.stderr.count("\n") == 1


def test_a_recording_that_runs_is_reported(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    path = tmp_path / "s.memtui"
    program = subprocess.Popen(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout.readline() == "before\n"
    how = ("--tracker", "rss", "--no-sudo", "-o", str(path))
    recording = subprocess.Popen(
        [sys.executable, "-m", "memtui", "record", str(program.pid), *how],
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not list((tmp_path / "state/memtui/running").glob("*.json")):
            assert recording.poll() is None
        assert program.communicate("\n", timeout=60) == ("after\n", "")
        recording.communicate(timeout=60)
    finally:
        for process in (program, recording):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
    document = report(tmp_path, path)
    assert document["training"][0]["steps"] == 30
    assert document["allocations"]["steps"] == 3
    assert list((tmp_path / "state/memtui/control").iterdir()) == []


@pytest.mark.slow
def test_a_program_that_is_traced_already_is_traced_once(tmp_path):
    path = tmp_path / "s.memtui"
    how = ("--trace", "--every", "10", "--tracker", "rss", "--no-sudo", "-o", str(path))
    done = run(tmp_path, sys.executable, "-m", "memtui", "record", *how, "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("before\nafter\n")
    (training,) = report(tmp_path, path)["training"]
    assert training["steps"] == 36


@pytest.mark.parametrize("every", [0, -1, 1.5, "x"])
def test_every_is_a_whole_number_from_one_on(every):
    with pytest.raises(ValueError, match="every must be a whole number from 1 on"), memtui.trace(every=every):
        pass


def test_something_else_is_refused():
    with pytest.raises(TypeError, match=r"a int is not a torch\.nn\.Module"), memtui.trace(5):
        pass
    module = torch.nn.Linear(1, 1)
    with pytest.raises(TypeError, match=r"a Linear is not a torch\.optim\.Optimizer"), memtui.trace(None, module):
        pass
