"""Who a process is and what it has used so far: psutil, and /proc/PID/stat for what psutil leaves out."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import psutil

from memtui.choices import COMMAND_CHARACTERS
from memtui.probes.stat import PROC, Stat, read_stat

__all__ = ["PROC", "Stat", "Usage", "UsageProbe", "children_of", "command_of", "has_ended", "read_stat", "state_of"]
# As torchrun, Open MPI and the others that speak PMI set them.
_RANKS = {
    "RANK": (b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"),
    "LOCAL_RANK": (b"LOCAL_RANK", b"OMPI_COMM_WORLD_LOCAL_RANK", b"MPI_LOCALRANKID"),
}
_NUMBER = re.compile(rb"\d{1,6}")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used since it began, and what it holds now."""

    rss_bytes: int | None
    cpu_ns: int
    threads: int
    minor_faults: int
    major_faults: int


def state_of(tid: int) -> str:
    """What a thread, or the first thread of a process, does: one letter, as in ``ps``; empty when it is gone."""
    try:
        return Path(f"/proc/{tid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def has_ended(tid: int) -> bool:
    """Whether a thread runs no more, be it waited for or not."""
    return state_of(tid) in ("", "Z", "X")


def children_of(pid: int, proc: Path = PROC) -> list[int]:
    """Direct children. The kernel lists them per thread, so other processes of the machine cost nothing.

    Kernels without CONFIG_PROC_CHILDREN are asked through psutil, which looks at every process.
    """
    found: list[int] = []
    try:
        for task in (proc / str(pid) / "task").iterdir():
            try:
                found += map(int, (task / "children").read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                if task.exists():
                    return [child.pid for child in psutil.Process(pid).children()]
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return []
    return found


def command_of(pid: int) -> str:
    """The command line as a shell would take it, or the name in brackets where there is none.

    Raises ProcessLookupError.
    """
    try:
        process = psutil.Process(pid)
        # A command line may be megabytes, and a target may start thousands of them.
        words = process.cmdline()
        return shlex.join(words)[:COMMAND_CHARACTERS] if any(words) else f"[{process.name()}]"
    except psutil.ZombieProcess:
        return f"[pid {pid}]"  # its first thread has ended
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(f"no process {pid}") from error
    except psutil.AccessDenied:
        return f"[pid {pid}]"


def ranks_of(pid: int, proc: Path = PROC) -> dict[str, int]:
    """What the environment a program was started with tells of its place in a training: RANK, LOCAL_RANK.

    Nothing else of the environment is kept, and nothing that is no number. Empty where it tells nothing or may not be
    read.
    """
    try:
        words = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    values = {name: value for name, _, value in (word.partition(b"=") for word in words) if _NUMBER.fullmatch(value)}
    found = {rank: next((values[n] for n in names if n in values), None) for rank, names in _RANKS.items()}
    return {rank: int(value) for rank, value in found.items() if value is not None}


class UsageProbe:
    """Reads the usage of processes, keeping the psutil objects between samples."""

    def __init__(self) -> None:
        self._known: dict[int, psutil.Process] = {}

    def read(self, pid: int) -> Usage:
        """Raises ProcessLookupError when the process ended, PermissionError when it may not be read."""
        try:
            process = self._known.get(pid) or self._known.setdefault(pid, psutil.Process(pid))
            with process.oneshot():
                times = process.cpu_times()
                rss_bytes, threads = process.memory_info().rss, process.num_threads()
        except psutil.NoSuchProcess as error:
            self.forget(pid)
            raise ProcessLookupError(f"process {pid} ended") from error
        except psutil.AccessDenied as error:
            raise PermissionError(f"process {pid} may not be read") from error
        stat = read_stat(pid)
        if stat.state == "Z":
            rss_bytes = None  # the kernel shows it under the first thread, which ended
        cpu_ns = round((times.user + times.system) * 1e9)
        return Usage(rss_bytes, cpu_ns, threads, stat.minor_faults, stat.major_faults)

    def forget(self, pid: int) -> None:
        """Drop a process that ended."""
        self._known.pop(pid, None)
