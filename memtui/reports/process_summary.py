"""The part of a report on each process: its mean sizes and its GPU memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from memtui.core.readings import GpuMemory, GpuUse
from memtui.core.samples import is_lower_bound
from memtui.core.text import printable
from memtui.core.units import percent, size
from memtui.reports.source import ReportSource

ProcessRows = Sequence[Mapping[str, Any]]
"""Rows of ``ReportSource.process_samples``, with the names of the schema."""
MOST_PROCESSES = 20  # in a report for people
MOST_UNSEEN = 100  # that existed in no window: a program may start thousands of short children
NO_WINDOW = "it began after the last window, or ran between two"
NO_READING = "no reading in this session"
_RESIDENT_SIZES = ("rss_bytes", "pss_bytes", "private_bytes", "swap_bytes")
_ALL_SIZES = ("wss_bytes", "shared_bytes", *_RESIDENT_SIZES)


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """Mean sizes of a process, bytes; None where they are unknown, as of one that was in no window.

    Attributes:
        pid, role, generation, command: identity of the process.
        wss_bytes, shared_bytes: means over the windows that are alike.
        wss_reason: why its working set is unknown.
        wss_lower_bound: of most of these windows it is known that more may have been touched.
        rss_bytes, pss_bytes: means of what they were at the ends of all windows, each as long as its window.
        private_bytes: likewise, of its resident memory that no other process maps (USS).
        swap_bytes: likewise, of what is swapped out.
        gpu_bytes, gpu_max_bytes: mean and maximum of its memory on all GPUs at the end of each window.
        gpu_reason: why GPU memory is unknown, or unknown in some windows.
        gpus_used: mean of how busy it kept all GPUs together, at the end of each window; 0.5 is half of one GPU.
        gpus_used_reason: why that is unknown, or unknown in some windows.
    """

    pid: int
    role: str
    generation: int
    command: str
    wss_bytes: float | None
    wss_reason: str
    wss_lower_bound: bool
    shared_bytes: float | None
    rss_bytes: float | None
    pss_bytes: float | None
    private_bytes: float | None
    swap_bytes: float | None
    gpu_bytes: float | None
    gpu_max_bytes: int | None
    gpu_reason: str
    gpus_used: float | None
    gpus_used_reason: str


def process_summaries(
    reader: ReportSource, rows: ProcessRows, alike: set[int], rss_mean_bytes: float | None
) -> tuple[ProcessSummary, ...]:
    """Return a summary of every process that existed in a window, and of some that existed in none.

    Working sets are means over the samples that are ``alike``; resident memory is that at the ends of all windows.
    Of a process without others it is ``rss_mean_bytes``, in which readings between windows count, too.
    """
    means = _mean_sizes(rows, alike)
    if len(means) == 1 and rss_mean_bytes is not None:
        next(iter(means.values()))["rss_bytes"] = rss_mean_bytes
    listed = {*means, *_in_no_window(reader, means)}
    gpu = _at_window_ends(reader.gpu_memory(0, 2**62), rows, "gpu_bytes")
    use = _at_window_ends(reader.gpu_use(0, 2**62), rows, "gpus_used")
    bounds = _with_lower_bounds(rows, alike)
    summaries = []
    for process in reader.processes():
        if process.key not in listed:
            continue
        own, of_gpu, used = means.get(process.key, {}), gpu[process.key], use[process.key]
        reason = ""
        if "wss_bytes" not in own:
            reason = _why_no_working_set(rows, process.key) if process.key in means else NO_WINDOW
        summaries.append(
            ProcessSummary(
                pid=process.pid,
                role=process.role,
                generation=process.generation,
                command=process.command,
                wss_bytes=own.get("wss_bytes"),
                wss_reason=reason,
                wss_lower_bound=process.key in bounds,
                shared_bytes=own.get("shared_bytes"),
                rss_bytes=own.get("rss_bytes"),
                pss_bytes=own.get("pss_bytes"),
                private_bytes=own.get("private_bytes"),
                swap_bytes=own.get("swap_bytes"),
                gpu_bytes=of_gpu.mean,
                gpu_max_bytes=_whole(of_gpu.max),
                gpu_reason=of_gpu.reason,
                gpus_used=used.mean,
                gpus_used_reason=used.reason,
            )
        )
    return tuple(summaries)


def _in_no_window(reader: ReportSource, in_windows: Collection[int]) -> list[int]:
    """Return the keys of processes that existed in no window, under no earlier or later program either."""
    processes = reader.processes()
    pids = {process.pid for process in processes if process.key in in_windows}
    latest = {process.pid: process.key for process in processes if process.pid not in pids}
    return list(latest.values())[:MOST_UNSEEN]


def _with_lower_bounds(rows: ProcessRows, alike: set[int]) -> set[int]:
    """Return the processes of whose working set most windows that are alike say that it may lack pages."""
    lack: dict[int, list[bool]] = defaultdict(list)
    for row in rows:
        if row["sample"] in alike and row["wss_bytes"] is not None:
            lack[row["process"]].append(is_lower_bound(row["reason"] or ""))
    return {process for process, windows in lack.items() if 2 * sum(windows) > len(windows)}


def _why_no_working_set(rows: ProcessRows, process: int) -> str:
    measured = any(row["wss_bytes"] is not None for row in rows if row["process"] == process)
    return "known in windows of other lengths only" if measured else "known in no window"


class _Readings(NamedTuple):
    mean: float | None
    max: float | None
    reason: str


def _mean_sizes(rows: ProcessRows, alike: set[int]) -> dict[int, dict[str, float]]:
    """Return the means of the sizes that are known, by process and name: of resident memory over time."""
    sizes: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        of_process, length_ns = sizes[row["process"]], row["end_ns"] - row["start_ns"]
        for name in _ALL_SIZES if row["sample"] in alike else _RESIDENT_SIZES:
            if row[name] is not None:
                of_process[name].append((row[name], length_ns if name in _RESIDENT_SIZES else 1))
    return {process: {name: _mean(pairs) for name, pairs in by_name.items()} for process, by_name in sizes.items()}


def _mean(pairs: Sequence[tuple[int, int]]) -> float:
    """Return the mean of values with weights; of values without any weight the plain one."""
    values, weights = np.array(pairs, np.float64).T
    return float(np.average(values, weights=weights if weights.any() else None))


def _at_window_ends(readings: Sequence[GpuMemory | GpuUse], rows: ProcessRows, name: str) -> dict[int, _Readings]:
    """Return mean and maximum by process over the windows with a reading, and why other windows have none.

    A process that ended before its first reading has the reason of the others where they all have the same one, as
    where no driver is installed. ``name``: the field of the readings that counts.
    """
    changes: dict[int, list[GpuMemory | GpuUse]] = defaultdict(list)
    for reading in readings:
        changes[reading.process].append(reading)
    times = {process: [reading.t_ns for reading in of_one] for process, of_one in changes.items()}
    values_by_process: dict[int, list[float]] = defaultdict(list)
    reasons: dict[int, str] = {}
    for row in rows:
        process = row["process"]
        values, index = values_by_process[process], bisect_right(times.get(process, []), row["end_ns"])
        if not index:
            continue  # a window from before the first answer
        reading = changes[process][index - 1]
        value = getattr(reading, name)
        if value is None:
            reasons[process] = reading.reason or reading.status
        else:
            values.append(value)
    of_all = set(reasons.values())
    unread = of_all.pop() if len(of_all) == 1 and not any(values_by_process.values()) else NO_READING
    return defaultdict(
        lambda: _Readings(None, None, unread),
        {
            process: _Readings(
                float(np.mean(values)) if values else None,
                max(values, default=None),
                reasons.get(process, "" if values else unread),
            )
            for process, values in values_by_process.items()
        },
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def count_in_windows(processes: Sequence[ProcessSummary]) -> int:
    """Return how many of the processes existed in a window."""
    return sum(process.wss_reason != NO_WINDOW for process in processes)


def process_lines(processes: Sequence[ProcessSummary]) -> list[str]:
    """Return a line for each of as many processes as a page of text has room for: the largest and the target.

    What is the same of all processes is said once.
    """
    seen = [process for process in processes if process.wss_reason != NO_WINDOW]
    unseen, several = len(processes) - len(seen), len(seen) > 1
    each = seen if unseen > 1 else processes
    listed = _largest(each)
    reasons = {process.gpu_reason if process.gpu_bytes is None else "" for process in listed}
    without_gpus = several and len(reasons) == 1 and "" not in reasons
    lines = [_line(process, several=several, gpus=not without_gpus) for process in listed]
    if more := len(each) - len(listed):
        lines.append(f"process      and {more} more, all smaller (--json has them)")
    if unseen > 1:
        lines.append("process      and more: n/a: they began after the last window, or ran between two (--json)")
    if without_gpus:
        lines.append(f"process      GPU memory of all n/a: {reasons.pop()}")
    return lines


def _line(process: ProcessSummary, *, several: bool, gpus: bool) -> str:
    shared = f" ({size(process.shared_bytes)} shared)" if several and process.shared_bytes is not None else ""
    parts = (("PSS", process.pss_bytes), ("USS", process.private_bytes))
    shares = ", ".join(f"{name} {size(value)}" for name, value in parts if value is not None)
    at = " at the ends of its windows" if several else ""
    if process.wss_reason == NO_WINDOW:
        return f"process      {process.pid} {process.role}: n/a: {NO_WINDOW}  {short_command_line(process.command)}"
    resident = f"resident {size(process.rss_bytes)}{at}{f' ({shares} where they were read)' if shares else ''}"
    swap = f", swapped out {size(process.swap_bytes)}" if process.swap_bytes else ""
    working_set = (
        f"{'at least ' * process.wss_lower_bound}{size(process.wss_bytes)}{shared}"
        if process.wss_bytes is not None
        else f"n/a: {process.wss_reason}"
    )
    return (
        f"process      {process.pid} {process.role}: in the mean working set {working_set}, "
        f"{resident}{swap}{f', {_gpu_clause(process)}' * gpus}  {short_command_line(process.command)}"
    )


def _largest(processes: Sequence[ProcessSummary]) -> list[ProcessSummary]:
    """Return the target and the processes with the largest memory, in their order."""
    by_size = sorted(processes, key=lambda p: (p.role.startswith("target"), p.rss_bytes or 0), reverse=True)
    listed = {id(process) for process in by_size[:MOST_PROCESSES]}
    return [process for process in processes if id(process) in listed]


def _gpu_clause(process: ProcessSummary) -> str:
    if process.gpu_bytes is None:
        return f"GPU n/a: {process.gpu_reason}"
    unknown = f" (not always known: {process.gpu_reason})" if process.gpu_reason else ""
    return f"GPU {size(process.gpu_bytes)}, max {size(process.gpu_max_bytes)}{unknown}{_use_clause(process)}"


def _use_clause(process: ProcessSummary) -> str:
    """Return what follows the memory of a process on GPUs: 190 % is nearly two of them; nothing of an old session."""
    if process.gpus_used is None:
        return "" if process.gpus_used_reason == NO_READING else f", its use n/a: {process.gpus_used_reason}"
    unknown = f" (not always known: {process.gpus_used_reason})" if process.gpus_used_reason else ""
    return f", used {percent(process.gpus_used)}{unknown}"


def short_command_line(command: str) -> str:
    """Return a foreign command line, shortened."""
    return printable(command if len(command) <= 80 else command[:79] + "…")
