"""Facts about processes from /proc: state, parent, start time, children, command line, ranks, PID namespace.

``read_stat`` is cheap enough to be called many times in every window. psutil is imported only where it is needed.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path

from memtui.core.options import COMMAND_CHARACTERS

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")  # of start times
# As torchrun, Open MPI and other launchers with PMI set them.
_RANKS = {
    "RANK": (b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"),
    "LOCAL_RANK": (b"LOCAL_RANK", b"OMPI_COMM_WORLD_LOCAL_RANK", b"MPI_LOCALRANKID"),
}
_NUMBER = re.compile(rb"\d{1,6}")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATUS_BYTES = 16384  # at once
_STAT_BYTES = 4096  # more than 52 numbers and a name can take
PF_EXITING, PF_KTHREAD = 0x00000004, 0x00200000  # include/linux/sched.h
# Places in stat, counted from the state field.
_PPID, _SESSION, _TTY, _FLAGS, _MINFLT, _CMINFLT, _MAJFLT, _THREADS, _START = 1, 3, 4, 6, 7, 8, 9, 17, 19
_INITIAL = 4026531836  # PROC_PID_INIT_INO (include/linux/proc_ns.h), the same on every kernel


def state_of(tid: int) -> str:
    """Return the state of a thread, or of a process's first one: a letter, as in ``ps``; empty when it is gone."""
    try:
        return Path(f"/proc/{tid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def rss_bytes_of(folder: Path) -> int:
    """Return the resident bytes of the process of a folder of ``/proc``. Raises OSError, ValueError and IndexError."""
    return parse_rss((folder / "statm").read_bytes())


def parse_rss(statm: bytes) -> int:
    """Return the resident bytes of a /proc/PID/statm. Raises ValueError and IndexError."""
    return int(statm.split()[1]) * _PAGE_BYTES


def swap_bytes_of(folder: Path) -> int:
    """Return the bytes that are swapped out of the process of a folder of ``/proc``, without shared memory.

    Raises OSError, and IndexError where its ``status`` has no line ``VmSwap`` (a kernel without swap).
    """
    return int(read_status_file(f"{folder}/status").partition(b"VmSwap:")[2].split(maxsplit=1)[0]) << 10


def has_ended(tid: int) -> bool:
    """Whether a thread has ended, reaped or not."""
    return state_of(tid) in ("", "Z", "X")


def is_exiting(tid: int, proc: Path = PROC) -> bool:
    """Whether a thread has ended, or is about to end: it releases its memory before its state shows that."""
    try:
        fields = (proc / str(tid) / "stat").read_bytes().rpartition(b")")[2].split()
        return fields[0] in (b"Z", b"X") or bool(int(fields[_FLAGS]) & PF_EXITING)
    except (OSError, IndexError):
        return True


def threads_run_on(pid: int, proc: Path = PROC) -> bool:
    """Whether a thread of a process goes on: it has not ended, is not about to, and no SIGKILL waits for it.

    A process that exits, or is killed, leaves a SIGKILL to each of its other threads. Until they have had a CPU, it
    looks like one whose first thread called ``pthread_exit``.
    """
    try:
        tids = [int(task.name) for task in (proc / str(pid) / "task").iterdir()]
    except OSError:
        return False
    return any(not (is_exiting(tid, proc) or _is_killed(tid, proc)) for tid in tids)


def _is_killed(tid: int, proc: Path) -> bool:
    try:
        status = (proc / str(tid) / "status").read_bytes()
        pending = int(status.partition(b"SigPnd:")[2].split(maxsplit=1)[0], 16)
    except (OSError, IndexError, ValueError):
        return not (proc / str(tid)).exists()
    return bool(pending >> signal.SIGKILL - 1 & 1)


def children_of(pid: int, proc: Path = PROC) -> list[int]:
    """Return the direct children. The kernel lists them per thread, so other processes of the machine cost nothing.

    On kernels without CONFIG_PROC_CHILDREN this uses psutil, which reads every process.
    """
    pids: list[int] = []
    try:
        for task in (proc / str(pid) / "task").iterdir():
            try:
                pids += map(int, (task / "children").read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                if task.exists():
                    return _children_by_psutil(pid)
    except (FileNotFoundError, ProcessLookupError):
        return []
    return pids


def _children_by_psutil(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.NoSuchProcess:
        return []


def process_inodes(proc: Path = PROC) -> dict[int, int]:
    """Return the inode of the folder of each process: another one means that another process has the pid now.

    Raises OSError.
    """
    with os.scandir(proc) as entries:
        return {int(entry.name): entry.inode() for entry in entries if entry.name.isdecimal()}


def command_of(pid: int) -> str:
    """Return the command line, quoted as for a shell, or the name in brackets where there is no command line.

    Raises ProcessLookupError.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        # A command line may be megabytes, and a target may start thousands of them.
        argv = process.cmdline()
        return shlex.join(argv)[:COMMAND_CHARACTERS] if any(argv) else f"[{process.name()}]"
    except psutil.ZombieProcess:
        return f"[pid {pid}]"  # its first thread has ended
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(f"no process {pid}") from error
    except psutil.AccessDenied:
        return f"[pid {pid}]"


def ranks_of(pid: int, proc: Path = PROC) -> dict[str, int]:
    """Return RANK and LOCAL_RANK from the environment with which a program was started.

    Nothing else of the environment is returned, and only numbers are. Empty where there are none, or where the
    environment may not be read.
    """
    try:
        variables = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    values = {
        name: value
        for name, _, value in (variable.partition(b"=") for variable in variables)
        if _NUMBER.fullmatch(value)
    }
    ranks = {rank: next((values[n] for n in names if n in values), None) for rank, names in _RANKS.items()}
    return {rank: int(value) for rank, value in ranks.items() if value is not None}


def read_status(pid: int, proc: Path = PROC) -> str:
    """Return /proc/PID/status: the credentials of a process, its memory in numbers.

    Raises ProcessLookupError where it ended, and other OSErrors.
    """
    try:
        return read_status_file(f"{proc}/{pid}/status").decode(errors="replace")  # a name may be any bytes
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"process {pid} ended") from None


def read_status_file(path: str) -> bytes:
    """Return the status file of a process or thread, which is long where its user has thousands of groups.

    It is read before every pause: ``Path.read_bytes`` takes nearly three times as long. Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while part := os.read(fd, _STATUS_BYTES):
            parts.append(part)
    finally:
        os.close(fd)
    return b"".join(parts)


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
    name: str = ""  # of the first thread (comm), 15 bytes at most

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more. A process whose first thread ended goes on in the others."""
        return self.state == "X" or (self.state == "Z" and self.threads <= 1)


def read_stat(pid: int, proc: Path = PROC) -> Stat:
    """Read /proc/PID/stat. Raises ProcessLookupError when there is no such process."""
    try:
        # Read many times in every window: a Path and a text file would cost five times as much.
        fd = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, _STAT_BYTES)
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(f"no process {pid}") from error
    return parse_stat(text)


def parse_stat(stat: bytes) -> Stat:
    """Return the fields of the bytes of a /proc/PID/stat."""
    text = stat.decode(errors="replace")
    name_end = text.rindex(")")  # the name before it may hold spaces and brackets
    fields = text[name_end + 2 :].split()
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
        name=text[text.index("(") + 1 : name_end],
    )


def in_initial_pid_namespace() -> bool:
    """Whether this is the initial PID namespace and not that of a container; True where that is not known."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _INITIAL
    except OSError:
        return True
