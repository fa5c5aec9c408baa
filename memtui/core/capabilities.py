"""Gives up Linux capabilities, and the right to gain new ones, by raw system calls.

Imports nothing of memtui, so that sampler and recorder can both use it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path

# Numbers of include/uapi/linux/capability.h. docs/reference/security.md says what each is for.
NUMBERS = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_SETPCAP": 8,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
# Every sampler needs these: to pause a process and to read another user's; to write to its clear_refs; for a high
# priority, and to flush by process_madvise.
_ALWAYS = ("CAP_SYS_PTRACE", "CAP_DAC_OVERRIDE", "CAP_SYS_NICE")
_OF_TRACKER = {
    "pagetable": ("CAP_BPF", "CAP_PERFMON"),  # load a program that reads kernel memory, also when new processes come
    "idle": ("CAP_SYS_ADMIN",),  # page frame numbers in /proc/PID/pagemap
}
_LAST = 63  # the kernel's masks have 64 bits; those it does not know are refused and need no dropping

_PR_SET_DUMPABLE, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 4, 23, 24
_PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 39, 47, 4
_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def sampler_needs(tracker: str = "") -> tuple[str, ...]:
    """Return the capabilities that the sampler needs with this tracker.

    Without a tracker: those for choosing one, and for dropping the rest afterwards.
    """
    if tracker:
        return _ALWAYS + _OF_TRACKER.get(tracker, ())
    return _ALWAYS + tuple(name for group in _OF_TRACKER.values() for name in group) + ("CAP_SETPCAP",)


def effective() -> int:
    """Return the capabilities this process can use, as a mask."""
    return _status("CapEff")


def names(mask: int) -> tuple[str, ...]:
    """Return the names of the capabilities in a mask; the number of one that memtui never needs."""
    name_of = {number: name for name, number in NUMBERS.items()}
    return tuple(name_of.get(n, str(n)) for n in range(_LAST + 1) if mask >> n & 1)


def keep(wanted: Iterable[str]) -> None:
    """Give up every capability but these, for good.

    They cannot come back, not even by executing a program, because they also leave the bounding set. A wanted one that
    this process does not have is not an error. Raises OSError when more are left than were wanted.
    """
    mask = sum(1 << NUMBERS[name] for name in wanted) & _status("CapPrm")
    if _status("CapPrm") >> NUMBERS["CAP_SETPCAP"] & 1:
        for number in range(_LAST + 1):
            if not mask >> number & 1 and _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) == 1:
                _prctl(_PR_CAPBSET_DROP, number)
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    # struct __user_cap_data_struct, twice: effective, permitted, inheritable.
    data = struct.pack("<6I", low, low, 0, high, high, 0)
    if _libc.capset(struct.pack("<Ii", _VERSION_3, 0), data) < 0:
        _fail("capset")
    forbid_new_privileges()
    for task in Path("/proc/self/task").iterdir():  # only a thread itself can drop its capabilities
        if left := (_status("CapPrm", task) | _status("CapEff", task) | _status("CapInh", task)) & ~mask:
            raise PermissionError(errno.EPERM, f"a thread could not give up the capabilities {', '.join(names(left))}")


def forbid_new_privileges() -> None:
    """Keep every program that is executed from now on from gaining by set-user-ID bits or file capabilities."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if _libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        raise PermissionError(errno.EPERM, "no_new_privs was not kept")


def forbid_tracing() -> None:
    """Forbid other processes of the same user to trace this one or read its memory, until it executes a program."""
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(argument), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) < 0:
        _fail(f"prctl {option}")


def _fail(what: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, f"{what}: {os.strerror(code)}")


def _status(field: str, task: Path = Path("/proc/thread-self")) -> int:
    for line in (task / "status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1], 16)
    return 0
