"""CPU time, memory, threads and faults of processes: from psutil, and from /proc/PID/stat what psutil leaves out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import psutil

from memtui.core.procfs import is_exiting, parse_rss, parse_stat, read_stat, read_status_file


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time and faults of a process since it began, and its memory and threads now."""

    rss_bytes: int | None
    cpu_ns: int
    threads: int
    minor_faults: int
    major_faults: int

    def during(self, memory: MemoryTexts) -> Usage:
        """Return it with RSS and faults as they were read in a pause, where there is an RSS."""
        stat, rss_bytes = parse_stat(memory.stat), parse_rss(memory.statm)
        if self.rss_bytes is None or not rss_bytes:
            return self
        return replace(self, rss_bytes=rss_bytes, minor_faults=stat.minor_faults, major_faults=stat.major_faults)


class MemoryTexts(NamedTuple):
    """What /proc/PID/stat and statm said at a moment; parsing them can wait."""

    stat: bytes
    statm: bytes


def read_memory_texts(pid: int) -> MemoryTexts | None:
    """Read them for a paused process, which takes 30 us; None where that fails."""
    with suppress(OSError):
        return MemoryTexts(*(read_status_file(f"/proc/{pid}/{name}") for name in MemoryTexts._fields))
    return None


class UsageProbe:
    """Reads the usage of processes, keeping the psutil objects between samples."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}

    def read(self, pid: int) -> Usage:
        """Raise ProcessLookupError when the process ended, PermissionError when it may not be read."""
        try:
            process = self._processes.get(pid) or self._processes.setdefault(pid, psutil.Process(pid))
            with process.oneshot():
                times = process.cpu_times()
                rss_bytes, threads = process.memory_info().rss, process.num_threads()
        except psutil.NoSuchProcess as error:
            self.forget(pid)
            raise ProcessLookupError(f"process {pid} ended") from error
        except psutil.AccessDenied as error:
            raise PermissionError(f"process {pid} may not be read") from error
        stat = read_stat(pid)
        if not rss_bytes and is_exiting(pid):
            rss_bytes = None  # the kernel shows the RSS under the first thread, which has released it
        cpu_ns = round((times.user + times.system) * 1e9)
        return Usage(rss_bytes, cpu_ns, threads, stat.minor_faults, stat.major_faults)

    def forget(self, pid: int) -> None:
        """Drop a process that ended."""
        self._processes.pop(pid, None)
