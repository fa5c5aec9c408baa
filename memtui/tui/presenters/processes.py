"""The processes of the tree in one window."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from memtui.analysis.resident import PSS, SEVERAL_TIMES, SUM_OF_RSS
from memtui.core.fast_numpy import whole_sum
from memtui.core.readings import GpuMemory, GpuUse
from memtui.core.samples import SHARED_UNKNOWN, Process, Status
from memtui.core.units import duration
from memtui.session.process_reader import ProcessSample
from memtui.session.session import Session
from memtui.widgets.views.memory import ProcessRow

NOTABLE_AGE_NS = 5_000_000_000  # of a PSS
_RANK = re.compile(r"\b(RANK|LOCAL_RANK)=(\d+)")


class GpuPart(NamedTuple):
    """What processes have of the GPUs at one moment, by key."""

    memory: Mapping[int, GpuMemory]
    use: Mapping[int, GpuUse]


def process_rows(
    reader: Session,
    window: Sequence[int],
    processes: Sequence[Process],
    gpu: GpuPart,
    wss_bytes: float | None,
) -> tuple[ProcessRow, ...]:
    """Return rows of the last of one or two samples, by rank and then pid, an order that stays while they work.

    The sample before gives the CPU time that each used in between; ``gpu`` is of that moment; ``wss_bytes`` is the
    working set of the tree, of which each has a share.
    """
    named = {p.key: p for p in processes}
    samples = [row for row in reader.processes.samples(window[0], window[-1]) if row["process"] in named]
    before = {row["process"]: row for row in samples if row["sample"] != window[-1]}
    now = [row for row in samples if row["sample"] == window[-1] and row["status"] != Status.GONE]
    total = wss_bytes or whole_sum(row["wss_bytes"] for row in now)  # where one is not known, there are no shares
    keys = [row["process"] for row in now]
    rows = [_row(named[key], row, before.get(key), total, gpu) for key, row in zip(keys, now, strict=True)]
    return tuple(sorted(rows, key=lambda row: (row.rank is not None, row.rank or 0, row.key)))


def rank_of(process: Process) -> int | None:
    """Return the RANK in the first environment of a process (torchrun, MPI); None without a rank."""
    ranks = {name: int(number) for name, number in _RANK.findall(process.role)}
    return ranks.get("RANK")


def _row(
    process: Process, row: ProcessSample, before: ProcessSample | None, total: float | None, gpu: GpuPart
) -> ProcessRow:
    ranks = {name: int(number) for name, number in _RANK.findall(process.role)}
    cpu = None
    if before is not None and row["cpu_ns"] is not None and before["cpu_ns"] is not None:
        wall = row["end_ns"] - before["end_ns"]
        cpu = (row["cpu_ns"] - before["cpu_ns"]) / wall if wall > 0 else None
    wss, gpu_memory, use = row["wss_bytes"], gpu.memory.get(process.key), gpu.use.get(process.key)
    reason = "" if row["status"] == Status.OK else row["reason"] or row["status"]
    return ProcessRow(
        process.pid,
        process.role.partition(" ")[0],
        ranks.get("RANK"),
        ranks.get("LOCAL_RANK"),
        wss,
        row["rss_bytes"],
        wss / total if wss is not None and total else None,
        cpu,
        None if gpu_memory is None else gpu_memory.gpu_bytes,
        process.command,
        reason,
        row["shared_bytes"],
        "no reading yet" if gpu_memory is None else gpu_memory.reason,
        row["pss_bytes"],
        None if use is None else use.gpus_used,
        "" if use is None else use.reason,
        row["private_bytes"],
        row["swap_bytes"],
    )


def tree_row(rows: Sequence[ProcessRow], wss_bytes: int | None, shared_bytes: int | None) -> ProcessRow | None:
    """Return all processes together, with the working set of the tree and the shared part of it; None of a single one.

    RSS is a sum that counts a shared page for each process; PSS is a sum that counts a shared page once.
    """
    if len(rows) < 2:
        return None
    for_each = wss_bytes is not None and shared_bytes is None
    return ProcessRow(
        0,
        "",
        wss_bytes=wss_bytes,
        rss_bytes=whole_sum(row.rss_bytes for row in rows),
        pss_bytes=whole_sum(row.pss_bytes for row in rows),
        uss_bytes=whole_sum(row.uss_bytes for row in rows),
        swap_bytes=whole_sum(row.swap_bytes for row in rows),
        cpu=whole_sum(row.cpu for row in rows),
        gpu_bytes=whole_sum(row.gpu_bytes for row in rows),
        gpus_used=whole_sum(row.gpus_used for row in rows),
        reason=SHARED_UNKNOWN if for_each else "",
        shared_bytes=shared_bytes,
    )


def pss_note(rows: Sequence[ProcessSample]) -> str:
    """Return a note on the resident memory of several processes in one window, from rows of ``process_samples``."""
    rows = [row for row in rows if row["status"] != Status.GONE]
    if len(rows) < 2:
        return ""
    if why := next((row["pss_reason"] for row in rows if row["pss_reason"]), ""):
        return f"{PSS} n/a: {why}; {SUM_OF_RSS}: {SEVERAL_TIMES}"
    if any(row["pss_ns"] is None for row in rows):
        return f"{SUM_OF_RSS}: {SEVERAL_TIMES}"
    age_ns = max(row["end_ns"] for row in rows) - min(row["pss_ns"] for row in rows)
    return f"{PSS} read {duration(age_ns / 1e9)} before" if age_ns > NOTABLE_AGE_NS else ""
