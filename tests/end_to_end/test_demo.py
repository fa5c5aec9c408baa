"""The first thing a user tries, and the live screen on a process that nobody here wrote."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from memtui.recording.registry import find_all
from memtui.session.session import Session
from tests.support.cli import memtui
from tests.support.folders import names_in
from tests.support.live import (
    TRACKER,
    gone,
    held_threads,
    needs_root,
    needs_tracker,
    own_state,
    part,
    pattern,
    runs,
    wait_for_samples,
)
from tests.support.terminals import Terminal, terminals

pytestmark = pytest.mark.real_clock(alone=False)

START_SECONDS = 90


@pytest.fixture
def state(tmp_path, monkeypatch):
    with own_state(tmp_path, monkeypatch) as state:
        yield state / "sessions"


@pytest.fixture
def terminal(state):
    with terminals() as start:
        yield start


def wait_for_working_set(screen: Terminal) -> float:
    """Read until the screen shows LIVE and a working set; MiB."""
    screen.read(START_SECONDS, until="LIVE")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = re.search(r"now +([\d.]+) ([KMG]iB)", screen.text)
        if found and float(found[1]) > 0:
            return float(found[1]) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[found[2]]
        screen.read(0.2)
    raise AssertionError("no working set appeared:\n" + screen.text)


@needs_tracker
@pytest.mark.parametrize("network", ["numpy", "torch"])
def test_demo_until_live_then_quit(network, state, terminal):
    if network == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    screen = terminal("demo", "--network", network, columns=120, rows=36)
    assert wait_for_working_set(screen) > 1
    training = [
        p for p in psutil.Process(screen.process.pid).children(recursive=True) if "demo" in " ".join(p.cmdline())
    ]
    assert training
    screen.send("q")
    assert screen.end(20) == 0
    assert screen.restored()
    assert all(gone(p) for p in training), "the demo's training must not go on"
    (path,) = state.glob("demo-*.memtui")
    assert str(path) in screen.text.replace("\n", "")
    reader = Session(path)
    assert reader.hello.tracker == "pagetable"
    assert reader.end is not None
    assert reader.end.kind == "stopped"
    assert (
        max(reader.samples.wss_bytes.tolist(), key=lambda size: size if size == size else 0) > 1 << 20
    )  # nan: a lost window
    log = path.with_name(path.name + ".log").read_text()
    assert ("PyTorch" if network == "torch" else "numpy") in log
    reader.close()
    assert sorted(p.suffix for p in state.iterdir()) == [".log", ".memtui"]


@needs_root
@needs_tracker
def test_attach_to_another_users_process_and_leave_it_running(state, terminal):
    words = ["perl", "-e", "my $x = 'a' x (32 << 20); while (1) { substr($x, rand(32 << 20), 1) = 'b' }"]
    with subprocess.Popen(words, user="nobody", group="nogroup") as target:
        try:
            screen = terminal("attach", target.pid, "--interval", "0.1")
            assert wait_for_working_set(screen) > 1
            screen.send("q")
            assert screen.end(20) == 0
            assert runs(target.pid), "closing the screen leaves the target running"
        finally:
            target.kill()


@pytest.mark.parametrize(
    "how", ["kill", *(pytest.param(how, marks=pytest.mark.slow) for how in ("term", "hup")), "vanish", "d"]
)
def test_a_screen_that_goes_detaches(how, state, terminal):
    """However it comes; the recording goes on, a second screen opens it, and ``stop`` ends it."""
    with pattern("loop", "--pages", 256) as truth:
        screen = terminal("attach", truth["pid"], "--interval", "0.1", *TRACKER)
        screen.read(START_SECONDS, until="LIVE")
        sampler, recorder = (
            part(screen.process.pid, "memtui.recording.sampler"),
            part(screen.process.pid, "memtui.recording.recorder"),
        )
        match how:
            case "kill":
                screen.process.kill()
            case "term" | "hup":
                screen.process.send_signal(signal.SIGTERM if how == "term" else signal.SIGHUP)
            case "vanish":
                os.close(screen.master)
                screen.master = -1
            case "d":
                screen.send("d")
        code = screen.process.wait(20) if how == "vanish" else screen.end(20)
        assert code == {"kill": -9, "term": 143, "hup": 129, "vanish": 129, "d": 0}[how]
        (path,) = state.glob("*.memtui")
        before = len(wait_for_samples(path, 1).samples)
        wait_for_samples(path, before + 10).close()  # it goes on
        assert sampler.is_running()
        assert recorder.is_running()
        (running,) = find_all(state.parent)
        if how == "d":
            said = screen.text.replace("\n", "")
            assert f"memtui attach {truth['pid']} comes back" in said
            assert f"memtui stop {running.id} ends it" in said
        if how not in ("kill", "vanish"):
            assert screen.restored()
        again = terminal("attach", truth["pid"])
        again.read(START_SECONDS, until="LIVE")
        again.send("q")
        assert again.end(20) == 0
        assert "goes on recording" in again.text.replace("\n", "")
        assert sampler.is_running()
        done = memtui("stop", running.id)
        assert done.returncode == 0, done.stderr
        assert gone(sampler)
        assert gone(recorder)
        assert runs(truth["pid"])
    reader = Session(path)
    assert reader.end is not None
    assert reader.end.kind == "stopped"
    reader.close()
    assert names_in(state) == [path.name]
    assert list((state.parent / "running").iterdir()) == list((state.parent / "control").iterdir()) == []


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_quitting_ends_the_recording(key, state, terminal):
    with pattern("loop", "--pages", 256) as truth:
        screen = terminal("attach", truth["pid"], "--interval", "0.1", *TRACKER)
        screen.read(START_SECONDS, until="LIVE")
        parts = [part(screen.process.pid, f"memtui.recording.{name}") for name in ("sampler", "recorder")]
        screen.send(key)
        assert screen.end(20) == 0
        assert all(map(gone, parts))
        assert screen.restored()
        assert runs(truth["pid"])
    (path,) = state.glob("*.memtui")
    assert f"session: {path}" in screen.text.replace("\n", "")
    reader = Session(path)
    assert reader.end is not None
    assert reader.end.kind == "stopped"
    reader.close()


def test_a_killed_supervisor_ends_the_recording_and_not_the_target(state, terminal):
    with pattern("loop", "--pages", 256) as truth:
        screen = terminal("attach", truth["pid"], "--interval", "0.05", *TRACKER)
        screen.read(START_SECONDS, until="LIVE")
        sampler, recorder = (
            part(screen.process.pid, "memtui.recording.sampler"),
            part(screen.process.pid, "memtui.recording.recorder"),
        )
        supervisor = recorder.parent()
        assert supervisor is not None
        assert supervisor.ppid() == screen.process.pid, "the screen is a process of its own"
        supervisor.kill()
        assert gone(sampler)
        assert gone(recorder)
        assert runs(truth["pid"])
        assert not held_threads(truth["pid"])
        screen.read(10, until="ended")
        screen.send("q")
        assert screen.end(20) == 1
        assert "the supervisor was killed" in screen.text.replace("\n", "")
        (path,) = state.glob("*.memtui")
        reader = Session(path)
        assert len(reader.samples) > 3
        assert reader.end is not None
        reader.close()
        assert find_all(state.parent) == []  # and what it left behind is taken away
        assert list((state.parent / "running").iterdir()) == list((state.parent / "control").iterdir()) == []
        # The target is free for the next one.
        again = terminal("attach", truth["pid"], "--interval", "0.1", *TRACKER)
        again.read(START_SECONDS, until="LIVE")
        again.send("q")
        assert again.end(20) == 0


def test_stop_from_elsewhere_closes_every_screen_with_a_word(state, terminal):
    with pattern("loop", "--pages", 256) as truth:
        screens = [terminal("attach", truth["pid"], "--interval", "0.1", *TRACKER)]
        screens[0].read(START_SECONDS, until="LIVE")
        screens.append(terminal("attach", truth["pid"]))
        screens[1].read(START_SECONDS, until="LIVE")
        done = memtui("stop", truth["pid"])
        assert done.returncode == 0, done.stderr
        (path,) = state.glob("*.memtui")
        assert str(path) in done.stdout
        for screen in screens:
            assert screen.end(20) == 0
            assert screen.restored()
            said = screen.text.replace("\n", "")
            assert "stopped from elsewhere (memtui stop" in said
            assert ("or q on the screen that began it" in said) == (screen is screens[1])
        assert runs(truth["pid"])


def test_the_target_ends_and_the_screen_stays(state, terminal):
    with pattern("loop", "--pages", 256) as truth:
        screen = terminal("attach", truth["pid"], "--interval", "0.1", *TRACKER)
        screen.read(START_SECONDS, until="LIVE")
        os.kill(truth["pid"], signal.SIGKILL)
        screen.read(10, until="ended")
        screen.send("q")
        assert screen.end(20) == 0


@needs_tracker
def test_run_starts_a_program_and_keeps_its_output_apart(state, terminal):
    source = "x = bytearray(8 << 20)\nprint('hello from the program', flush=True)\nwhile True: x[::4096] = x[::4096]"
    screen = terminal("run", "--interval", "0.1", "--", sys.executable, "-c", source)
    assert wait_for_working_set(screen) >= 8
    assert "hello from" not in screen.text
    (running,) = find_all(state.parent)
    child = psutil.Process(running.pid)
    try:
        assert child.cmdline() == [sys.executable, "-c", source]
        screen.send("q")
        assert screen.end(20) == 0
        assert runs(child.pid)
    finally:
        child.kill()
    (log,) = state.glob("*.log")
    assert "hello from the program" in log.read_text()


@pytest.mark.parametrize(("program", "status"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_run_tells_on_how_the_program_ended(program, status, state, terminal):
    screen = terminal("run", *TRACKER, "--", "bash", "-c", f"sleep 3; {program}")
    screen.read(START_SECONDS, until="ended")
    screen.send("q")
    assert screen.end(20) == status
