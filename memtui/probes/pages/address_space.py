"""Which address space a process has: another one after every exec."""

from __future__ import annotations

from pathlib import Path

# Where identity changes with every exec, even where the kernel does not randomise: fields of /proc/PID/stat counted
# from the state (proc_pid_stat(5)): startcode, endcode, startstack, arg_start, env_start.
_PLACES = (23, 24, 25, 45, 47)


def identity(pid: int) -> tuple[bytes, ...]:
    """Where the program, its stack and its arguments lie. Raises ProcessLookupError."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"process {pid} ended") from None
    return tuple(fields[place] for place in _PLACES)
