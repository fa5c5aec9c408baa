"""Makes calls of this process fail, where the library of ``faults.c`` was loaded before the C library."""

from __future__ import annotations

import ctypes
from pathlib import Path

KINDS = ("read", "write", "sync", "size", "memory", "open", "unlink", "map")
SQLITE = "libsqlite3.so"
EVERYTHING = ""


def begin(kind: str | None, number: int = 0, *, for_ever: bool = False, half: bool = False, code: str = SQLITE) -> None:
    """From now on let one kind of call that ``code`` makes fail at its ``number``th time; without a kind, only count.

    Args:
        kind: of ``KINDS``.
        number: from 1.
        for_ever: every later call fails, too.
        half: of a write, half is done.
        code: the library whose calls are meant, or ``EVERYTHING``.
    """
    first, last = map(ctypes.c_void_p, _range(code))
    number_of_kind = KINDS.index(kind) if kind else -1
    ctypes.CDLL(None).faults_begin(number_of_kind, ctypes.c_long(number), int(for_ever), int(half), first, last)


def end() -> dict[str, int]:
    """End it, and return how many calls of each kind were made."""
    faults_end = ctypes.CDLL(None).faults_end
    faults_end.restype = ctypes.c_long
    return {kind: faults_end(number) for number, kind in enumerate(KINDS)}


def _range(code: str) -> tuple[int, int]:
    """Return where a library lies in this process."""
    if code == EVERYTHING:
        return 0, (1 << 64) - 1
    lines = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if code in line]
    return int(lines[0].split("-")[0], 16), int(lines[-1].split("-")[1], 16)
