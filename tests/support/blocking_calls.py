"""Makes one blocking system call, straight, and says what it returned: the name of an error or ``ok``.

Run as ``python -m tests.support.blocking_calls NAME`` (one of ``CALLS``). The C library is only used to pass the
numbers on: no wrapper that calls again after EINTR stands between.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Callable

SECONDS = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _pointer(data: bytes) -> ctypes.c_void_p:
    _kept.append(ctypes.create_string_buffer(data, max(len(data), 1)))
    return ctypes.cast(_kept[-1], ctypes.c_void_p)


_kept: list[object] = []
_TIME = struct.pack("qq", SECONDS, 0)
_SIGNALS = struct.pack("Q", 1 << 9)  # SIGUSR1


def _syscall(number: int, *words: object) -> str:
    plain = [ctypes.c_long(w) if isinstance(w, int) else w for w in words]
    return "ok" if _libc.syscall(ctypes.c_long(number), *plain) >= 0 else errno.errorcode[ctypes.get_errno()]


def _blocked() -> None:
    _libc.syscall(ctypes.c_long(14), ctypes.c_long(0), _pointer(_SIGNALS), None, ctypes.c_long(8))


def _epoll() -> int:
    return os.dup(_syscall_fd(291, 0))


def _syscall_fd(number: int, *words: int) -> int:
    return _libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, words))


def _epoll_wait() -> str:
    return _syscall(232, _epoll(), _pointer(bytes(12)), 1, SECONDS * 1000)


def _epoll_pwait() -> str:
    return _syscall(281, _epoll(), _pointer(bytes(12)), 1, SECONDS * 1000, None, 8)


def _poll() -> str:
    return _syscall(7, None, 0, SECONDS * 1000)


def _ppoll() -> str:
    return _syscall(271, None, 0, _pointer(_TIME), None, 8)


def _select() -> str:
    return _syscall(23, 0, None, None, None, _pointer(_TIME))


def _nanosleep() -> str:
    return _syscall(35, _pointer(_TIME), None)


def _clock_nanosleep() -> str:
    return _syscall(230, 1, 0, _pointer(_TIME), None)


def _futex() -> str:
    found = _syscall(202, _pointer(bytes(4)), 0, 0, _pointer(_TIME), None, 0)
    return "ok" if found == "ETIMEDOUT" else found


def _futex_absolute() -> str:
    import time

    end = struct.pack("qq", int(time.monotonic()) + 2, 0)
    found = _syscall(202, _pointer(bytes(4)), 9, 0, _pointer(end), None, 0xFFFFFFFF)
    return "ok" if found == "ETIMEDOUT" else found


def _semop() -> str:
    made = _syscall_fd(64, 0, 1, 0o600)
    try:
        found = _syscall(220, made, _pointer(struct.pack("Hhh", 0, -1, 0)), 1, _pointer(_TIME))
    finally:
        _syscall(66, made, 0, 0)
    return "ok" if found == "EAGAIN" else found


def _sigtimedwait() -> str:
    _blocked()
    found = _syscall(128, _pointer(_SIGNALS), None, _pointer(_TIME), 8)
    return "ok" if found == "EAGAIN" else found


def _io_getevents() -> str:
    context = ctypes.c_ulong(0)
    _syscall(206, 1, ctypes.byref(context))
    return _syscall(208, context, 1, 1, _pointer(bytes(32)), _pointer(_TIME))


def _read_pipe() -> str:
    return _after_a_while(lambda end: _syscall(0, end, _pointer(bytes(8)), 8), os.pipe())


def _read_eventfd() -> str:
    end = _syscall_fd(290, 0, 0)
    return _after_a_while(lambda end: _syscall(0, end, _pointer(bytes(8)), 8), (end, end))


def _recv() -> str:
    one, other = socket.socketpair()
    return _after_a_while(lambda end: _syscall(45, end, _pointer(bytes(8)), 8, 0, None, None), _fds(one, other))


def _recv_with_timeout() -> str:
    one, other = socket.socketpair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 5, 0))
    return _after_a_while(lambda end: _syscall(45, end, _pointer(bytes(8)), 8, 0, None, None), _fds(one, other))


def _wait4() -> str:
    child = os.fork()
    if child == 0:
        import time

        time.sleep(SECONDS)
        os._exit(0)
    return _syscall(61, child, None, 0, None)


def _fds(*sockets: socket.socket) -> tuple[int, ...]:
    _kept.extend(sockets)
    return tuple(s.fileno() for s in sockets)


def _after_a_while(call: Callable[[int], str], ends: tuple[int, ...]) -> str:
    """Call while another process writes into the other end after the time."""
    child = os.fork()
    if child == 0:
        import time

        time.sleep(SECONDS)
        os.write(ends[1], bytes(7) + b"\1")
        os._exit(0)
    try:
        return call(ends[0])
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


CALLS: dict[str, Callable[[], str]] = {
    "epoll_wait": _epoll_wait,
    "epoll_pwait": _epoll_pwait,
    "poll": _poll,
    "ppoll": _ppoll,
    "select": _select,
    "nanosleep": _nanosleep,
    "clock_nanosleep": _clock_nanosleep,
    "futex": _futex,
    "futex with an absolute time": _futex_absolute,
    "semtimedop": _semop,
    "sigtimedwait": _sigtimedwait,
    "io_getevents": _io_getevents,
    "read of a pipe": _read_pipe,
    "read of an eventfd": _read_eventfd,
    "recv": _recv,
    "recv with SO_RCVTIMEO": _recv_with_timeout,
    "wait4": _wait4,
}

if __name__ == "__main__":
    print("ready", flush=True)
    print(CALLS[sys.argv[1]](), flush=True)
