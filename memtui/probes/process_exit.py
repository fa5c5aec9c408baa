"""How a process ended, as far as the kernel reports it to processes other than its parent."""

from __future__ import annotations

import fcntl
import select
import signal
import struct
import time

from memtui.core.procfs import PROC, is_exiting

EXIT_S = 10.0  # an exit gives memory back before there is a status: seconds for many GiB on a busy machine
PATIENCE_S = 0.2  # from its end until its parent reaped it, or the kernel shows it as ended
_TRIES = 5
# struct pidfd_info of include/uapi/linux/pidfd.h (Linux 6.13; PIDFD_INFO_EXIT since 6.15)
_INFO = struct.Struct("=QQIII8Ii")
_INFO_EXIT = 1 << 3
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11  # _IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info)
_EXIT_CODE = 49  # place in stat, counted from the state field


def how_it_ended(pid: int, pidfd: int) -> str:
    """Return how a process ended: "exited", "exited with code 3", "killed by SIGKILL"; empty where it is not known.

    A parent that waits reaps the status at once; afterwards the kernel still reports it from Linux 6.15 on. ``pidfd``:
    opened while the process ran. What is still exiting is waited for.
    """
    if is_exiting(pid):
        exited = select.poll()
        exited.register(pidfd, select.POLLIN)
        exited.poll(EXIT_S * 1000)
    for tried in range(_TRIES):
        status = _status_from_pidfd(pidfd)
        if status is None:
            status = _status_from_stat(pid)
        if status is not None:
            return describe_status(status)
        if tried < _TRIES - 1:
            time.sleep(PATIENCE_S / _TRIES)
    return ""


def describe_status(status: int) -> str:
    """Return a text for a wait status."""
    number = status & 0x7F
    if not number:
        code = status >> 8 & 0xFF
        return f"exited with code {code}" if code else "exited"
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"  # of real time


def _status_from_pidfd(pidfd: int) -> int | None:
    """Return the wait status of a process that was reaped."""
    info = bytearray(_INFO.size)
    struct.pack_into("=Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None  # an older kernel, or it was not reaped yet
    fields = _INFO.unpack(info)
    return int(fields[-1]) if fields[0] & _INFO_EXIT else None


def _status_from_stat(pid: int) -> int | None:
    """Return the wait status of a process that was not reaped yet."""
    folder = PROC / str(pid)
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        status = int(fields[_EXIT_CODE])
        if fields[0] != b"Z":
            return None
        if not status:
            # A reader without the right to see the status reads 0. ``io`` needs the same right.
            with (folder / "io").open("rb") as file:
                file.read(1)
        return status
    except (OSError, IndexError, ValueError):
        return None
