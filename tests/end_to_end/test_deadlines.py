"""A pause that cannot be had ends in time, is told, and leaves nothing held: vfork, uninterruptible reads, exec."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memtui.core.procfs import state_of
from memtui.probes.pause.pauser import NotPaused, Pauser
from memtui.probes.pause.ptrace import BUSY, EXEC
from memtui.session.session import Session
from tests.support.live import needs_root, needs_tracker, start, stop, wait_for_samples
from tests.support.paused import VforkParent, tasks, tracer
from tests.support.stuck_files import SIZE, StuckFiles

pytestmark = pytest.mark.real_clock

LONGEST_S = 0.15  # the deadline of 0.1 s, and what a busy machine adds
_BUSY = "threading.Thread(target=hashlib.pbkdf2_hmac, args=('sha256', b'', b'', 1 << 30), daemon=True).start()\n"
_READS = (
    "import hashlib, os, sys, threading\n" + _BUSY + "data = open(sys.argv[1], 'rb', buffering=0).read()\n"
    "print(len(data), flush=True)\nthreading.Event().wait()"
)
_EXECS = (
    "import hashlib, os, sys, threading, time\n" + _BUSY + "def execute():\n"
    "    try: os.execv(sys.argv[1], ['x'])\n"
    "    except OSError: print('on', flush=True)\n"
    "threading.Thread(target=execute, daemon=True).start()\nwhile True: time.sleep(1)"
)
# Every program it becomes starts threads and becomes itself again.
_EXEC_STORM = (
    "import os, sys, threading, time\nthreading.stack_size(1 << 16)\n"
    "for _ in range(30): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    "left = int(sys.argv[2])\nsys.stdout.write('.'); sys.stdout.flush()\n"
    "if left: os.execv(sys.executable, [sys.executable, '-S', '-E', '-c', sys.argv[1], sys.argv[1], str(left - 1)])"
)
_PARENT = (
    "import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\nprint(child.pid, flush=True)\n"
    "child.wait()\nprint('heard', flush=True)"
)


@pytest.fixture
def stuck(tmp_path):
    folder = tmp_path / "stuck"
    folder.mkdir()
    files = StuckFiles(folder)
    yield files
    files.close()


def start_on(stuck: StuckFiles, source: str) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", source, str(stuck.path)], stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 20
    while not stuck.waiting:
        assert time.monotonic() < end
        time.sleep(0.005)
    return child


def computes(pid: int, seconds: float) -> float:
    """CPU time it used in that time, as a share of one CPU."""
    clock = (~pid << 3) | 2
    before = time.clock_gettime(clock)
    time.sleep(seconds)
    return (time.clock_gettime(clock) - before) / seconds


def record(pid: int, session: Path, go_on: Callable[[], None]) -> dict:
    """Two seconds of a target that cannot be stopped, and one that it runs on."""
    child = start("record", pid, "-o", session, "--interval", "0.05", "--json")
    wait_for_samples(session, 2).close()
    time.sleep(2)
    go_on()
    end = time.monotonic() + 20
    while (reader := wait_for_samples(session, 2)).samples.status[-1] != "ok":
        reader.close()
        assert time.monotonic() < end, "it is not observed again"
        time.sleep(0.1)
    reader.close()
    code, out, err = stop(child)
    assert code == 0, err
    return json.loads(out)


def check(session: Path, report: dict, reason: str) -> None:
    """It failed for that reason while it could not be stopped, and worked afterwards; no hold was long."""
    reader = Session(session)
    samples = reader.samples
    troubled = [i for i, status in enumerate(samples.status) if status == "not paused"]
    assert troubled, set(zip(samples.status, samples.reason, strict=True))
    assert not {why for i in troubled if reason not in (why := samples.reason[i]) and not why.endswith(BUSY)}
    assert any(reason in samples.reason[i] for i in troubled)
    assert all(samples.paused_ns[i] > 0 for i in troubled), "also a pause that failed held threads"
    assert "ok" in samples.status[troubled[-1] :], "it went on as soon as the target could be stopped"
    longest = max(row["paused_ns"] for row in reader.processes.samples(0, int(samples.sample[-1])))
    reader.close()
    assert report["overhead"]["paused_max_s"] == longest / 1e9
    assert 0.05 < longest / 1e9 < LONGEST_S


@needs_tracker
def test_a_vfork_of_two_seconds(tmp_path):
    target, session = VforkParent(tmp_path, True), tmp_path / "s.memtui"
    try:
        report = record(target.pid, session, target.go_on)
        check(session, report, "vfork")
        assert target.process.stdout.readline() == "on\n"
        target.assert_computes()
    finally:
        target.close()


@needs_tracker
def test_an_uninterruptible_read(stuck, tmp_path):
    child, session = start_on(stuck, _READS), tmp_path / "s.memtui"
    try:
        report = record(child.pid, session, stuck.answer)
        check(session, report, "disk and network")
        assert child.stdout.readline() == f"{SIZE}\n", "the read came to its end"
        assert computes(child.pid, 0.2) > 0
    finally:
        stuck.answer()  # a child that waits for it cannot be killed
        child.kill()
        child.communicate()


@needs_root
def test_a_program_that_is_executed_from_a_slow_disk(stuck):
    """Seizing waits for a lock that is held meanwhile; nothing may stand still for that."""
    child, others = start_on(stuck, _EXECS), set(threading.enumerate())
    try:
        with Pauser() as pauser:
            reasons = []
            for _ in range(5):
                begin = time.monotonic()
                with pytest.raises(NotPaused, match=f"exec|{BUSY}") as caught, pauser.paused(child.pid):
                    pytest.fail("the block was entered")
                reasons.append(str(caught.value))
                assert time.monotonic() - begin < LONGEST_S + 0.05
                assert caught.value.paused_ns == 0
                assert computes(child.pid, 0.2) > 0.05, "its other threads stand still"
            assert EXEC in reasons
            tracing = [thread for thread in set(threading.enumerate()) - others if thread.name == "memtui-pause"]
            assert len(tracing) == 1
            stuck.answer()
            assert child.stdout.readline() == "on\n"
            end = time.monotonic() + 10
            while True:  # once the thread that was caught has ended, pauses work again
                try:
                    with pauser.paused(child.pid):
                        break
                except NotPaused:
                    assert time.monotonic() < end
        assert {tracer(task) for task in tasks(child.pid)} == {"0"}
    finally:
        stuck.answer()  # a child that waits for it cannot be killed
        child.kill()
        child.communicate()


@pytest.mark.slow
@needs_root
def test_a_program_of_many_threads_that_executes_others():
    """The one that executes waits for its tracer to notice the end of the others, and the tracer for a lock of its."""
    words = [sys.executable, "-S", "-E", "-c", _EXEC_STORM, _EXEC_STORM, "150"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE)
    os.set_blocking(child.stdout.fileno(), False)
    seen, moved, took = 0, time.monotonic(), []
    try:
        with Pauser() as pauser:
            while child.poll() is None and seen < 151:
                begin = time.monotonic()
                try:
                    with pauser.paused(child.pid):
                        pass
                except (NotPaused, ProcessLookupError):
                    pass
                took.append(time.monotonic() - begin)
                if dots := child.stdout.read():
                    seen, moved = seen + len(dots), time.monotonic()
                assert time.monotonic() - moved < 5, f"it hangs after {seen} programs"
        assert seen == 151
        # This process waits for a CPU, too, while others work: not every one of hundreds can be in time for that.
        assert sorted(took)[len(took) * 19 // 20] < LONGEST_S + 0.05
        assert max(took) < 1
    finally:
        child.kill()
        child.communicate()


@needs_root
def test_the_parent_of_a_child_that_is_killed_during_its_pause_hears_of_it():
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    try:
        child = int(parent.stdout.readline())
        with Pauser() as pauser:
            with pauser.paused(child):
                os.kill(child, signal.SIGKILL)
            assert parent.stdout.readline() == "heard\n"
            assert parent.wait(5) == 0
    finally:
        parent.kill()
        parent.communicate()


@needs_root
def test_another_process_with_the_same_number_is_let_go():
    """A pidfd says which one is meant."""
    ended = subprocess.Popen(["true"])
    pidfd = os.pidfd_open(ended.pid)
    ended.wait()
    with subprocess.Popen(["sleep", "100"]) as other:
        try:
            with Pauser() as pauser:
                with pytest.raises(ProcessLookupError), pauser.paused(other.pid, pidfd):
                    pytest.fail("the block was entered")
                end = time.monotonic() + 5
                # It sleeps again, once it has come that far: it may have been let go while it was starting.
                while (tracer(other.pid), state_of(other.pid)) != ("0", "S"):
                    assert time.monotonic() < end
        finally:
            os.close(pidfd)
            other.kill()
