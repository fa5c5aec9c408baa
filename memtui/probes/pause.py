"""Holds a process still for a moment, in a way that neither its shell nor its death-bed notices.

Every thread is seized and interrupted with ptrace and let go again. Unlike SIGSTOP, the parent hears nothing (a shell
with job control would report a stopped job and take the terminal), and when this program dies at any moment, the
kernel lets the target go.

The kernel binds tracing to the *thread* that seized, not to its process. So a thread of its own does it, and that is
the way out when a target does not stop in time: threads that stand still are let go at once, and the tracing thread
ends, whereupon the kernel releases the rest, even threads that never stopped (a parent inside ``vfork`` does not stop
until its child executes something; seen on Linux 6.18 and tested).
"""

from __future__ import annotations

import ctypes
import errno
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL, _WNOTHREAD = 0x40000000, 0x20000000
_PR_SET_TIMERSLACK = 29
_GROUP_STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_POLL_S = 30e-6
DEADLINE_S = 0.1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long

_T = TypeVar("_T")


class PauseError(Exception):
    """The target runs on, unpaused; the text says why."""


class NotPaused(PauseError):
    """It did not stop in time. The next try may succeed."""


class PauseRefused(PauseError):
    """This process may not trace it; trying again will not help."""


@dataclass(slots=True)
class Pause:
    """One pause.

    Attributes:
        start_ns: when the first thread was interrupted (CLOCK_MONOTONIC).
        paused_ns: from then until the last thread was let go; None while the pause lasts.
        threads: how many threads were held.
        stopped: the target had been stopped by someone else (SIGSTOP, ^Z), and stays so.
    """

    start_ns: int
    paused_ns: int | None = None
    threads: int = 0
    stopped: bool = False


