"""Processes under a real seccomp filter are read without a pause, unless the user says otherwise."""

from __future__ import annotations

import errno
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from memtui.core.procfs import read_stat
from memtui.core.samples import Event, Process
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.seccomp import SyscallFilters
from memtui.probes.window_reader import FILTERED, PageReader, Reading, Subject
from tests.support.live import needs_root, needs_tracker, start, wait_until
from tests.support.streams import Stream, sample

pytestmark = pytest.mark.real_clock

# Sleeps and touches until its standard input is closed, or for so many seconds. The filter kills, or answers with an
# error, where the kernel goes on with an interrupted sleep.
_SLEEPER = """
import ctypes, errno, os, select, struct, sys, threading, time
kind, seconds = sys.argv[1], float(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
def install(restart):
    load, equal, answer = (struct.pack("HBBI", code, 0, jump, k) for code, jump, k in (
        (0x20, 0, 0), (0x15, 1, int(sys.argv[3])), (0x06, 0, restart)))
    held = ctypes.create_string_buffer(load + equal + answer + struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
    program = struct.pack("HxxxxxxQ", 4, ctypes.addressof(held))
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP, a filter
def kill(): install(0x80000000)
def ready(): print("ready", os.getpid(), flush=True)
memory = bytearray(1 << 20)
def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not select.select([0], [], [], 0)[0]:
        memory[:: 4096] = b"1" * 256
        # relative: time.sleep has a deadline, and begins anew
        if libc.usleep(10000): sys.exit(ctypes.get_errno())
if kind == "many groups": os.setgroups(range(1, 20001))  # its status file has 100 kB
if kind in ("harmless", "many groups"): install(0x7FFF0000)
if kind == "deadly": kill()
if kind == "refusing": install(0x50000 | errno.EPERM)  # SECCOMP_RET_ERRNO
if kind == "in a thread":
    there = threading.Event()
    def run(): kill(); there.set(); work(seconds)
    threading.Thread(target=run).start()
    there.wait()
if kind == "in a child":
    if not os.fork(): kill()
if kind == "strict":
    ready()
    libc.prctl(22, 1, 0, 0, 0)
    while True: memory[0] = 1
if kind != "in a child" or libc.prctl(21, 0, 0, 0, 0) == 2: ready()
if kind == "later": work(1); kill()
work(seconds)
if kind == "in a child" and libc.prctl(21, 0, 0, 0, 0) == 0: assert os.wait()[1] == 0
print("whole", flush=True)
"""
_RESTART_SYSCALL = {"x86_64": 219, "aarch64": 128}
SECONDS = 60.0


