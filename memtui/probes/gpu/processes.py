"""Which process holds how much memory of the GPUs and keeps them busy, as the driver lists it for each board.

A process that is in no list of a board has no context there and holds none of its memory: 0 is then a measured value.
Where a list cannot be read, or is not complete, nothing is known of the processes that are in no list.

In the same way a process of which a board has no sample of use did not use it; but of those that compute through MPS
a sample may be missing, or count for the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memtui.core.samples import Status

Why = tuple[Status, str]
EVERYBODY_ELSE = 0  # no process has this pid
NOT_REPORTED = "the driver does not tell the memory of single processes"
IN_SLICES = "cut into slices (MIG): the driver names the processes of a slice to its own users only"
USE = "use by process"
NO_USE_IN_SLICES = "cut into slices (MIG): the driver does not tell the use of single processes"
IN_MPS = "it computes through MPS: the driver may count its use as that of the MPS server"
IMPOSSIBLE_USE = f"{USE}: the driver reads more than 100 %, which cannot be"
# The driver uses the pids of the host, or hides processes: a pid in a list may be another process's in this container.
CONTAINER = "the driver numbers processes as the host does, and this is a container with numbers of its own"
WSL = "under WSL the driver of Windows keeps the lists of processes, and shows none"
_WSL_DEVICE = Path("/dev/dxg")  # the GPU of a Windows host, and the only way to it


@dataclass(frozen=True, slots=True)
class Holding:
    """What one process has of all boards together; ``EVERYBODY_ELSE``: each process that is in no list.

    ``gpus_used``: 0.48 is about half of one board, as a mean since the reading before.
    """

    pid: int
    gpu_bytes: int | None
    status: str = Status.OK
    reason: str = ""
    gpus_used: float | None = None
    use_status: str = Status.FAILED
    use_reason: str = "not read"


@dataclass(frozen=True, slots=True)
class Board:
    """The memory and the use of one board. ``used_bytes`` is by pid; None: in use, but it is not told how much.

    ``others``: why a process that is not in ``used_bytes`` may hold memory here all the same; None: it holds none.
    ``shares``: the part of the time, 0 to 1, by pid, of those that used it (None: the driver's figure cannot be); or
    why nothing is known.
    ``in_mps``: the processes that compute through MPS.
    """

    label: str
    used_bytes: dict[int, int | None]
    others: Why | None = None
    shares: Mapping[int, float | None] | Why = field(default_factory=dict)
    in_mps: frozenset[int] = frozenset()


class Holders:
    """The GPU memory and use of all processes at one moment (``t_ns``, monotonic)."""

    def __init__(self, t_ns: int, holdings: Iterable[Holding]) -> None:
        """Raise KeyError without a holding of ``EVERYBODY_ELSE``, TypeError for a pid that is not a pid."""
        self.t_ns = t_ns
        self._by_pid = {holding.pid: holding for holding in holdings}
        self._else = self._by_pid[EVERYBODY_ELSE]

    def of(self, pid: int) -> Holding:
        return self._by_pid.get(pid, self._else)


def unknown(status: str, reason: str) -> tuple[Holding, ...]:
    """Return holdings in which nothing is known of any process."""
    return (Holding(EVERYBODY_ELSE, None, status, reason, None, status, reason),)


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


def shares_of(samples: Iterable[Any], since_us: int) -> dict[int, float | None]:
    """Return the part of the time that each process kept one board busy, by pid, from NVML's samples of processes.

    The driver gives a mean of each process; several would be of parts of that time. A place that it left unfilled has
    no time.
    """
    percents: dict[int, list[int]] = {}
    for sample in samples:
        if sample.timeStamp > since_us:
            percents.setdefault(sample.pid, []).append(sample.smUtil)
    return {pid: sum(each) / len(each) / 100 if max(each) <= 100 else None for pid, each in percents.items()}


def sum_up(boards: Sequence[Board]) -> tuple[Holding, ...]:
    """Return a holding for every process that is in a list, and one for everybody else.

    Their bytes and their use are None where one board does not report them.
    """
    pids = {pid for board in boards for pid in (*board.used_bytes, *board.in_mps)}
    pids |= {pid for board in boards if isinstance(board.shares, Mapping) for pid in board.shares}
    everybody = (EVERYBODY_ELSE, *sorted(pids - {EVERYBODY_ELSE}))
    return tuple(Holding(pid, *_bytes_of(pid, boards), *_use_of(pid, boards)) for pid in everybody)


def _use_of(pid: int, boards: Sequence[Board]) -> tuple[float | None, str, str]:
    total = 0.0
    for board in boards:
        if not isinstance(board.shares, Mapping):
            status, reason = board.shares
            return None, status, f"{board.label}: {reason}"
        if pid in board.in_mps and pid not in board.shares:
            return None, Status.UNSUPPORTED, f"{board.label}: {IN_MPS}"
        share = board.shares.get(pid, 0.0)
        if share is None:
            return None, Status.FAILED, f"{board.label}: {IMPOSSIBLE_USE}"
        total += share
    return round(total, 4), Status.OK, ""


def _bytes_of(pid: int, boards: Sequence[Board]) -> tuple[int | None, str, str]:
    total = 0
    for board in boards:
        if pid not in board.used_bytes:
            if board.others is not None:
                status, reason = board.others
                return None, status, f"{board.label}: {reason}"
            continue
        used = board.used_bytes[pid]
        if used is None:
            return None, Status.UNSUPPORTED, f"{board.label}: {NOT_REPORTED}"
        total += used
    return total, Status.OK, ""
