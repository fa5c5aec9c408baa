"""/proc/PID/stat: cheap enough to be read many times in every window, and without psutil."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_STAT_BYTES = 4096  # more than 52 numbers and a name can take
PF_KTHREAD = 0x00200000  # include/linux/sched.h
# Places in stat, counted from the state field.
_PPID, _SESSION, _TTY, _FLAGS, _MINFLT, _CMINFLT, _MAJFLT, _THREADS, _START = 1, 3, 4, 6, 7, 8, 9, 17, 19


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/PID/stat that memtui needs."""

    state: str
    parent_pid: int
    kernel_thread: bool
    minor_faults: int
    major_faults: int
    start_ticks: int
    session: int = 0  # pid of the session's leader
    terminal: int = 0  # device number of the controlling terminal
    reaped_minor_faults: int = 0  # of children that ended and were waited for
    threads: int = 1

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more. A process whose first thread ended goes on in the others."""
        return self.state == "X" or (self.state == "Z" and self.threads <= 1)


def read_stat(pid: int, proc: Path = PROC) -> Stat:
    """Raises ProcessLookupError when there is no such process."""
    try:
        # Read many times in every window: a Path and a text file would cost five times as much.
        fd = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, _STAT_BYTES).decode(errors="replace")
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(f"no process {pid}") from error
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return Stat(
        state=fields[0],
        parent_pid=int(fields[_PPID]),
        kernel_thread=bool(int(fields[_FLAGS]) & PF_KTHREAD),
        minor_faults=int(fields[_MINFLT]),
        major_faults=int(fields[_MAJFLT]),
        start_ticks=int(fields[_START]),
        session=int(fields[_SESSION]),
        terminal=int(fields[_TTY]),
        reaped_minor_faults=int(fields[_CMINFLT]),
        threads=int(fields[_THREADS]),
    )
