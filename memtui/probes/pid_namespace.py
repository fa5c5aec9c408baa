"""Whether this process sees the PIDs of the whole machine."""

from __future__ import annotations

import os

_INITIAL = 4026531836  # PROC_PID_INIT_INO (include/linux/proc_ns.h), the same on every kernel


def is_initial() -> bool:
    """Whether this is the machine's own PID namespace and no container's; True where the kernel does not tell."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL
    except OSError:
        return True
