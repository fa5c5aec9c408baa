"""The pause: real, short, invisible, and over whatever happens."""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from memtui.core.procfs import has_ended
from memtui.core.worker_thread import WorkerThread
from memtui.probes.pause import pauser as pauser_module
from memtui.probes.pause.pauser import NotPaused, Pause, Pauser, PauseRefused
from memtui.probes.pause.ptrace import BUSY, ENDING, EXEC, Seizure
from tests.support.pagetable_targets import need_root
from tests.support.paused import Counter, VforkParent, state, tasks, tracer

pytestmark = pytest.mark.real_clock


@pytest.fixture
def pauser():
    need_root()
    with Pauser() as pauser:
        yield pauser


@pytest.fixture(params=[1, 4], ids=["one thread", "four threads"])
def counter(request):
    counter = Counter(request.param)
    yield counter
    counter.close()


def test_it_stands_still_and_goes_on(pauser, counter):
    for _ in range(20):
        with pauser.paused(counter.pid) as pause:
            counter.assert_stands()
            assert pause.paused_ns is None
            assert pause.start_ns <= time.monotonic_ns()
        counter.assert_runs()
        assert pause.paused_ns >= 20_000_000
        assert pause.threads == counter._threads
        assert not pause.stopped
    assert tracer(counter.pid) == "0"


