"""A memory cgroup with a limit, in both versions of the interface: created, joined, read and removed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memtui.core.errors import FAILURE, UserError
from memtui.probes.memory_pressure import LIMIT_FILES, memory_mounts, text_of
from memtui.study.runs.swap_file import owner_id, owner_lives

_NAME = "memtui-limit-"
_STEP_BYTES = 32 << 20  # a limit is lowered in such steps, so that none of them takes long
_USED = {1: "memory.usage_in_bytes", 2: "memory.current"}
_REMOVE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of a cgroup since its creation; None where its version or kernel has no such counter.

    Attributes:
        major_faults: faults that had to read from a disk or from swap (``pgmajfault``).
        faults: all page faults (``pgfault``).
        swapped_in: pages that were read from swap (``pswpin``), readahead included.
        process_major_faults: major faults by the counters of its living processes (``majflt`` of /proc/PID/stat).
        used_bytes: memory that is charged to the cgroup.
        pages_bytes: part of it in pages that can be swapped out: anonymous and shared memory.
        other_bytes: part of it in the page cache of files and in memory of the kernel.
        swap_bytes: swap that is charged to the cgroup.
    """

    major_faults: int
    faults: int
    swapped_in: int | None
    process_major_faults: int | None
    used_bytes: int
    pages_bytes: int
    other_bytes: int
    swap_bytes: int | None


@dataclass(frozen=True, slots=True)
class LimitGroup:
    """A memory cgroup of a run. ``version``: version of the interface, 1 or 2."""

    version: int
    folder: Path

    @classmethod
    def make(cls) -> LimitGroup:
        """Create a cgroup without a limit. Raises UserError, which names what is missing."""
        mounts, refused = memory_mounts(), []
        for version, (top, _root) in sorted(mounts.items(), reverse=True):
            folder = top / f"{_NAME}{owner_id()}"
            try:
                folder.mkdir()
            except OSError as error:
                refused.append(f"{top}: {error.strerror}; a container may not, its host may")
                continue
            if (folder / LIMIT_FILES[version]).exists():
                return cls(version, folder)
            folder.rmdir()
            if version == 2:
                refused.append(f"{top} does not hand on the memory controller (echo +memory > cgroup.subtree_control)")
        why = "; ".join(refused) or "none is mounted (mount -t cgroup2 none /sys/fs/cgroup)"
        raise UserError(f"no memory cgroup can be made: {why}", FAILURE)

    def join(self, pid: int) -> None:
        """Put a process into the cgroup. Raises OSError."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def limit(self, bytes_: int, swap_bytes: int, seconds: float) -> None:
        """Lower the limit to ``bytes_`` of memory and ``swap_bytes`` of swap; the kernel swaps out the rest first.

        Raises:
            UserError: the limit was not reached within ``seconds``.
        """
        deadline_s = time.monotonic() + seconds
        if self.version == 2:
            self._write("memory.swap.max", swap_bytes)
        while True:
            now = max(bytes_, _number(self.folder / _USED[self.version]) - _STEP_BYTES)
            try:
                (self.folder / LIMIT_FILES[self.version]).write_text(str(now))
            except OSError as error:  # version 1 says "busy" when it could not make that much room
                if time.monotonic() > deadline_s:
                    raise UserError(f"the limit could not be lowered to {bytes_} bytes: {error.strerror}") from None
                time.sleep(0.05)
                continue
            if now == bytes_:
                break
            if time.monotonic() > deadline_s:
                raise UserError(f"within {seconds:.0f} s the limit came down to {now} bytes only, not to {bytes_}")
        if self.version == 1:
            self._write("memory.memsw.limit_in_bytes", bytes_ + swap_bytes)

    def counts(self, proc: Path = Path("/proc")) -> Counts:
        """Return the counters now. Raises OSError and ValueError when the cgroup is gone."""
        return counts_of(self.version, self.folder, proc)

    def kills(self) -> int:
        """Return how many processes of the cgroup the kernel killed for lack of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return numbers_of(text_of(self.folder / name)).get("oom_kill", 0)

    def swap_was_full(self) -> bool | None:
        """Return whether the cgroup ever wanted more swap than it may have; None where the kernel does not report it.

        Version 1 counts hits of the limit of memory and swap together, version 2 (since Linux 4.20) hits of the limit
        of swap and of a full swap of the machine.
        """
        if self.version == 1:
            text = text_of(self.folder / "memory.memsw.failcnt")
            return int(text) > 0 if text else None
        events = numbers_of(text_of(self.folder / "memory.swap.events"))
        return events.get("max", 0) + events.get("fail", 0) > 0 if events else None

    def processes(self) -> list[int]:
        return [int(word) for word in text_of(self.folder / "cgroup.procs").split()]

    def remove(self) -> None:
        """Kill the processes in the cgroup and remove it. Raises UserError when it stays."""
        deadline_s = time.monotonic() + _REMOVE_SECONDS
        while self.folder.exists():
            for pid in self.processes():
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            try:
                self.folder.rmdir()
            except OSError as error:  # its processes may not be reaped yet
                if time.monotonic() > deadline_s:
                    raise UserError(f"{self.folder} cannot be removed: {error.strerror}", FAILURE) from None
                time.sleep(0.05)

    def _write(self, name: str, value: int) -> None:
        with suppress(OSError):  # missing where swap is not accounted; then the size of the swap is the bound
            (self.folder / name).write_text(str(value))


