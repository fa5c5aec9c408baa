"""A sampler that is stopped or frozen while it holds its target is killed by the kernel, and the target goes on."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from memtui.probes.pause import watchdog
from memtui.probes.pause.watchdog import FUSE_S, LONGEST_S, PATIENT_FUSE_S
from memtui.recording.supervisor.launch import SAMPLER_KILLED
from memtui.session.session import Session
from tests.support.cgroups import freezer
from tests.support.live import gone, needs_root, needs_tracker, part, pattern, start, wait_for_samples, wait_until
from tests.support.paused import Counter, state, tracer
from tests.support.terminals import Terminal
from tests.support.users import NO_PASSWORD, temporary_user

pytestmark = pytest.mark.real_clock

_HOLDS = """
import os, sys, time
from memtui.probes.pause.pauser import Pauser
from memtui.probes.pause.watchdog import Watchdog
os.setpriority(os.PRIO_PROCESS, 0, -20)  # as the sampler has it
pid, hold_s, longest_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
with Pauser(watchdog=Watchdog(longest_s=longest_s)) as pauser:
    print("ready", flush=True)
    while True:
        with pauser.paused(pid):
            time.sleep(hold_s)
        print("let go", flush=True)
"""
# In a process of its own: were it held up for too long, the timer would kill it.
_STATES = """
import ctypes, json, os, sys, threading
from memtui.probes.pause.watchdog import Watchdog, _libc, _Times
before = len(os.listdir("/proc/self/fd"))
watchdog = Watchdog()
def state():
    fuse, beat = _Times(), _Times()
    answers = _libc.timer_gettime(watchdog._timer, ctypes.byref(fuse)), \
        _libc.timerfd_gettime(watchdog._beats, ctypes.byref(beat))
    assert answers == (0, 0), answers
    return [fuse.value_s + fuse.value_ns > 0, beat.interval_ns, watchdog._since_ns]
states = [state()]
for _ in range(2):
    with watchdog.watching():
        states.append(state())
        with watchdog.watching():
            states.append(state())
        states.append(state())
    states.append(state())
assert watchdog._thread.daemon, 'the process could not end without close'
inheritable = os.get_inheritable(watchdog._beats)
timer = watchdog._timer
watchdog.close()
watchdog.close()
left = [thread.name for thread in threading.enumerate()], len(os.listdir("/proc/self/fd")) - before
deleted = _libc.timer_gettime(timer, ctypes.byref(_Times())) < 0
print(json.dumps([states, inheritable, left, deleted]))
"""
# The load is a file: how many threads want to run on this machine is not ours to say.
_FUSES = """
import json, os, sys, time
from memtui.probes.pause import watchdog as module
os.setpriority(os.PRIO_PROCESS, 0, int(sys.argv[1]))
module.PATIENT_S = 0.5
watchdog = module.Watchdog()
os.dup2(os.open(sys.argv[2], os.O_RDONLY), watchdog._loadavg)
sets, set_ = [], watchdog._set
def noted(times):
    sets.append(times.value_s + times.value_ns / 1e9)
    set_(times)
watchdog._set = noted
fuses = []
for hold_s, rest_s in json.loads(sys.argv[3]):
    sets.clear()
    with watchdog.watching():
        time.sleep(hold_s)
    fuses.append(sets[:2])
    time.sleep(rest_s)
