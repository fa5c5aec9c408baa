"""Real processes to observe, and memtui run as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
import pytest

from memtui.core.page_set import PageSet
from memtui.probes.pages.pagetable.proof import prove
from memtui.recording.registry import find_all
from memtui.session.session import Session
from memtui.study.workloads.access_patterns import truth_pages

Found = TypeVar("Found")
TRACKED = prove()
needs_tracker = pytest.mark.skipif(not TRACKED.ok, reason=f"the page-table tracker is out here: {TRACKED.reason}")
# So long a target sleeps after each ms of accesses: its CPU is left to the tests that run beside, and a window of 20 ms
# still has several rounds.
REST_S = 0.004
TRACKER = ("--tracker", "auto" if os.geteuid() == 0 else "rss")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def wait_until(condition: Callable[[], Found], seconds: float = 60, every_s: float = 0.001) -> Found:
    """Ask until there is an answer, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(every_s)
    return found


@contextmanager
def own_state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Memtui's state lies in this folder and not in the user's home; a test that failed leaves no recording behind."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    state = folder / "memtui"
    yield state
    for left in find_all(state):
        os.kill(left.memtui_pid, signal.SIGKILL)


def pattern_argv(*words: object, rest_s: float = REST_S, safe_path: bool = False) -> list[str]:
    """Return the command line of an access pattern; ``rest_s`` 0: at full speed.

    ``safe_path``: for another user, or another view of the files, to which this folder may be closed.
    """
    python = [sys.executable, *["-P"] * safe_path]
    rest = ("--rest-seconds", rest_s) * bool(rest_s)
    return [*python, "-m", "memtui.study.workloads.access_patterns", *map(str, (*words, *rest))]


@contextmanager
def pattern(*words: object, rest_s: float = REST_S) -> Iterator[dict[str, Any]]:
    """A running access pattern and what it says of itself."""
    with subprocess.Popen(pattern_argv(*words, rest_s=rest_s), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            yield json.loads(child.stdout.readline())
        finally:
            child.kill()


def truth_in(truth: dict[str, Any], pages: PageSet | None) -> tuple[np.ndarray, np.ndarray]:
    """(page numbers seen inside the pattern's own mapping, those it touches)."""
    assert pages is not None
    seen = pages.pages()
    inside = (seen >= truth["start"] >> 12) & (seen < truth["end"] >> 12)
    return seen[inside], truth_pages(truth)


def assert_exact(session: Path, truth: dict[str, Any]) -> None:
    """Every window between the first and the last has exactly the pages that a pattern touches; at least three."""
    reader = Session(session)
    assert reader.hello.tracker == "pagetable"
    (process,) = reader.processes.all()
    # A window that was lost, because this machine was busy, says so and is no matter here.
    taken = {
        s: p for s in reader.samples.sample.tolist()[1:-1] if (p := reader.pages.page_set(s, process.key)) is not None
    }
    assert len(taken) >= 3
    for sample, pages in taken.items():
        seen, expected = truth_in(truth, pages)
        assert seen.tolist() == expected.tolist(), f"sample {sample}"
    reader.close()


def start(*words: object, **more: Any) -> subprocess.Popen[str]:
    """Run memtui without a terminal, in the background."""
    command = [sys.executable, "-m", "memtui", *map(str, words)]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **(streams | more))


def part(of: int, module: str) -> psutil.Process:
    """The sampler or recorder of a running memtui, once its program has started; not the sudo around it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(of).children(recursive=True):
            try:
                if module in child.cmdline() and child.name() != "sudo":
                    return child
            except psutil.Error:
                continue
        time.sleep(0.01)
    raise AssertionError(f"{module} did not start")


def wait_for_samples(path: Path, count: int, seconds: float = 60) -> Session:
    """A reader of a growing session once it holds that many samples."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            reader = Session(path)
            if len(reader.samples) >= count:
                return reader
            reader.close()
        except Exception as error:
            last = error
        time.sleep(0.05)
    raise AssertionError(f"no {count} samples in time: {locals().get('last')}")


def runs(pid: int) -> bool:
    """Whether a process makes progress: it is neither stopped nor traced, and its CPU time grows."""
    deadline = time.monotonic() + 1.0
    process = psutil.Process(pid)
    before = sum(process.cpu_times()[:2])
    while time.monotonic() < deadline:
        traced = "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()
        state = process.status()
        held = traced or state in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        if not held and sum(process.cpu_times()[:2]) > before:
            return True
        time.sleep(0.01)
    return False


def held_threads(pid: int) -> list[int]:
    """Threads of a process that somebody traces, or that stand still."""
    held = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if fields["TracerPid"] != "0" or fields["State"][0] in "Tt":
            held.append(int(task.name))
    return held


def gone(process: psutil.Process, seconds: float = 10) -> bool:
    """Whether a process ends in time."""
    try:
        process.wait(seconds)
    except psutil.TimeoutExpired:
        return False
    return True


def stop(child: subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[int, str, str]:
    """Send a signal and collect what it leaves behind."""
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    return child.returncode, out, err