class PauseThread:
    """A thread that does what it is given, one call after the other."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], object], queue.SimpleQueue] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="memtui-pause", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        # Sleeps of some microseconds are asked for here; by default the kernel adds 50 to each.
        _libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1000), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
        while call := self._calls.get():
            function, answer = call
            try:
                answer.put((function(), None))
            except BaseException as error:
                answer.put((None, error))
            del call, function, answer

    def run(self, function: Callable[[], _T], timeout_s: float | None = None) -> _T:
        """What the function returns or raises. Raises ``queue.Empty`` when it takes longer; it is not interrupted."""
        answer: queue.SimpleQueue = queue.SimpleQueue()
        self._calls.put((function, answer))
        result, error = answer.get(timeout=timeout_s)
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        """End after the call in progress; the kernel then releases every thread that is still seized."""
        self._calls.put(None)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)


class Pauser:
    """Pauses processes, one at a time."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        """Give up a pause when not every thread stands still this long after the first was interrupted."""
        self._deadline_s = deadline_s
        self._thread: PauseThread | None = None
        self._held: dict[int, int] = {}

    @contextmanager
    def paused(self, pid: int) -> Iterator[Pause]:
        """Hold the process still over the block.

        Raises:
            NotPaused: it did not stop in time; the block is not entered and the target runs.
            PauseRefused: it may not be traced; the target runs.
            ProcessLookupError: it ended.
        """
        thread = self._thread = self._thread or PauseThread()
        held: dict[int, int] = {}
        try:
            pause = thread.run(lambda: _seize(pid, held, self._deadline_s), self._deadline_s + 1.0)
        except BaseException as error:
            # Whatever happened, also a ^C in this thread: the target must not stay held.
            self._drop(thread)
            if isinstance(error, queue.Empty):
                raise NotPaused("the process is starting another program (exec)") from None
            raise
        try:
            yield pause
        finally:
            try:
                thread.run(lambda: _release(held))
            except BaseException:
                self._drop(thread)
                raise
            finally:
                pause.paused_ns = time.monotonic_ns() - pause.start_ns

    def _drop(self, thread: PauseThread) -> None:
        self._thread = None
        thread.end()
        thread.join(self._deadline_s)

    def close(self) -> None:
        if self._thread:
            self._drop(self._thread)

    def __enter__(self) -> Pauser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ptrace(request: int, tid: int, data: int = 0) -> int:
    """0, or the error number."""
    return 0 if _libc.ptrace(request, tid, None, data) >= 0 else ctypes.get_errno()


def _seize(pid: int, held: dict[int, int], deadline_s: float) -> Pause:
    """Stop every thread. ``held`` gets, for each, the signal that is to be delivered when it is let go."""
    pause = Pause(time.monotonic_ns())
    deadline_ns = pause.start_ns + int(deadline_s * 1e9)
    known: set[int] = set()
    try:
        # A thread that runs may start others, so look again until all that exist stand still.
        while new := [tid for tid in _threads(pid) if tid not in known]:
            known.update(new)
            waiting = [tid for tid in new if _interrupt(tid)]
            while waiting := [tid for tid in waiting if not _has_stopped(tid, tid == pid, held, pause)]:
                if time.monotonic_ns() > deadline_ns:
                    raise NotPaused(_why_running(pid, waiting))
                time.sleep(_POLL_S)
        if not held:
            raise ProcessLookupError(f"process {pid} ended")
    except BaseException:
        _release(held)
        raise
    pause.threads = len(held)
    return pause


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError:
        raise ProcessLookupError(f"process {pid} ended") from None


def _interrupt(tid: int) -> bool:
    """Ask a thread to stop; False when it ended. Raises PauseRefused."""
    error = _ptrace(_SEIZE, tid)
    if error == errno.ESRCH or (error == errno.EPERM and _state(tid) in ("", "Z", "X")):
        return False
    if error:
        raise PauseRefused(_why_refused(tid, error))
    _ptrace(_INTERRUPT, tid)
    return True


def _has_stopped(tid: int, is_leader: bool, held: dict[int, int], pause: Pause) -> bool:
    """Whether there is nothing more to wait for: the thread stands still, or it ended."""
    try:
        if is_leader:
            # The exit status of the process belongs to its parent, which may be this process: look, do not take.
            flags = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL | _WNOTHREAD
            found = os.waitid(os.P_PID, tid, flags)
            if found is None:
                return False
            if found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                raise ProcessLookupError(f"process {tid} ended")
        done, status = os.waitpid(tid, _WALL | _WNOTHREAD | os.WNOHANG)
    except ChildProcessError:
        return True
    if not done:
        return False
    if os.WIFSTOPPED(status):
        # An event is the stop that was asked for, or a stop of the whole process; otherwise a signal is on its way
        # to the thread and has to go on when the thread is let go.
        is_event, number = bool(status >> 16), os.WSTOPSIG(status)
        held[tid] = 0 if is_event else number
        pause.stopped = pause.stopped or (is_event and number in _GROUP_STOPS)
    return True


def _release(held: dict[int, int]) -> None:
    """Let every thread go on. One that was killed meanwhile needs nothing."""
    while held:
        tid, number = held.popitem()
        _ptrace(_DETACH, tid, number)


def _state(tid: int) -> str:
    """One letter, as in ``ps``; empty when the thread is gone."""
    try:
        return Path(f"/proc/{tid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def _why_running(pid: int, waiting: list[int]) -> str:
    states = "".join(sorted({_state(tid) for tid in waiting}))
    if "D" in states:
        return f"{len(waiting)} of its threads wait inside the kernel (vfork, or disk and network) and cannot stop"
    return f"{len(waiting)} of its threads did not stop in time (state {states or 'unknown'})"


def _why_refused(tid: int, error: int) -> str:
    try:
        fields = dict(line.split(":\t", 1) for line in Path(f"/proc/{tid}/status").read_text().splitlines())
    except (OSError, ValueError):
        fields = {}
    tracer = fields.get("TracerPid", "0").strip()
    if tracer != "0":
        return f"process {tracer} traces it already (a debugger, strace or another memtui)"
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        scope = "0"
    if scope == "3":
        return "the kernel forbids tracing until the next boot (kernel.yama.ptrace_scope is 3)"
    if os.geteuid() != 0:
        return "tracing it needs root; run with sudo"
    return f"the kernel refused to trace it: {os.strerror(error)}"