@contextmanager
def sleeper(kind: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The target, and the pid of the process under a filter."""
    number = _RESTART_SYSCALL[platform.machine()]
    argv = [sys.executable, "-c", _SLEEPER, kind, str(SECONDS), str(number)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        try:
            assert target.stdout is not None
            word, pid = target.stdout.readline().split()
            assert word == "ready"
            yield target, int(pid)
        finally:
            target.kill()


def end(target: subprocess.Popen[str]) -> None:
    """Have it come to its end by itself."""
    assert target.stdin is not None
    target.stdin.close()


def told(stream: Stream) -> list[str]:
    return [m.text for m in stream.messages if isinstance(m, Event) and "seccomp" in m.text]


@needs_tracker
@pytest.mark.parametrize("kind", ["plain", "harmless", "deadly", "refusing", "in a thread", "later"])
def test_a_target_under_a_filter_is_not_paused_and_lives(kind):
    with sleeper(kind) as (target, pid):
        stream = sample(pid, 2.5)
        end(target)
        assert target.stdout is not None
        assert target.stdout.readline() == "whole\n"
        assert target.wait(10) == 0
    windows = stream.of_pid(pid)
    unheld = [w for w in windows if FILTERED in w.reason]
    assert {(w.status, w.paused_ns) for w in unheld[1:]} <= {("approximate", 0)}, [w.reason for w in unheld]
    assert all(w.pages is not None for w in unheld[1:])
    if kind == "plain":
        assert not unheld
        assert not told(stream)
        assert "ok" in {w.status for w in windows}
        return
    assert len(unheld) > 2
    assert windows[-len(unheld) :] == unheld, "once found, it is not held again"
    assert len(unheld) == len(windows) or kind == "later"
    (line,) = told(stream)
    assert line.startswith(f"process {pid} runs under a seccomp filter")
    assert "--pause" in line


@needs_tracker
@pytest.mark.parametrize(("kind", "code"), [("deadly", -signal.SIGSYS), ("refusing", errno.EPERM)])
def test_with_pause_it_is_held_whatever_becomes_of_it(kind, code):
    """The filters of these tests do what is feared."""
    with sleeper(kind) as (target, pid):
        stream = sample(pid, 3, hold_filtered=True)
        end(target)
        assert target.wait(10) == code
    (line,) = told(stream)
    assert line.endswith("it is paused all the same (--pause; --no-pause holds nobody)")


@needs_tracker
@pytest.mark.parametrize("together", [False, True], ids=["one after the other", "together"])
def test_a_child_that_is_born_with_a_filter(together):
    with sleeper("in a child") as (target, child):
        stream = sample(target.pid, 2.5, together=together)
        end(target)
        assert target.stdout is not None
        assert sorted(target.stdout.readline() for _ in range(2)) == ["whole\n", "whole\n"]
        assert target.wait(10) == 0
    assert {p.pid for p in stream.of(Process)} == {target.pid, child}
    assert {w.status for w in stream.of_pid(child)[1:]} == {"approximate"}
    assert "ok" in {w.status for w in stream.of_pid(target.pid)}
    assert not any(FILTERED in w.reason for w in stream.of_pid(target.pid))
    assert len(told(stream)) == 1


@needs_root
def test_a_filter_of_a_process_with_thousands_of_groups_is_found():
    """The kernel writes the groups before the mode of seccomp."""
    with sleeper("many groups") as (_, pid):
        assert SyscallFilters().judge(pid)


@needs_tracker
def test_strict_mode():
    with sleeper("strict") as (target, pid):
        wait_until(lambda: SyscallFilters().judge(pid))
        windows = sample(pid, 2).of_pid(pid)
        assert target.poll() is None
    assert windows
    assert all(FILTERED in w.reason for w in windows)


@needs_tracker
@pytest.mark.parametrize("held", [False, True], ids=["as usual", "with --pause"])
def test_the_command_line(held, tmp_path):
    with sleeper("harmless") as (target, pid):
        argv = ("record", pid, "-o", tmp_path / "s.memtui", "--duration", 2, *(["--pause"] if held else []))
        child = start(*argv)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        report = start("report", tmp_path / "s.memtui", "--json").communicate(timeout=60)[0]
        assert ("it is paused all the same" in report) == held
        assert ("so it is not paused" in report) != held
        assert target.poll() is None


@needs_tracker
def test_a_filter_that_was_installed_after_it_was_asked_for_is_found_before_the_pause(monkeypatch):
    """Also while the process was about to be held: the sleep that the pause would interrupt is left alone."""
    with sleeper("deadly") as (target, pid):
        judge, answers = SyscallFilters.judge, {"first": 0, "second": 0}

        def late(filters: SyscallFilters, of: int) -> bool:
            by = "first" if threading.current_thread() is threading.main_thread() else "second"
            answers[by] += 1
            return by == "second" and judge(filters, of)

        monkeypatch.setattr(SyscallFilters, "judge", late)
        with PageTableTracker() as tracker, closing(PageReader(tracker, pause=True)) as reader:
            subject = Subject(pid, None, read_stat(pid).start_ticks, ())
            assert reader.start(subject) == 0
            (outcome,) = reader.read([subject], want_resident=False)
            assert isinstance(outcome, Reading)
            assert (outcome.running, outcome.paused_ns) == (FILTERED, 0)
        assert answers["first"] >= 2
        assert answers["second"] == 2
        end(target)
        assert target.wait(10) == 0


@needs_root
def test_a_filter_is_found_in_any_thread():
    filters = SyscallFilters()
    with sleeper("in a thread") as (_, pid):
        assert filters.judge(pid)
        filters.forget(pid)
        assert filters.judge(pid)
    with sleeper("plain") as (_, pid):
        assert not filters.judge(pid)
        assert not filters.judge(pid)
    assert not filters.judge(pid), "it ended"
