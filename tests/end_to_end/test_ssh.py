"""A connection that drops: a real sshd on loopback, memtui at its other end, and somebody who pulls the plug."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from memtui.recording.registry import find_all
from memtui.session.session import Session
from tests.support.cli import memtui
from tests.support.live import TRACKER, gone, own_state, part, pattern, runs
from tests.support.ssh_server import Server, private_sshd

pytestmark = pytest.mark.real_clock(alone=False)

WATCHED_S = 3.0


@pytest.fixture
def state(tmp_path, monkeypatch) -> Iterator[Path]:
    with own_state(tmp_path / "state", monkeypatch) as state:
        yield state


@pytest.fixture
def server(tmp_path, state) -> Iterator[Server]:
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    config = {name: os.environ[name] for name in ("XDG_CONFIG_HOME",) if name in os.environ}
    with private_sshd(folder, XDG_STATE_HOME=str(state.parent), **config) as made:
        yield made


def viewers(server: Server) -> list[psutil.Process]:
    """What runs at the ends of all connections, without the processes of sshd."""
    below = psutil.Process(server.process.pid).children(recursive=True)
    return [process for process in below if not process.name().startswith("sshd")]


def busy(processes: list[psutil.Process], seconds: float) -> list[float]:
    """The share of a CPU that each takes."""
    before = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(seconds)
    return [(sum(p.cpu_times()[:2]) - was) / seconds for p, was in zip(processes, before, strict=True)]


def newest(path: Path) -> int:
    reader = Session(path)
    reader.close()
    return int(reader.samples.sample[-1]) if len(reader.samples) else -1


@pytest.mark.slow
@pytest.mark.parametrize("dies", ["the session of sshd", "the client"])
def test_a_connection_that_drops_leaves_the_recording(dies, server, state, tmp_path):
    path = tmp_path / "s.memtui"
    screens = []
    with pattern("loop", "--pages", 300) as truth:
        pid = truth["pid"]
        try:
            screens.append(server.memtui("attach", pid, "-o", path, "--interval", 0.1, *TRACKER))
            screens[0].read(60, until="LIVE")
            (running,) = find_all(state)
            parts = [psutil.Process(running.memtui_pid)]
            parts += [part(running.memtui_pid, f"memtui.recording.{name}") for name in ("sampler", "recorder")]
            there = [process for process in viewers(server) if process not in parts]
            assert there, "nothing of memtui runs in the connection"

            if dies == "the client":
                screens[0].process.kill()
            else:
                for process in server.sessions():
                    process.kill()
            before = newest(path)
            assert all(gone(process, 20) for process in there), "the viewer stayed without a terminal"

            (one,) = json.loads(memtui("list", "--json").stdout)["recordings"]
            assert (one["pid"], one["id"], one["paused"]) == (pid, running.id, False)
            shares = busy(parts, WATCHED_S)
            assert max(shares) < 0.5, f"supervisor, sampler and recorder take {shares} of a CPU"
            assert newest(path) > before
            assert all(process.is_running() for process in parts)
            assert runs(pid)

            screens.append(server.memtui("attach", pid))
            screens[1].read(60, until="LIVE")
            assert [one.id for one in find_all(state)] == [running.id], "it joined no recording, but began another"

            done = memtui("stop", running.id)
            assert (done.returncode, done.stdout, done.stderr) == (0, f"stopped {running.id}: {path}\n", "")
            assert screens[1].end(20) == 0
            assert all(map(gone, parts))
            assert runs(pid)
        finally:
            for screen in screens:
                screen.close()
    reader = Session(path)
    assert reader.end is not None
    assert reader.end.kind == "stopped"
    assert (np.diff(reader.samples.sample) == 1).all(), "windows are missing"
    assert len(reader.samples) > before + 10 * WATCHED_S / 2
    reader.close()
    assert json.loads(memtui("list", "--json").stdout)["recordings"] == []