def sweep() -> None:
    """Remove the cgroups of processes that are gone."""
    for version, (top, _root) in memory_mounts().items():
        with suppress(OSError):
            for folder in list(top.glob(f"{_NAME}*")):
                if not owner_lives(folder.name.removeprefix(_NAME)):
                    with suppress(UserError):
                        LimitGroup(version, folder).remove()


def counts_of(version: int, folder: Path, proc: Path = Path("/proc")) -> Counts:
    """Return the counters in the files of a memory cgroup.

    See cgroup-v2.rst and cgroup-v1/memory.rst. Raises OSError, ValueError.
    """
    stat = numbers_of((folder / "memory.stat").read_text())
    shared = stat.get("shmem", 0)
    if version == 1:
        # rss is anonymous memory; memory of the kernel is counted apart, where it is counted.
        anonymous, cache = stat["rss"], stat["cache"]
        kernel = _number(folder / "memory.kmem.usage_in_bytes")
        swap = stat.get("swap")
    else:
        anonymous, cache = stat["anon"], stat["file"]
        kernel = stat["kernel"] if "kernel" in stat else sum(stat.get(name, 0) for name in _KERNEL)
        swap = _number(folder / "memory.swap.current") if (folder / "memory.swap.current").exists() else None
    swapped_in = stat.get("pswpin")
    if swapped_in is None:
        swapped_in = numbers_of(text_of(proc / "vmstat")).get("pswpin")
    return Counts(
        major_faults=stat["pgmajfault"],
        faults=stat["pgfault"],
        swapped_in=swapped_in,
        process_major_faults=_of_processes(folder, proc),
        used_bytes=_number(folder / _USED[version]),
        pages_bytes=anonymous + shared,
        other_bytes=max(cache - shared, 0) + kernel,
        swap_bytes=swap,
    )


def counts_swapped_in(folder: Path) -> bool:
    """Return whether a cgroup counts its own pages from swap (version 2, Linux 6.13)."""
    return "pswpin" in numbers_of(text_of(folder / "memory.stat"))


_KERNEL = ("kernel_stack", "pagetables", "sec_pagetables", "percpu", "sock", "vmalloc", "slab")


def numbers_of(text: str) -> Mapping[str, int]:
    """Return the numbers by name, of lines with a name and a number."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _of_processes(folder: Path, proc: Path) -> int | None:
    total, readable = 0, False
    for pid in text_of(folder / "cgroup.procs").split():
        # proc_pid_stat(5): majflt is the 12th field, and the 2nd may hold blanks and brackets.
        fields = text_of(proc / pid / "stat").rpartition(")")[2].split()
        if len(fields) > 9:
            total, readable = total + int(fields[9]), True
    return total if readable else None


def _number(path: Path) -> int:
    text = text_of(path).strip()
    return int(text) if text.isdigit() else 0
