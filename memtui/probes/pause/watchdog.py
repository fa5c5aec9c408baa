"""A kernel timer as a watchdog: it kills this process when the process has paused a target and hangs.

A process that is stopped (SIGSTOP) or frozen (a cgroup of version 2) cannot release its targets, and a second process
may be frozen together with it. A timer of the kernel cannot be stopped or frozen: it sends SIGKILL, which takes effect
all the same, and a target runs again when its tracer dies. A thread resets the timer during long pauses only: clearing
the accessed bits of very much memory may take long, and is no reason to kill this process.

The freezer of cgroup version 1 delays SIGKILL until it thaws, whoever sends the signal: there a target stays paused.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FUSE_S = 0.3  # this process is killed when the timer was not reset for this long
# A process may get no CPU for a third of a second, and its recording would end with it: where more threads want to run
# than there are CPUs, in a long pause and for some time after it (a virtual machine does not see what its host takes),
# and where it has no high priority (no root).
PATIENT_FUSE_S, PATIENT_S = 0.9, 60.0
LONGEST_S = 10.0  # after this long in one pause the timer is not reset any more
_BEAT_S = 0.1
_SIGEV_SIGNAL = 0
_TFD_CLOEXEC = os.O_CLOEXEC


class _Event(ctypes.Structure):
    """struct sigevent."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class _Times(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


def _times(value_s: float, interval_s: float = 0.0) -> _Times:
    return _Times(*divmod(round(interval_s * 1e9), 10**9), *divmod(round(value_s * 1e9), 10**9))


_libc = ctypes.CDLL(None, use_errno=True)
_OFF = _times(0)


class Watchdog:
    """Watches the pauses that this process makes; not for use by two threads at once."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        """Create the timer and the thread that resets it. Raises OSError where the kernel refuses a timer."""
        self._comes_first = os.getpriority(os.PRIO_PROCESS, 0) < 0
        self._short, self._patient, self._beat = _times(FUSE_S), _times(PATIENT_FUSE_S), _times(_BEAT_S, _BEAT_S)
        self._longest_ns, self._patient_until_ns, self._cpus = int(longest_s * 1e9), 0, os.cpu_count() or 1
        self._lock = threading.Lock()
        self._since_ns: int | None = None
        self._holds = 0  # depth of nested ``watching``
        self._timer = ctypes.c_void_p()
        event = _Event(signo=signal.SIGKILL, notify=_SIGEV_SIGNAL)
        try:
            _check(_libc.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)))
        except AttributeError:
            raise OSError("this C library keeps timers elsewhere") from None  # glibc before 2.34
        try:
            self._beats = _check(_libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_CLOEXEC))
        except OSError:
            _libc.timer_delete(self._timer)
            raise
        self._loadavg: int | None = None
        with suppress(OSError):
            self._loadavg = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        self._thread: threading.Thread | None = threading.Thread(target=self._live, name="memtui-alive", daemon=True)
        self._thread.start()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch from before the first thread is stopped until after the last one is released; may be nested."""
        self._holds += 1
        try:
            if self._holds == 1:
                with self._lock:
                    self._since_ns = time.monotonic_ns()
                    self._set(self._patient if self._may_starve(self._since_ns) else self._short)
                _libc.timerfd_settime(self._beats, 0, ctypes.byref(self._beat), None)
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                with self._lock:
                    self._set(_OFF)
                    ended_ns = time.monotonic_ns()
                    if self._since_ns is not None and ended_ns - self._since_ns >= _BEAT_S * 1e9:
                        self._patient_until_ns = ended_ns + int(PATIENT_S * 1e9)
                    self._since_ns = None
                _libc.timerfd_settime(self._beats, 0, ctypes.byref(_OFF), None)

    def _may_starve(self, now_ns: int) -> bool:
        if not self._comes_first or now_ns < self._patient_until_ns or self._loadavg is None:
            return True
        try:
            others = int(os.pread(self._loadavg, 128, 0).split()[3].split(b"/")[0]) - 1  # without this thread
        except (OSError, ValueError, IndexError):
            return True
        return others > self._cpus

    def _set(self, times: _Times) -> None:
        _libc.timer_settime(self._timer, 0, ctypes.byref(times), None)

    def _live(self) -> None:
        while True:
            os.read(self._beats, 8)
            with self._lock:
                if self._thread is None:
                    return
                if self._since_ns is not None and time.monotonic_ns() - self._since_ns < self._longest_ns:
                    self._set(self._patient)

    def close(self) -> None:
        """Delete the timer and end the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            _libc.timerfd_settime(self._beats, 0, ctypes.byref(_times(1e-9)), None)
            thread.join()
            os.close(self._beats)
            if self._loadavg is not None:
                os.close(self._loadavg)
            _libc.timer_delete(self._timer)


def _check(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
