"""Stops every thread of one process with ptrace and releases it. All calls of a ``Seizure`` come from one thread.

PTRACE_SEIZE can block without limit, on a lock that the target holds while it executes a program from a slow disk. So
all threads are seized first, which stops none, and then interrupted, which never blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memtui.core.procfs import has_ended, state_of

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL, _WNOTHREAD = 0x40000000, 0x20000000
_GROUP_STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_POLL_S = 30e-6
EXEC = "the process is starting another program (exec)"
BUSY = "this machine was too busy to stop it in time"
ENDING = "an earlier pause of it was given up, and has not ended yet"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class PauseError(Exception):
    """The target runs, unpaused; the text says why.

    Attributes:
        paused_ns: how long its first thread had stood still when everything was released.
    """

    paused_ns = 0


class NotPaused(PauseError):
    """The process did not stop in time. The next attempt may succeed."""


class PauseRefused(PauseError):
    """This process may not trace the target; trying again will not help."""


@dataclass(slots=True)
class Pause:
    """One pause.

    Attributes:
        start_ns: when the first thread was interrupted (CLOCK_MONOTONIC).
        stopped_ns: when all threads had stopped.
        paused_ns: from ``start_ns`` until the last thread was released; None during the pause.
        threads: how many threads were paused.
        stopped: someone else had stopped the target (SIGSTOP, ^Z); it stays stopped.
    """

    start_ns: int
    stopped_ns: int
    paused_ns: int | None = None
    threads: int = 0
    stopped: bool = False


class Seizure:
    """One process that the calling thread traces.

    Attributes:
        start_ns: when the first thread was interrupted; None before.
    """

    def __init__(
        self, pid: int, pidfd: int | None, deadline_s: float, check: Callable[[int], None] = lambda _pid: None
    ) -> None:
        """Start without a thread.

        Args:
            pid: of the process.
            pidfd: identifies the process, should its pid come to belong to another one.
            deadline_s: of ``stop``.
            check: is called with the pid directly before the first thread is interrupted; none is if it raises.
        """
        self.pid, self._check = pid, check
        self.start_ns: int | None = None
        self._pidfd, self._deadline_ns = pidfd, time.monotonic_ns() + int(deadline_s * 1e9)
        self._seized: list[int] = []
        self._stopped: dict[int, int] = {}  # by thread: the signal to deliver when it is released
        self._was_stopped = False

    def stop(self) -> Pause:
        """Stop every thread before the deadline, or none. After an error the calling thread has to end.

        Raises:
            NotPaused, PauseRefused: the target runs.
            ProcessLookupError: the process ended.
        """
        seen: set[int] = set()
        try:
            # A running thread may start others, so list them again until all that exist are stopped.
            while new := self._seize_new(seen):
                if self.start_ns is None:
                    self._check_identity()
                    self._check(self.pid)
                    self.start_ns = time.monotonic_ns()
                for tid in new:
                    _ptrace(_INTERRUPT, tid)
                self._await(new)
            if running := [tid for tid in seen if tid not in self._stopped and not has_ended(tid)]:
                # After an exec by another thread, that thread takes the pid of the first one.
                raise NotPaused(EXEC if self.pid in running else _why_running(running))
            if not self._stopped:
                raise ProcessLookupError(f"process {self.pid} ended")
        except BaseException:
            self.release()
            raise
        assert self.start_ns is not None
        return Pause(self.start_ns, time.monotonic_ns(), threads=len(self._stopped), stopped=self._was_stopped)

    def release(self) -> bool:
        """Release every thread; False when one was killed, and so stays traced until the calling thread ends.

        The kernel notifies the parent of a child that was killed while it was traced only when the tracer has reaped
        the child, or has ended.
        """
        clean = True
        while self._stopped:
            tid, number = self._stopped.popitem()
            clean = not _ptrace(_DETACH, tid, number) and clean
        return clean

    def reap(self) -> None:
        """Reap threads that ended, from another thread than the one that is blocked in ``stop``.

        A thread that executes a program waits until the others have ended, and they stay zombies until their tracer
        reaps them; the tracer waits for a lock that the executing thread holds. Both would wait for ever.
        """
        for tid in tuple(self._seized):
            if tid != self.pid:
                with contextlib.suppress(OSError):
                    os.waitid(os.P_PID, tid, os.WEXITED | os.WNOHANG | _WALL)

    def _seize_new(self, seen: set[int]) -> list[int]:
        seized: list[int] = []
        while new := [tid for tid in _threads(self.pid) if tid not in seen]:
            if time.monotonic_ns() > self._deadline_ns:
                raise NotPaused("it starts threads faster than they can be stopped" if seen else BUSY)
            seen.update(new)
            for tid in new:
                if _seize(tid):
                    seized.append(tid)
                    self._seized.append(tid)
        if seized and set(seized).difference(_threads(self.pid)):
            raise NotPaused(EXEC)  # or the tid of a thread that ended belongs to another process by now
        return seized

    def _check_identity(self) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(PermissionError):
                signal.pidfd_send_signal(self._pidfd, 0)

    def _await(self, waiting: list[int]) -> None:
        while waiting := [tid for tid in waiting if not self._has_stopped(tid)]:
            if time.monotonic_ns() > self._deadline_ns:
                # The kernel reports no event of a first thread that ended before the others.
                waiting = [tid for tid in waiting if not has_ended(tid)]
                if waiting:
                    raise NotPaused(_why_running(waiting))
                return
            time.sleep(_POLL_S)

    def _has_stopped(self, tid: int) -> bool:
        """Whether the thread is stopped, or has ended, so that there is nothing to wait for."""
        try:
            if tid == self.pid:
                # The exit status of the process belongs to its parent, which may be this process: WNOWAIT leaves it.
                flags = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL | _WNOTHREAD
                info = os.waitid(os.P_PID, tid, flags)
                if info is None:
                    return False
                if info.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                    raise ProcessLookupError(f"process {tid} ended")
            done, status = os.waitpid(tid, _WALL | _WNOTHREAD | os.WNOHANG)
        except ChildProcessError:
            return True
        if not done:
            return False
        if os.WIFSTOPPED(status):
            # An event is the requested stop, or a group stop of the process; otherwise the thread stopped for a signal,
            # which is delivered when the thread is released.
            is_event, number = bool(status >> 16), os.WSTOPSIG(status)
            self._stopped[tid] = 0 if is_event else number
            self._was_stopped = self._was_stopped or (is_event and number in _GROUP_STOPS)
        return True


def _ptrace(request: int, tid: int, data: int = 0) -> int:
    """Return 0, or the error number."""
    return 0 if _libc.ptrace(request, tid, None, data) >= 0 else ctypes.get_errno()


def _threads(pid: int) -> list[int]:
    try:
        # In a pause: a Path for each thread takes twice as long.
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except FileNotFoundError:
        raise ProcessLookupError(f"process {pid} ended") from None


def _seize(tid: int) -> bool:
    """Become the tracer of a thread, which keeps running; False when it has ended. Raises PauseRefused."""
    error = _ptrace(_SEIZE, tid)
    if error == errno.ESRCH or (error == errno.EPERM and has_ended(tid)):
        return False
    if error:
        tracer = _tracer(tid)
        if tracer == os.getpid():
            raise NotPaused(ENDING)
        raise PauseRefused(_why_refused(tracer, error))
    return True


def refusal(pid: int) -> PauseRefused | None:
    """Return why a process cannot be paused where another process traces it; None where none does."""
    tracer = _tracer(pid)
    return PauseRefused(_why_refused(tracer, 0)) if tracer not in (0, os.getpid()) else None


def _tracer(tid: int) -> int:
    """Return the pid of the process that traces a thread; 0 when there is none."""
    tracing = _status(tid).get("TracerPid", 0)  # the id of a thread
    return _status(tracing).get("Tgid", tracing) if tracing else 0


def _status(tid: int) -> dict[str, int]:
    fields = {}
    try:
        # The name may be any bytes.
        for line in Path(f"/proc/{tid}/status").read_text(errors="replace").split("\n"):
            name, _, value = line.partition(":\t")
            if name in ("TracerPid", "Tgid"):
                fields[name] = int(value)
    except OSError:
        pass
    return fields


def _why_running(waiting: list[int]) -> str:
    states = "".join(sorted({state_of(tid) for tid in waiting}))
    if any(_is_frozen(tid) for tid in waiting):
        return f"{len(waiting)} of its threads are frozen (cgroup) and cannot stop until they are thawed"
    if "D" in states:
        return f"{len(waiting)} of its threads wait inside the kernel (vfork, or disk and network) and cannot stop"
    if states == "t":  # of this pause, a moment after its deadline
        return f"{len(waiting)} of its threads stopped too late: this machine is busy"
    return f"{len(waiting)} of its threads did not stop in time (state {states or 'unknown'})"


def _is_frozen(tid: int) -> bool:
    """Whether a thread is in the freezer of cgroup version 1. The freezer of version 2 lets a thread stop."""
    try:
        return Path(f"/proc/{tid}/wchan").read_text() == "__refrigerator"
    except OSError:
        return False


def _why_refused(tracer: int, error: int) -> str:
    if tracer:
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