def test_many_threads(pauser):
    code = (
        "import threading, time\nthreading.stack_size(1 << 17)\n"
        "for _ in range(499): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "print('ready', flush=True); time.sleep(1000)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        with pauser.paused(process.pid) as pause:
            assert pause.threads == 500
            assert {state(task) for task in tasks(process.pid)} == {"t"}
    finally:
        process.kill()
        process.communicate()


def test_threads_that_come_and_go_meanwhile(pauser):
    code = (
        "import threading\nprint('ready', flush=True)\n"
        "while True:\n t = [threading.Thread(target=int) for _ in range(8)]\n"
        " for x in t: x.start()\n for x in t: x.join()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        for _ in range(100):
            with pauser.paused(process.pid):
                assert {state(task) for task in tasks(process.pid)} <= {"t", "Z", "X"}
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_an_error_in_the_block_frees_the_target(pauser, counter):
    with pytest.raises(ZeroDivisionError), pauser.paused(counter.pid):
        _ = 1 / 0
    counter.assert_runs()
    with pauser.paused(counter.pid):
        counter.assert_stands()
    counter.assert_runs()


def test_the_parent_hears_nothing(pauser):
    """A shell with job control asks with WUNTRACED, and would take the terminal back."""
    need_root()
    counter = Counter()
    try:
        for _ in range(10):
            with pauser.paused(counter.pid):
                assert os.waitpid(counter.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED) == (0, 0)
            assert os.waitpid(counter.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED) == (0, 0)
    finally:
        counter.close()


def test_a_stopped_process_stays_stopped(pauser, counter):
    os.kill(counter.pid, signal.SIGSTOP)
    os.waitpid(counter.pid, os.WUNTRACED)
    with pauser.paused(counter.pid) as pause:
        assert pause.stopped
    time.sleep(0.02)
    assert state(counter.pid) == "T"
    counter.assert_stands()
    os.kill(counter.pid, signal.SIGCONT)
    counter.assert_runs()


def test_signals_arrive_all_the_same(pauser):
    """Also those that were on their way when the pause began."""
    code = (
        "import os, signal, time\ncount = [0]\n"
        # not print: the next signal can come while the handler still writes, and print is not reentrant
        "def handler(*_): count[0] += 1; os.write(1, b'%d\\n' % count[0])\n"
        "signal.signal(signal.SIGUSR1, handler)\nprint('ready', flush=True)\nwhile True: time.sleep(0.001)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        for n in range(1, 51):
            os.kill(process.pid, signal.SIGUSR1)
            with pauser.paused(process.pid):
                pass
            assert process.stdout.readline() == f"{n}\n"
    finally:
        process.kill()
        process.communicate()


def test_sleep_and_a_blocked_read_go_on(pauser):
    code = "import sys, time\nprint('ready', flush=True)\ntime.sleep(.3)\nprint(sys.stdin.readline(), flush=True)"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    for _ in range(60):
        with pauser.paused(process.pid):
            pass
        time.sleep(0.01)
    assert process.communicate("hello\n")[0].strip() == "hello"
    assert process.returncode == 0


@pytest.mark.parametrize("with_thread", [False, True], ids=["alone", "and a busy thread"])
def test_what_cannot_stop_in_time_is_let_go(tmp_path, with_thread):
    """The kernel frees a thread that never stopped when the tracing thread ends; the others are let go at once."""
    need_root()
    target = VforkParent(tmp_path, with_thread)
    try:
        with Pauser(deadline_s=0.05) as pauser:
            for _ in range(3):
                with pytest.raises(NotPaused, match="vfork"), pauser.paused(target.pid):
                    pytest.fail("the block was entered")
                end = time.monotonic() + 5
                while any(tracer(task) != "0" for task in tasks(target.pid)):
                    assert time.monotonic() < end, "it is still traced"
                    time.sleep(0.001)
                assert state(target.pid) == "D"
                if with_thread:
                    target.assert_computes()
            target.go_on()
            assert target.process.stdout.readline() == "on\n"  # not stopped afterwards by what was asked in vain
            with pauser.paused(target.pid):
                assert {state(task) for task in tasks(target.pid)} == {"t"}
    finally:
        target.close()


def test_a_traced_process_is_refused_with_its_tracer(pauser):
    need_root()
    counter = Counter()
    code = (
        "import sys; from memtui.probes.pause.pauser import Pauser\n"
        "with Pauser().paused(int(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(counter.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        other.stdout.readline()
        with pytest.raises(PauseRefused, match=r"process \d+ traces it already"), pauser.paused(counter.pid):
            pytest.fail("the block was entered")
        other.communicate()
        counter.assert_runs()
        with pauser.paused(counter.pid):
            counter.assert_stands()
    finally:
        other.kill()
        other.wait()
        counter.close()


IN_ANOTHER_PROCESS = """
import sys
from memtui.probes.pause.pauser import PauseRefused, Pauser
try:
    with Pauser(deadline_s=-1) as pauser, pauser.paused(int(sys.argv[1])):
        print("paused")
except PauseRefused as error:
    print(error)
"""


def test_a_traced_process_is_refused_also_when_there_was_no_time_to_try(counter):
    """On a busy machine the deadline passes before the first thread is seized."""
    with Pauser(deadline_s=-1) as pauser, pytest.raises(NotPaused, match=BUSY), pauser.paused(counter.pid):
        pass
    tracer = Seizure(counter.pid, None, 1)
    tracer.stop()
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(counter.pid)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20)
    tracer.release()
    assert ended.stdout == f"process {os.getpid()} traces it already (a debugger, strace or another memtui)\n", ended


def test_a_process_that_ended(pauser):
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessLookupError), pauser.paused(process.pid):
        pytest.fail("the block was entered")
    assert process.wait() == 0  # its exit status was left for its parent
    with pytest.raises(ProcessLookupError), pauser.paused(process.pid):
        pytest.fail("the block was entered")


def test_a_process_that_is_killed_during_the_pause(pauser):
    need_root()
    counter = Counter()
    with pauser.paused(counter.pid):
        counter.process.kill()
    assert counter.process.wait() == -signal.SIGKILL
    counter.close()


def wait_until_gone(tid: int) -> None:
    """Wait until a thread has ended for the kernel, so that it traces nothing any more."""
    end = time.monotonic() + 20
    while not has_ended(tid):
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_busy_tracing_thread_is_given_up(monkeypatch, counter):
    """Seizing may block, for example while the target executes another program from a slow disk."""
    need_root()
    stop = Seizure.stop

    def slow(seizure):
        pause = stop(seizure)
        time.sleep(1.5)
        return pause

    monkeypatch.setattr(Seizure, "stop", slow)
    with Pauser(deadline_s=0.3) as pauser:  # on a machine with other work, a thread may stop only after 10 ms
        with pytest.raises(NotPaused, match=f"exec|{BUSY}"), pauser.paused(counter.pid):
            pytest.fail("the block was entered")
        monkeypatch.setattr(Seizure, "stop", stop)
        with pytest.raises(NotPaused, match=f"exec|{BUSY}"), pauser.paused(counter.pid):
            pytest.fail("a thread still holds it")
        wait_until_gone(pauser._stuck[counter.pid].native_id)
        counter.assert_runs()
        monkeypatch.setattr(pauser, "_deadline_s", 1.0)
        with pauser.paused(counter.pid):
            counter.assert_stands()
    counter.assert_runs()


def test_a_process_that_blocks_its_tracing_thread_is_left_alone_until_that_has_ended(monkeypatch):
    """One thread waits for it, and one reaps for that; a thread for each try would be thousands in an hour."""
    pid, calls, entered, unblocked = (1 << 22) + 10, [], threading.Event(), threading.Event()  # nobody's pid

    def block(seizure):
        calls.append(seizure.pid)
        entered.set()
        unblocked.wait(60)
        raise NotPaused("its disk has answered")

    monkeypatch.setattr(Seizure, "stop", block)
    others = set(threading.enumerate())
    with Pauser() as pauser:
        try:
            for n in range(5):
                # The first time, the thread may not have had a CPU yet.
                why = re.escape(EXEC) if n else f"{re.escape(EXEC)}|{BUSY}"
                with pytest.raises(NotPaused, match=why), pauser.paused(pid, deadline_s=0.01):
                    pytest.fail("the block was entered")
                assert entered.wait(20)
            assert calls == [pid]
            waiting = sorted(thread.name for thread in set(threading.enumerate()) - others)
            assert waiting == ["memtui-attend", "memtui-pause"]
        finally:
            unblocked.set()
        assert pauser._stuck[pid].join(20)
        with pytest.raises(NotPaused, match="its disk has answered"), pauser.paused(pid, deadline_s=20):
            pytest.fail("the block was entered")
        assert calls == [pid, pid]


def test_a_tracing_thread_that_has_ended_blocks_no_pause_while_another_thread_joins_it(monkeypatch, counter):
    """Of two threads that join a third one, one may be told that it lives, though the kernel has ended it."""
    unblocked = threading.Event()
    stop, join = Seizure.stop, WorkerThread.join

    def block(_seizure):
        unblocked.wait(60)
        raise NotPaused("late")

    def join_stuck_in_vain(thread, timeout_s):
        if thread is not stuck:
            return join(thread, timeout_s)
        time.sleep(timeout_s)
        return False

    monkeypatch.setattr(Seizure, "stop", block)
    with Pauser() as pauser:
        try:
            with pytest.raises(NotPaused), pauser.paused(counter.pid, deadline_s=0.01):
                pytest.fail("the block was entered")
            stuck = pauser._stuck[counter.pid]
        finally:
            unblocked.set()
        wait_until_gone(stuck.native_id)
        monkeypatch.setattr(Seizure, "stop", stop)
        monkeypatch.setattr(WorkerThread, "join", join_stuck_in_vain)
        with pauser.paused(counter.pid, deadline_s=20):
            counter.assert_stands()
        monkeypatch.setattr(WorkerThread, "join", join)  # the thread that attends it ends


def test_a_tracing_thread_that_waits_for_a_cpu_is_not_taken_for_one_that_an_exec_blocks(monkeypatch):
    """It computes without the lock of the interpreter, as one that never got a CPU is ready to."""
    pid = (1 << 22) + 10  # nobody's
    ended = threading.Event()

    def compute(_seizure):
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 21)
        ended.set()
        raise NotPaused("it had a CPU at last")

    monkeypatch.setattr(Seizure, "stop", compute)
    with Pauser() as pauser:
        for _ in range(2):  # the second time it is known to be late
            with pytest.raises(NotPaused, match=BUSY), pauser.paused(pid, deadline_s=0.01):
                pytest.fail("the block was entered")
            assert not ended.is_set()
        wait_until_gone(pauser._stuck[pid].native_id)


def test_a_process_that_another_thread_of_this_one_traces_is_not_called_starting_a_program(pauser, counter):
    earlier = Seizure(counter.pid, None, 20)
    earlier.stop()
    try:
        with pytest.raises(NotPaused, match=ENDING), pauser.paused(counter.pid):
            pytest.fail("the block was entered")
    finally:
        earlier.release()
    with pauser.paused(counter.pid, deadline_s=2.0):
        counter.assert_stands()


class Kernel:
    """Stops and releases processes that are nobody's, and notes in which order."""

    FIRST, SECOND = (1 << 22) + 10, (1 << 22) + 11

    def __init__(self, monkeypatch, errors=None, clean=True):
        self.calls: list[tuple[str, int]] = []
        self._errors, self._clean = errors or {}, clean
        monkeypatch.setattr(Seizure, "stop", lambda seizure: self._stop(seizure))
        monkeypatch.setattr(Seizure, "release", lambda seizure: self._release(seizure))
        self._others = set(threading.enumerate())

    def _stop(self, seizure):
        seizure.start_ns = time.monotonic_ns()
        if seizure.pid in self._errors:
            raise self._errors[seizure.pid]
        self.calls.append(("stop", seizure.pid))
        return Pause(seizure.start_ns, time.monotonic_ns(), threads=1)

    def _release(self, seizure):
        self.calls.append(("release", seizure.pid))
        if isinstance(self._clean, Exception):
            raise self._clean
        return self._clean

    def threads(self) -> list[str]:
        return [thread.name for thread in set(threading.enumerate()) - self._others]


@pytest.mark.parametrize("clean", [True, False])
def test_a_tracing_thread_is_used_again_unless_a_thread_of_the_target_was_killed(monkeypatch, clean):
    """Such a thread stays traced, unseen by its parent, until the tracing thread ends."""
    kernel = Kernel(monkeypatch, clean=clean)
    monkeypatch.setattr(pauser_module, "_END_S", 20)
    with Pauser() as pauser:
        for n in range(1, 4):
            began_ns = time.monotonic_ns()
            with pauser.paused(kernel.FIRST, deadline_s=20) as pause:
                assert kernel.threads() == ["memtui-pause"]
                assert kernel.calls[2 * n - 2 :] == [("stop", kernel.FIRST)]
            assert kernel.calls[2 * n - 1 :] == [("release", kernel.FIRST)]
            assert 0 < pause.paused_ns <= time.monotonic_ns() - began_ns
            assert kernel.threads() == (["memtui-pause"] if clean else [])
    assert kernel.threads() == []


@pytest.mark.parametrize("error", [NotPaused("late"), PauseRefused("no"), ProcessLookupError("gone")], ids=repr)
def test_one_that_is_not_paused_prevents_no_pause_of_another(monkeypatch, error):
    kernel = Kernel(monkeypatch, {Kernel.FIRST: error})
    monkeypatch.setattr(
        pauser_module, "refusal", lambda _pid: PauseRefused("not asked: a thread of it was interrupted")
    )
    monkeypatch.setattr(pauser_module, "_END_S", 20)
    began_ns = time.monotonic_ns()
    with Pauser() as pauser, pauser.paused_together({kernel.FIRST: None, kernel.SECOND: None}, 20) as outcomes:
        assert outcomes[kernel.FIRST] is error
        assert isinstance(outcomes[kernel.SECOND], Pause)
        assert kernel.threads() == ["memtui-pause"], "the thread of the other one has ended, and with it all tracing"
    assert kernel.calls == [("stop", kernel.SECOND), ("release", kernel.SECOND)]
    assert kernel.threads() == []
    if not isinstance(error, ProcessLookupError):
        assert 0 < error.paused_ns <= time.monotonic_ns() - began_ns


def test_an_answer_may_come_a_little_after_the_deadline(monkeypatch):
    kernel = Kernel(monkeypatch)
    monkeypatch.setattr(pauser_module, "_SLACK_S", 20)
    with Pauser() as pauser, pauser.paused(kernel.FIRST, deadline_s=0) as pause:
        assert pause.threads == 1


@pytest.mark.parametrize("first", [False, True], ids=["after", "before"])
def test_an_interrupt_ends_the_tracing_of_what_has_stopped(monkeypatch, first):
    """Also of a process whose answer was not taken yet."""
    kernel = Kernel(monkeypatch, {Kernel.FIRST if first else Kernel.SECOND: KeyboardInterrupt()})
    monkeypatch.setattr(pauser_module, "_END_S", 20)
    targets = {kernel.FIRST: None, kernel.SECOND: None}
    with Pauser() as pauser, pytest.raises(KeyboardInterrupt), pauser.paused_together(targets, 20):
        pytest.fail("the block was entered")
    if first:  # the kernel releases it when its tracing thread ends
        assert kernel.calls == [("stop", kernel.SECOND)]
    else:
        assert kernel.calls == [("stop", kernel.FIRST), ("release", kernel.FIRST)]
    assert kernel.threads() == []


def test_an_error_of_a_release_is_raised_and_ends_its_thread(monkeypatch):
    kernel = Kernel(monkeypatch, clean=OSError("no release"))
    monkeypatch.setattr(pauser_module, "_END_S", 20)
    with Pauser() as pauser:
        with pytest.raises(OSError, match="no release"), pauser.paused(kernel.FIRST, deadline_s=20):
            pass
        assert kernel.threads() == []


def test_the_watchdog_watches_from_before_a_stop_until_after_the_release(monkeypatch):
    kernel = Kernel(monkeypatch)

    class Watchdog:
        @contextmanager
        def watching(self):
            kernel.calls.append("watched")
            yield
            kernel.calls.append("not watched")

        def close(self):
            kernel.calls.append("closed")

    with Pauser(watchdog=Watchdog()) as pauser, pauser.paused(kernel.FIRST, deadline_s=20):
        pass
    stopped, released = ("stop", kernel.FIRST), ("release", kernel.FIRST)
    assert kernel.calls == ["watched", stopped, released, "not watched", "closed"]


def test_what_the_check_raises_ends_the_pause_before_anything_stands_still(counter):
    need_root()
    pids = []

    def check(pid):
        pids.append(pid)
        raise NotPaused("not now")

    with Pauser(check=check) as pauser:
        with pytest.raises(NotPaused, match="not now") as caught, pauser.paused(counter.pid, deadline_s=20):
            pytest.fail("the block was entered")
        assert caught.value.paused_ns == 0
        assert pids == [counter.pid]
    counter.assert_runs()


_PAUSES_FOR_EVER = """
import sys, time
from memtui.probes.pause.pauser import Pauser
pauser, pid = Pauser(), int(sys.argv[1])
print("ready", flush=True)
while True:
    with pauser.paused(pid):
        time.sleep(0.002)
"""


@pytest.mark.parametrize("stops", [True, False], ids=["it had stopped", "it did not stop"])
def test_an_answer_that_comes_late_is_believed(monkeypatch, counter, stops):
    """A tracing thread that had no CPU for a while is not taken for one that an exec holds up."""
    original = Seizure.stop

    def late(self):
        time.sleep(0.2)
        if stops:
            monkeypatch.setattr(self, "_deadline_ns", time.monotonic_ns() + 10**9)
            return original(self)
        raise NotPaused("1 of its threads did not stop")

    monkeypatch.setattr(Seizure, "stop", late)
    monkeypatch.setattr("memtui.probes.pause.pauser._END_S", 5.0)
    with Pauser() as pauser:
        why = "too busy" if stops else "1 of its threads did not stop"
        with pytest.raises(NotPaused, match=why), pauser.paused(counter.pid):
            pytest.fail("the block was entered")
        counter.assert_runs()
        monkeypatch.setattr(Seizure, "stop", original)
        with pauser.paused(counter.pid):
            counter.assert_stands()


def test_kill_9_at_any_moment_frees_the_target():
    need_root()
    counter = Counter(4)
    chance = random.Random(5)
    try:
        for _ in range(30):
            victim = subprocess.Popen(
                [sys.executable, "-c", _PAUSES_FOR_EVER, str(counter.pid)], stdout=subprocess.PIPE
            )
            victim.stdout.readline()
            time.sleep(chance.random() * 0.02)
            victim.kill()
            victim.communicate()
            counter.assert_runs()
            assert state(counter.pid) in "RS"
            assert tracer(counter.pid) == "0"
    finally:
        counter.close()


def test_a_tracing_thread_sleeps_for_microseconds():
    """By default the kernel adds 50 to every sleep, of which a pause has many."""
    thread = pauser_module._tracing_thread()
    get_timer_slack = 30
    assert thread.submit(lambda: pauser_module._libc.prctl(get_timer_slack, 0, 0, 0, 0)).get() == (1000, None)
    thread.end()
    assert thread.join(5)
