"""A watchdog timer of the kernel: it kills this process when it holds a target and shows no sign of life.

A process that is stopped (SIGSTOP) or frozen (a cgroup of version 2) cannot let anybody go, and a second process may be
frozen together with it. The kernel's timer is neither: it sends SIGKILL, which takes effect all the same, and when its
tracer dies a target goes on. Signs of life come from a thread that sleeps unless a hold is long: the kernel may take
long to clear the marks of very much memory, and nothing is to be killed for that.

The freezer of cgroup version 1 lets SIGKILL wait until it thaws, whoever sends it: there a target stays held.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FUSE_S = 0.3  # without a sign of life for so long, it is killed
# The same without a high priority (no root): on a busy machine such a process gets no CPU for a third of a second.
PATIENT_FUSE_S = 0.9
LONGEST_S = 10.0  # after so long in one hold there are no more signs
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
    """Of the holds of this process; not for use by two threads at once."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        """Make the timer and the thread of the signs of life. Raises OSError where the kernel has none for us."""
        comes_first = os.getpriority(os.PRIO_PROCESS, 0) < 0
        self._fuse, self._beat = _times(FUSE_S if comes_first else PATIENT_FUSE_S), _times(_BEAT_S, _BEAT_S)
        self._longest_ns = int(longest_s * 1e9)
        self._lock = threading.Lock()
        self._since_ns: int | None = None
        self._holds = 0  # that are within one another
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
        self._thread: threading.Thread | None = threading.Thread(target=self._live, name="memtui-alive", daemon=True)
        self._thread.start()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch from before the first thread is stopped until after the last is let go; may be nested."""
        self._holds += 1
        try:
            if self._holds == 1:
                with self._lock:
                    self._since_ns = time.monotonic_ns()
                    self._set(self._fuse)
                _libc.timerfd_settime(self._beats, 0, ctypes.byref(self._beat), None)
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                with self._lock:
                    self._since_ns = None
                    self._set(_OFF)
                _libc.timerfd_settime(self._beats, 0, ctypes.byref(_OFF), None)

    def _set(self, times: _Times) -> None:
        _libc.timer_settime(self._timer, 0, ctypes.byref(times), None)

    def _live(self) -> None:
        while True:
            os.read(self._beats, 8)
            with self._lock:
                if self._thread is None:
                    return
                if self._since_ns is not None and time.monotonic_ns() - self._since_ns < self._longest_ns:
                    self._set(self._fuse)

    def close(self) -> None:
        """Take the timer away and end the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            _libc.timerfd_settime(self._beats, 0, ctypes.byref(_times(1e-9)), None)
            thread.join()
            os.close(self._beats)
            _libc.timer_delete(self._timer)


def _check(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