print(json.dumps(fuses))
"""
TRIES = 12


def holder(pid: int, hold_s: float, longest_s: float = LONGEST_S) -> subprocess.Popen[bytes]:
    """Holds a process again and again, with a watchdog."""
    argv = [sys.executable, "-c", _HOLDS, str(pid), str(hold_s), str(longest_s)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


@pytest.fixture
def counter() -> Iterator[Counter]:
    counter = Counter(4)
    yield counter
    counter.close()


def is_held(pid: int) -> bool:
    return state(pid) == "t" and tracer(pid) != "0"


def stop_while_it_holds(sampler: int, pid: int) -> None:
    """SIGSTOP to a sampler at a moment when it holds this process."""
    while True:
        wait_until(lambda: is_held(pid))
        os.kill(sampler, signal.SIGSTOP)
        wait_until(lambda: state(sampler) in "TZ")
        if is_held(pid):
            return
        os.kill(sampler, signal.SIGCONT)


def test_the_timer_runs_during_pauses_only_and_is_gone_in_the_end():
    """A process that pauses nobody is not killed, and does not wake up."""
    ended = subprocess.run([sys.executable, "-c", _STATES], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    (idle, *states), inheritable, left, deleted = json.loads(ended.stdout)
    assert idle == [False, 0, None]
    for *during, after in (states[:4], states[4:]):
        assert [(armed, beat_ns) for armed, beat_ns, _ in during] == [(True, 100_000_000)] * 3
        assert during[0][2] == during[1][2] == during[2][2] is not None, "a nested pause does not begin anew"
        assert after == idle
    assert states[4][2] > states[0][2]
    assert (inheritable, left, deleted) == (False, [["MainThread"], 0], True)


def fuses_s(folder: Path, *holds: tuple[float, float], priority: int = -1, running: int | str = 1) -> list[list[float]]:
    """Return what the timer is set to in each of these holds (how long, and the rest after it): at first, and next."""
    load = folder / "loadavg"
    load.write_text(f"0.00 0.00 0.00 {running}/900 4711\n" if isinstance(running, int) else running)
    argv = [sys.executable, "-c", _FUSES, str(priority), str(load), json.dumps(holds)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    found: list[list[float]] = json.loads(ended.stdout)
    return found


@needs_root
def test_a_long_pause_makes_it_patient_at_once_and_for_a_while(tmp_path):
    """A machine on which a pause took long has no CPU for this process at times."""
    assert fuses_s(tmp_path, (0.15, 0), (0, 0), (0, 0.6), (0, 0)) == [
        [FUSE_S, PATIENT_FUSE_S],
        [PATIENT_FUSE_S, 0],
        [PATIENT_FUSE_S, 0],
        [FUSE_S, 0],
    ]


@needs_root
@pytest.mark.parametrize(("others", "fuse_s"), [(0, FUSE_S), (1, FUSE_S), (2, PATIENT_FUSE_S)])
def test_it_is_patient_where_more_want_to_run_than_there_are_cpus(tmp_path, others, fuse_s):
    """A target that has a thread for each CPU is not one thread too many: what reads the load runs, too."""
    running = (os.cpu_count() or 1) + others
    assert fuses_s(tmp_path, (0, 0), running=running) == [[fuse_s, 0]]


@needs_root
@pytest.mark.parametrize("load", ["", "0.1 0.1", "0.1 0.1 0.1 x/5 1"])
def test_it_is_patient_where_the_load_is_not_known(tmp_path, load):
    assert fuses_s(tmp_path, (0, 0), running=load) == [[PATIENT_FUSE_S, 0]]


@pytest.mark.parametrize("priority", [0, 1])
def test_it_is_patient_without_a_high_priority(tmp_path, priority):
    assert fuses_s(tmp_path, (0, 0), priority=priority) == [[PATIENT_FUSE_S, 0]]


def test_times_are_seconds_and_the_nanoseconds_of_the_rest():
    times = watchdog._times(1.5, 20.25)
    assert (times.value_s, times.value_ns, times.interval_s, times.interval_ns) == (1, 5 * 10**8, 20, 25 * 10**7)


def test_a_timer_is_deleted_where_the_kernel_refuses_the_other_one(monkeypatch):
    calls = []

    class Refuses:
        def timer_create(self, _clock, _event, timer):
            timer._obj.value = 7
            return 0

        def timerfd_create(self, *_):
            ctypes.set_errno(errno.EMFILE)
            return -1

        def timer_delete(self, timer):
            calls.append(timer.value)

    monkeypatch.setattr(watchdog, "_libc", Refuses())
    threads = threading.active_count()
    with pytest.raises(OSError, match="Too many open files"):
        watchdog.Watchdog()
    assert calls == [7]
    assert threading.active_count() == threads


@needs_root
def test_a_stopped_holder_is_killed_and_its_target_goes_on(counter):
    chance, held = random.Random(7), 0
    for _ in range(TRIES):
        child = holder(counter.pid, 0.002)
        time.sleep(chance.random() * 0.05)
        child.send_signal(signal.SIGSTOP)
        wait_until(lambda child=child: state(child.pid) in "TZ")
        if is_held(counter.pid):
            held += 1
            wait_until(lambda: not is_held(counter.pid), 5)
            assert child.wait(5) == -signal.SIGKILL
        counter.assert_runs()
        child.kill()  # one that held nobody stays stopped, as was asked for
        child.communicate()
        assert tracer(counter.pid) == "0"
    assert held > TRIES / 3


@needs_root
@pytest.mark.parametrize("too", [False, True], ids=["alone", "with its target"])
def test_a_frozen_holder_is_killed(counter, too):
    """By the freezer of version 2, which lets nobody in the same cgroup look after it."""
    with freezer(2) as (folder, switch, (off, on)):
        child = holder(counter.pid, 3600)
        wait_until(lambda: is_held(counter.pid))
        for pid in [child.pid, counter.pid][: 1 + too]:
            (folder / "cgroup.procs").write_text(str(pid))
        switch.write_text(on)
        assert child.wait(5) == -signal.SIGKILL
        if too:
            counter.assert_stands()
            switch.write_text(off)
        counter.assert_runs()
        child.communicate()


@needs_root
def test_a_long_hold_is_no_reason_but_one_without_end_is(counter):
    child = holder(counter.pid, 1.0)
    assert child.stdout is not None
    assert child.stdout.readline() == b"let go\n", "it lived, three times as long as without a sign of life"
    child.kill()
    child.communicate()
    child = holder(counter.pid, 3600, longest_s=0.5)
    assert child.wait(10) == -signal.SIGKILL
    counter.assert_runs()
    child.communicate()


@needs_tracker
def test_the_user_is_told_in_one_line(tmp_path):
    path = tmp_path / "s.memtui"
    with pattern("loop", "--pages", 3000) as truth:
        child = start("record", truth["pid"], "-o", path, "--interval", "0.02", "--max-overhead", "none")
        wait_for_samples(path, 3).close()
        stop_while_it_holds(part(child.pid, "memtui.recording.sampler").pid, truth["pid"])
        out, err = child.communicate(timeout=20)
        assert (child.returncode, out) == (1, "")
        assert err.splitlines()[-1] == f"memtui record: {SAMPLER_KILLED}"
        wait_until(lambda: not is_held(truth["pid"]), 1)
    reader = Session(path)
    assert len(reader.samples) >= 3
    assert reader.end is not None
    assert reader.end.kind == "interrupted"
    reader.close()


@needs_tracker
def test_the_program_that_was_started_runs_on_and_its_pid_is_told(tmp_path):
    path = tmp_path / "s.memtui"
    child = start("record", "-o", path, "--interval", "0.1", "--", sys.executable, "-c", "import time; time.sleep(60)")
    try:
        wait_for_samples(path, 2).close()
        part(child.pid, "memtui.recording.sampler").kill()
        assert child.wait(20) == 1
        reader = Session(path)
        target = psutil.Process(reader.hello.target.pid)
        reader.close()
        assert target.is_running()
        target.kill()  # it writes to the same terminal
        _, err = child.communicate(timeout=20)
        assert err.splitlines()[-1] == (
            f"memtui record: {SAMPLER_KILLED}; the program that was started runs on as PID {target.pid}"
        )
    finally:
        child.kill()


@needs_tracker
def test_the_user_is_told_where_sudo_stands_between():
    """A sudo whose command is stopped stops itself."""
    with temporary_user(NO_PASSWORD) as user, pattern("loop", "--pages", 3000) as truth:
        path = user.home / "s.memtui"
        argv = ("record", truth["pid"], "-o", path, "--interval", 0.02, "--max-overhead", "none", "--sudo")
        child = user.start(sys.executable, "-m", "memtui", *argv)
        wait_for_samples(path, 3).close()
        sampler = part(child.pid, "memtui.recording.sampler")
        above = sampler.parent()
        assert above is not None
        assert above.name() == "sudo"
        stop_while_it_holds(sampler.pid, truth["pid"])
        wait_until(lambda: not is_held(truth["pid"]), 5)
        _, err = child.communicate(timeout=30)
        assert child.returncode == 1
        assert err.splitlines()[-1] == f"memtui record: {SAMPLER_KILLED}"
        assert gone(above), "it is stopped still"


@needs_tracker
def test_the_user_is_told_behind_a_screen():
    """There sudo stops all that is in the foreground, and the shell has it go on."""
    with temporary_user(NO_PASSWORD) as user, pattern("loop", "--pages", 3000) as truth:
        path = user.home / "s.memtui"
        argv = ("attach", truth["pid"], "-o", path, "--interval", 0.02, "--max-overhead", "none", "--sudo")
        screen = Terminal(*argv, module="memtui", before=user.words())
        try:
            screen.read(30, until="LIVE")
            sampler = part(screen.process.pid, "memtui.recording.sampler")
            stop_while_it_holds(sampler.pid, truth["pid"])
            wait_until(lambda: not is_held(truth["pid"]), 5)
            assert gone(sampler)
            screen.read(2)
            os.killpg(screen.process.pid, signal.SIGCONT)  # fg
            screen.read(30, until="ended")
            screen.send("q")
            assert screen.end(30) == 1
            output = " ".join(screen.output.decode().replace("\r\n", " ").split())
            assert f"memtui attach: {SAMPLER_KILLED}" in output
        finally:
            screen.close()
