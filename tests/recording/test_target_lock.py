"""One sampler per process: a second one would clear the first one's marks."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memtui.core.procfs import read_stat
from memtui.recording import registry
from memtui.recording.sampler.target_lock import TargetLocked, TargetLocks
from memtui.session.session import Session
from tests.support.cli import memtui
from tests.support.live import gone, needs_root, part, pattern, pattern_argv, runs, start, stop, wait_for_samples
from tests.support.terminals import Terminal
from tests.support.users import temporary_user

pytestmark = pytest.mark.real_clock(alone=False)

SAMPLER = "memtui.recording.sampler"
TRACKER = ("--tracker", "rss")  # these tests are about recordings, and not about what they measure
RANK = str(10_000 + os.getpid() % 900_000)  # that no other test has


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "memtui"


def test_a_second_record_is_refused_with_the_pid(tmp_path):
    first, second = tmp_path / "a.memtui", tmp_path / "b.memtui"
    with pattern("loop", "--pages", 300) as truth:
        child = start("record", truth["pid"], "-o", first, "--interval", "0.05", *TRACKER)
        try:
            wait_for_samples(first, 3).close()
            sampler = part(child.pid, SAMPLER)
            done = memtui("record", truth["pid"], "-o", second, *TRACKER)
            assert done.returncode == 2
            assert done.stderr.count("\n") == 1
            assert f"by sampler {sampler.pid} of memtui {child.pid}, into {first}" in done.stderr
            assert not second.exists()
            assert runs(truth["pid"])
        finally:
            stop(child)
        # After its end the process is free again.
        assert memtui("record", truth["pid"], "-o", second, "--duration", "0.5", *TRACKER).returncode == 0


def test_a_second_attach_opens_the_running_session(tmp_path):
    path = tmp_path / "a.memtui"
    with pattern("loop", "--pages", 300) as truth:
        child = start("record", truth["pid"], "-o", path, "--interval", "0.1", *TRACKER)
        screen = None
        try:
            wait_for_samples(path, 3).close()
            screen = Terminal("attach", truth["pid"], module="memtui")
            screen.read(20, until="LIVE")
            screen.send("q")
            assert screen.end(20) == 0
            assert f"goes on recording: memtui attach {truth['pid']} comes back" in screen.text.replace("\n", "")
            assert child.poll() is None
            assert runs(truth["pid"])
        finally:
            if screen:
                screen.close()
            code, _, err = stop(child)
        assert code == 0, err
    reader = Session(path)
    assert reader.end is not None
    assert reader.end.kind == "stopped"
    reader.close()


@contextmanager
def tree(*options: object, path: Path) -> Iterator[tuple[int, int]]:
    """(PID of a target that is recorded now, with these options; PID of its child, which has RANK)."""
    source = (
        "import os, subprocess, sys, time\n"
        f"words = {pattern_argv('loop', '--pages', 300)}\n"
        f"child = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=os.environ | {{'RANK': '{RANK}'}})\n"
        "print(child.pid, flush=True); child.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        recorder = start("record", parent.pid, "-o", path, *TRACKER, *options)
        try:
            wait_for_samples(path, 3).close()
            yield parent.pid, pid
        finally:
            try:
                stop(recorder)
            finally:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("how", ["pid", "rank"])
def test_attach_to_a_member_of_a_tree_that_is_recorded_opens_that_recording_at_it(how, tmp_path):
    path = tmp_path / "a.memtui"
    with tree("--interval", "0.1", "--tracker", "auto", path=path) as (parent, pid):
        name = ("--rank", RANK) if how == "rank" else (pid,)
        screen = Terminal("attach", *name, module="memtui", columns=150, rows=45)
        try:
            screen.read(20, until=f"all panels show pid {pid}")
            assert f"working set of pid {pid}" in screen.text
            screen.send("q")
            assert screen.end(20) == 0
            output = screen.output.decode()
            assert f"process {pid} is recorded in the tree of process {parent}: recording " in output
            assert f"goes on recording: memtui attach {pid} comes back" in output
        finally:
            screen.close()
        done = memtui("record", pid, "-o", tmp_path / "b.memtui", *TRACKER)
        assert done.returncode == 2
        assert f"process {pid} is recorded already in the tree of process {parent}, by sampler " in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_child_of_what_is_recorded_without_children_is_no_member(tmp_path):
    with tree("--interval", "0.1", "--no-children", path=tmp_path / "a.memtui") as (_, pid):
        done = memtui("record", pid, "-o", tmp_path / "b.memtui", "--duration", "0.5", *TRACKER)
        assert done.returncode == 0, done.stderr


def test_options_of_a_second_attach_reach_the_recording_or_are_named(tmp_path, monkeypatch):
    path, config = tmp_path / "a.memtui", tmp_path / "config" / "memtui"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('flush = "off"\n')  # a habit, which nobody asks for now
    with pattern("loop", "--pages", 300) as truth:
        child = start("record", truth["pid"], "-o", path, "--interval", "0.1", *TRACKER)
        try:
            wait_for_samples(path, 3).close()
            options = ("--interval", "0.3", "--tracker", "rss", "--no-pause", "-o", tmp_path / "b.memtui")
            monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
            screen = Terminal("attach", truth["pid"], *options, module="memtui", columns=150)
            try:
                screen.read(20, until="LIVE")
                screen.send("h")
                screen.read(20, until="asked 0.30 s")
                screen.send("q")
                assert screen.end(20) == 0
                output = screen.output.decode()
            finally:
                screen.close()
            assert " is asked for an interval of 0.3 s, 0.1 s before" in output
            assert "so --no-pause, --output, --tracker changed nothing; memtui stop " in output
            assert not (tmp_path / "b.memtui").exists()
            (recording,) = json.loads(memtui("list", "--json").stdout)["recordings"]
            assert recording["interval_s"] == 0.3
        finally:
            stop(child)


def test_the_claim_ends_with_its_holder(tmp_path):
    """By kill -9, of the sampler and of the memtui above it; nothing has to be cleaned up."""
    with pattern("loop", "--pages", 300) as truth:
        for number, victim in enumerate((SAMPLER, "memtui")):
            path = tmp_path / f"{number}.memtui"
            child = start("record", truth["pid"], "-o", path, "--interval", "0.05", *TRACKER)
            wait_for_samples(path, 3).close()
            sampler = part(child.pid, SAMPLER)
            os.kill(sampler.pid if victim == SAMPLER else child.pid, signal.SIGKILL)
            child.communicate(timeout=30)
            assert gone(sampler)
        done = memtui("record", truth["pid"], "-o", tmp_path / "c.memtui", "--duration", "0.5", *TRACKER)
        assert done.returncode == 0, done.stderr


def test_two_that_begin_at_once(tmp_path):
    with pattern("loop", "--pages", 300) as truth:
        argv = ("record", truth["pid"], "--interval", "0.1", "--duration", "4", *TRACKER, "-o")
        both = [start(*argv, tmp_path / f"{i}.memtui") for i in range(2)]
        ends = sorted((child.communicate(timeout=60)[1], child.returncode) for child in both)
        assert sorted(code for _, code in ends) == [0, 2], ends
        refusal = next(err for err, code in ends if code == 2)
        assert "by sampler " in refusal
        assert refusal.count("\n") == 1
        assert len(list(tmp_path.glob("*.memtui"))) == 1


def test_a_child_that_another_memtui_watches_is_left_out(tmp_path):
    source = (
        "import subprocess, sys, time\n"
        f"words = {pattern_argv('loop', '--pages', 300)}\n"
        "child = subprocess.Popen(words, stdout=subprocess.DEVNULL); print(child.pid, flush=True)\n"
        "time.sleep(30)\n"
    )
    inner, outer = tmp_path / "inner.memtui", tmp_path / "outer.memtui"
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        child = start("record", pid, "-o", inner, "--interval", "0.1", *TRACKER)
        try:
            wait_for_samples(inner, 3).close()
            sampler = part(child.pid, SAMPLER)
            done = memtui("record", parent.pid, "-o", outer, "--interval", "0.1", "--duration", "1.5", *TRACKER)
            assert done.returncode == 0, done.stderr
        finally:
            stop(child)
            os.kill(pid, signal.SIGKILL)
            parent.kill()
    reader = Session(outer)
    warnings = [e.text for e in reader.events(0, 2**62) if e.kind == "warning"]
    assert any(f"process {pid} is watched already, by sampler {sampler.pid} " in text for text in warnings)
    watched = {row["process"] for s in reader.samples.sample.tolist() for row in reader.processes.samples(s, s)}
    assert {p.pid for p in reader.processes.all() if p.key in watched} == {parent.pid}
    reader.close()


@needs_root
def test_another_users_recording_counts_too(tmp_path):
    """The user watches an own process without root; root, who cannot know of the session, finds the sampler."""
    with temporary_user() as user:
        source = pattern_argv("loop", "--pages", 300)
        with user.start(*source) as target:
            path = user.home / "s.memtui"
            argv = ("record", target.pid, "-o", path, "--tracker", "rss", "--interval", "0.1")
            child = user.start(sys.executable, "-m", "memtui", *argv)
            try:
                wait_for_samples(path, 3).close()
                sampler = part(child.pid, SAMPLER)
                done = memtui("record", target.pid, "-o", tmp_path / "t.memtui")
                assert done.returncode == 2
                assert f"is watched already, by sampler {sampler.pid} of another memtui" in done.stderr
                assert done.stderr.count("\n") == 1
                assert not (tmp_path / "t.memtui").exists()
            finally:
                stop(child)
                target.kill()


def test_a_claim_is_held_once_and_named():
    with subprocess.Popen(["sleep", "30"]) as child:
        try:
            first, second = TargetLocks(), TargetLocks()
            first.acquire(child.pid)
            first.acquire(child.pid)
            with pytest.raises(TargetLocked) as caught:
                second.acquire(child.pid)
            assert caught.value.holder == os.getpid()
            first.release(child.pid)
            second.acquire(child.pid)
            second.close()
            first.acquire(child.pid)
            first.close()
            first.acquire(4_194_000)  # no such process: nothing to claim, nothing to fail
        finally:
            child.kill()


def test_leftovers_and_lies_are_no_recordings(state):
    entry = registry.Running(os.getpid(), read_stat(os.getpid()).start_ticks, 1, 2, "/x.memtui")
    key = (entry.pid, entry.start_ticks)
    assert registry.find(state, *key) is None
    announced = registry.Entry(state, entry)
    assert registry.find(state, *key) == entry
    (file,) = (state / "running").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert registry.find(state, entry.pid, entry.start_ticks + 1) is None, "a reused pid"
    announced.close()
    assert list((state / "running").iterdir()) == []
    file.write_text("{}")  # its memtui was killed: no lock
    assert registry.find(state, *key) is None
    assert not file.exists()
    for text in ("", "[]", '{"pid": 1}', "\x00"):
        file.write_text(text)
        with file.open() as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            assert registry.find(state, *key) is None
    file.unlink()
    file.symlink_to("/etc/passwd")
    assert registry.find(state, *key) is None
