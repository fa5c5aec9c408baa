"""``memtui.record``: a program records itself, or another one, and looks at what there is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import memtui
from memtui.api.recording import LatestWindow, Recording
from memtui.core.errors import UserError
from memtui.session.session import Session

pytestmark = pytest.mark.real_clock

ITSELF = """
import sys, time
import memtui
with memtui.record(interval=0.1, output=sys.argv[1]) as recording:
    memory = bytearray(b"x") * (64 << 20)
    deadline = time.monotonic() + 30
    while (recording.latest is None or recording.latest.sample < 3) and time.monotonic() < deadline:
        memory[::4096] = memory[::4096]
        time.sleep(0.01)
    latest = recording.latest
    print(latest.rss_bytes > 64 << 20, latest.seconds > 0, len(list(recording.tables().windows)) >= 3)
print(recording.pid, recording.path)
"""


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(Path(memtui.__file__).parents[1]))


def test_a_program_records_itself(tmp_path):
    path = tmp_path / "own.memtui"
    done = subprocess.run(
        [sys.executable, "-c", ITSELF, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == "True True True"
    assert second.endswith(f" {path}")
    with closing(Session(path)) as session:
        assert session.end.kind == "stopped"
        assert session.hello.target.pid == int(second.split()[0])


def test_another_process_is_recorded(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            with memtui.record(child.pid, output=tmp_path / "s.memtui") as recording:
                assert isinstance(recording, Recording)
                assert (recording.pid, recording.path) == (child.pid, tmp_path / "s.memtui")
                deadline = time.monotonic() + 30
                while recording.latest is None and time.monotonic() < deadline:
                    time.sleep(0.05)
                assert isinstance(recording.latest, LatestWindow)
                assert recording.latest.rss_bytes > 0
                with pytest.raises(UserError, match="already"):
                    memtui.record(child.pid)
            recording.stop()  # again
            with closing(Session(recording.path)) as session:
                assert session.end is not None
        finally:
            child.kill()


def test_what_cannot_begin_says_why(tmp_path):
    (tmp_path / "there.memtui").write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        memtui.record(output=tmp_path / "there.memtui")
    assert (tmp_path / "there.memtui").read_text() == "mine"
    child = subprocess.Popen(["true"])
    child.wait()
    with pytest.raises(UserError, match="no process"):
        memtui.record(child.pid)
    for interval_s in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="above 0"):
            memtui.record(os.getpid(), interval=interval_s)
