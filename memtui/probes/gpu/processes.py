"""Which process holds how much memory of the GPUs, from the lists of processes that the driver keeps for each board.

A process that is in no list of a board has no context there and holds none of its memory: 0 is then a measured value.
Where a list cannot be read, or is not complete, nothing is known of the processes that are in no list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtui.core.samples import Status

Why = tuple[Status, str]
EVERYBODY_ELSE = 0  # no process has this pid
NOT_REPORTED = "the driver does not tell the memory of single processes"
IN_SLICES = "cut into slices (MIG): the driver names the processes of a slice to its own users only"
# The driver uses the pids of the host, or hides processes: a pid in a list may be another process's in this container.
CONTAINER = "the driver numbers processes as the host does, and this is a container with numbers of its own"
WSL = "under WSL the driver of Windows keeps the lists of processes, and shows none"
_WSL_DEVICE = Path("/dev/dxg")  # the GPU of a Windows host, and the only way to it


@dataclass(frozen=True, slots=True)
class Holding:
    """GPU memory of one process on all boards together; ``EVERYBODY_ELSE``: of each process that is in no list."""

    pid: int
    gpu_bytes: int | None
    status: str = Status.OK
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """The memory of one board. ``used_bytes`` is by pid; None: in use, but the driver does not report how much.

    ``others``: why a process that is not in ``used_bytes`` may hold memory here all the same; None: it holds none.
    """

    label: str
    used_bytes: dict[int, int | None]
    others: Why | None = None


class Holders:
    """The GPU memory of all processes at one moment (``t_ns``, monotonic)."""

    def __init__(self, t_ns: int, holdings: Iterable[Holding]) -> None:
        """Raise KeyError without a holding of ``EVERYBODY_ELSE``, TypeError for a pid that is not a pid."""
        self.t_ns = t_ns
        self._by_pid = {holding.pid: holding for holding in holdings}
        self._else = self._by_pid[EVERYBODY_ELSE]

    def of(self, pid: int) -> Holding:
        return self._by_pid.get(pid, self._else)


def unknown(status: str, reason: str) -> tuple[Holding, ...]:
    """Return holdings in which nothing is known of any process."""
    return (Holding(EVERYBODY_ELSE, None, status, reason),)


def under_wsl() -> bool:
    return _WSL_DEVICE.exists()


def merged(entries: Iterable[Any]) -> dict[int, int | None]:
    """Return the bytes by pid from all lists of one board. ``entries`` are NVML's records of processes.

    A process that computes and draws is in two lists with the same memory, which counts once; its slices add up.
    """
    parts: dict[tuple[int, int, int], int | None] = {}
    for entry in entries:
        key = entry.pid, entry.gpuInstanceId, entry.computeInstanceId
        so_far, used = parts.get(key, 0), entry.usedGpuMemory
        parts[key] = None if so_far is None or used is None else max(so_far, used)
    totals: dict[int, int | None] = {}
    for (pid, _, _), used in parts.items():
        so_far = totals.get(pid, 0)
        totals[pid] = None if so_far is None or used is None else so_far + used
    return totals


def sum_up(boards: Sequence[Board]) -> tuple[Holding, ...]:
    """Return a holding for every process that is in a list, and one for everybody else.

    Their bytes are None where one board does not report them.
    """
    pids = {pid for board in boards for pid in board.used_bytes}
    return tuple(_sum_of(pid, boards) for pid in (EVERYBODY_ELSE, *sorted(pids)))


def _sum_of(pid: int, boards: Sequence[Board]) -> Holding:
    total = 0
    for board in boards:
        if pid not in board.used_bytes:
            if board.others is not None:
                status, reason = board.others
                return Holding(pid, None, status, f"{board.label}: {reason}")
            continue
        used = board.used_bytes[pid]
        if used is None:
            return Holding(pid, None, Status.UNSUPPORTED, f"{board.label}: {NOT_REPORTED}")
        total += used
    return Holding(pid, total)
