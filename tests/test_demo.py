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

from memtui.session.reader import SessionReader
from tests.live import gone, needs_root, needs_tracker, part, pattern, runs
from tests.terminals import Terminal

START_SECONDS = 90


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Sessions go here and not to the user's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "memtui" / "sessions"


@pytest.fixture
def terminal():
    running: list[Terminal] = []

    def make(*words: object, **more) -> Terminal:
        running.append(Terminal(*map(str, words), module="memtui", **more))
        return running[-1]

    yield make
    for one in running:
        one.close()


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
    assert "pagetable" in screen.text
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
    reader = SessionReader(path)
    assert reader.end is not None
    assert reader.end.kind == "stopped"
    assert reader.samples.wss_bytes.max() > 1 << 20
    log = path.with_suffix(".log").read_text()
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


@pytest.mark.parametrize("how", ["kill", "term", "hup", "interrupt", "vanish"])
def test_every_end_of_the_screen_ends_the_recording(how, state, terminal):
    with pattern("loop", "--pages", 256) as truth:
        screen = terminal(
            "attach", truth["pid"], "--interval", "0.1", "--tracker", "auto" if os.geteuid() == 0 else "rss"
        )
        screen.read(START_SECONDS, until="LIVE")
        sampler, recorder = part(screen.process.pid, "memtui.sampler"), part(screen.process.pid, "memtui.recorder")
        match how:
            case "kill":
                screen.process.kill()
            case "term" | "hup":
                screen.process.send_signal(signal.SIGTERM if how == "term" else signal.SIGHUP)
            case "interrupt":
                screen.send("\x03")
            case "vanish":
                os.close(screen.master)
                screen.master = -1
        code = screen.process.wait(20) if how == "vanish" else screen.end(20)
        assert code == {"kill": -9, "term": 143, "hup": 129, "interrupt": 0, "vanish": 129}[how]
        assert gone(sampler)
        assert gone(recorder)
        if how in ("term", "hup", "interrupt"):
            assert screen.restored()
        assert runs(truth["pid"])
    (path,) = state.glob("*.memtui")
    reader = SessionReader(path)
    assert reader.end is not None
    reader.close()


def test_the_target_ends_and_the_screen_stays(state, terminal):
    with pattern("loop", "--pages", 256) as truth:
        screen = terminal(
            "attach", truth["pid"], "--interval", "0.1", "--tracker", "auto" if os.geteuid() == 0 else "rss"
        )
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
    child = next(p for p in psutil.Process(screen.process.pid).children() if "bytearray" in " ".join(p.cmdline()))
    screen.send("q")
    assert screen.end(20) == 0
    assert runs(child.pid)
    child.kill()
    (log,) = state.glob("*.log")
    assert "hello from the program" in log.read_text()
