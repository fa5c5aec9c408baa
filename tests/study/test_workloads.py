"""The bundled trainings and the data they train on, as processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from memtui.study.workloads import demo
from memtui.study.workloads.data import CLASSES, make_images

SMALL = ("--images", "64", "--validation-images", "16", "--batch-size", "16", "--progress", "2")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def run_module(name: str, *arguments: str, **more) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"memtui.study.workloads.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **more)


def test_data_is_the_same_for_the_same_seed_and_inside_0_to_1():
    images, labels = make_images(300, 4)
    again, labels_again = make_images(300, 4)
    assert images.shape == (300, 32, 32, 3)
    assert images.dtype == np.float32
    assert images.min() >= 0
    assert images.max() <= 1
    assert set(labels) == set(range(CLASSES))
    np.testing.assert_array_equal(images, again)
    np.testing.assert_array_equal(labels, labels_again)
    assert not np.array_equal(make_images(300, 5)[0], images)


@pytest.mark.parametrize("name", [pytest.param("cnn", marks=needs_torch), "numpy_cnn"])
def test_a_training_prints_steps_and_epochs(name):
    done = run_module(name, *SMALL, "--epochs", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "1,250,858 parameters" in lines[0]
    assert "1 CPU thread," in lines[0]
    assert [line.split("  ")[0] for line in lines[1:]] == [
        *("step 1", "step 2", "step 4", "epoch 1"),
        *("step 6", "step 8", "epoch 2"),
    ]
    assert all("images/s" in line and "loss" in line for line in lines[1:])
    assert "accuracy" in lines[-1]


def test_the_same_seed_trains_the_same():
    def losses() -> list[str]:
        output = run_module("numpy_cnn", *SMALL, "--epochs", "1", "--seed", "3").stdout
        return [line.split("  ")[2] for line in output.splitlines() if line.startswith("step")]

    first = losses()
    assert len(first) == 3
    assert losses() == first


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [("--batch-size 0", "at least 1"), ("--images many", "not a whole number"), ("--epochs -1", "at least 0")],
)
def test_bad_options_are_refused_before_anything_is_loaded(arguments, complaint):
    done = run_module("numpy_cnn", *arguments.split())
    assert done.returncode == 2
    assert complaint in done.stderr.splitlines()[-1]


def test_choice_of_network(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert demo.choose_network()[0] == "numpy"
    assert "not installed" in demo.choose_network()[1]
    with pytest.raises(LookupError, match="--network numpy"):
        demo.choose_network("torch")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert demo.choose_network()[0] == "torch"
    assert demo.choose_network("numpy")[0] == "numpy"


def test_demo_without_torch_says_so_and_trains_with_numpy(tmp_path: Path):
    (tmp_path / "torch.py").write_text("raise ImportError('libgomp is missing')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run_module("demo", *SMALL, "--epochs", "1", env=environment)
    assert done.returncode == 0, done.stderr
    assert "libgomp is missing" in done.stdout
    assert "numpy 2" in done.stdout
    assert run_module("demo", *SMALL, "--epochs", "1", "--network", "torch", env=environment).returncode == 1


def test_choosing_imports_neither_torch_nor_numpy():
    code = (
        "import sys; from memtui.study.workloads import demo; demo.choose_network();"
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no /proc/PID/smaps_rollup")
def test_demo_runs_until_stopped_on_small_pages_and_survives_a_closed_pipe():
    options = ["--network", "numpy", "--images", "2000", "--progress", "1", "--batch-size", "8"]
    command = [sys.executable, "-m", "memtui.study.workloads.demo", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert any(line.startswith("step 3 ") for line in process.stdout)
        process.stdout.close()
        time.sleep(0.5)
        assert process.poll() is None, "it ended when nobody read its output any more"
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        anonymous = {line.split()[0]: line.split()[1] for line in rollup.splitlines()[1:]}
        assert anonymous["AnonHugePages:"] == "0"
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_demo_ends_with_the_process_that_started_it():
    code = (
        "import os, subprocess, sys; command = [sys.executable, '-m', 'memtui.study.workloads.demo', '--images', '200',"
        "'--network', 'numpy', '--exit-with-parent', str(os.getpid())];"
        "child = subprocess.Popen(command, stdout=subprocess.PIPE);"
        "child.stdout.readline(); print(child.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _alive(pid):
        time.sleep(0.02)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
