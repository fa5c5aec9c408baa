"""The tables of a session: rows with fixed columns, the same in every form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, astuple
from itertools import groupby, repeat
from typing import Any

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES, PHASES
from memtui.analysis.miss_ratio import MissRatioCurve
from memtui.analysis.reuse_burst import BurstReuse
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.tensor_sums import TensorSums
from memtui.core.console import JSON_VERSION
from memtui.core.readings import GPU_COUNTERS
from memtui.reports.source import ReportSource
from memtui.reports.traced_windows import TracedWindows, tensor_histories
from memtui.session.blobs import UNKNOWN_BYTES
from memtui.session.vma_row import VmaRow

FIRST_TOUCH = -1
SAMPLES_PER_BATCH = 64
UNITS = {"*_ns": "nanoseconds, CLOCK_MONOTONIC", "*_bytes": "bytes", "*_w": "watts", "*_j": "joules"}
UNITS |= {"*_bytes_per_s": "bytes per second"}
Row = tuple[Any, ...]
Table = tuple[tuple[str, ...], Callable[[ReportSource], Iterable[Row]]]


def meta(reader: ReportSource) -> dict[str, Any]:
    """Return the session's metadata, the wall-clock anchor and the units."""
    return {
        "schema_version": JSON_VERSION,
        "format": 1,
        "session": reader.short_title,
        "hello": asdict(reader.hello),
        "clock": asdict(reader.hello.clock),
        "end": asdict(reader.end) if reader.end else None,
        "samples": len(reader.samples),
        "processes": [asdict(p) for p in reader.processes()],
        "units": UNITS,
    }


def unit_of(column: str) -> str:
    """Return the unit of a column, by its name; "" for counts and for text."""
    named = {"start": "bytes", "end": "bytes", "watts": "watts", "joules": "joules"}
    return named.get(column) or next((unit for end, unit in UNITS.items() if column.endswith(end[1:])), "")


def _last(reader: ReportSource) -> int:
    return int(reader.samples.sample[-1]) if len(reader.samples) else 0


def int_or_none(value: float) -> int | None:
    """Return a whole number that is stored as a float; None for nan, which is what is absent."""
    return None if value != value else int(value)


def _pids(reader: ReportSource) -> dict[int, int]:
    """Return the pid by process key; -1 for a key that is missing, as in a damaged session."""
    return defaultdict(lambda: -1, {p.key: p.pid for p in reader.processes()})


def _samples(reader: ReportSource) -> Iterator[Row]:
    """Yield a row per process and one with pid 0 for the whole tree."""
    pids = _pids(reader)
    table = reader.samples
    rows = groupby(reader.process_samples(0, _last(reader)), key=lambda row: row["sample"])
    by_sample = {sample: list(of_sample) for sample, of_sample in rows}
    for i, sample in enumerate(table.sample.tolist()):
        sizes = (int_or_none(table.paused_ns[i]), int_or_none(table.wss_bytes[i]), int_or_none(table.rss_bytes[i]))
        stored = int_or_none(table.stored_bytes[i])
        status = (table.status[i], table.reason[i])
        extent = (int(table.start_ns[i]), int(table.end_ns[i]))
        parts = (int_or_none(table.faulted_in_bytes[i]), int_or_none(table.unknown_bytes[i]))
        tree = (int(table.gaps[i]), table.disturbed[i], int_or_none(table.shared_bytes[i]))
        pss = (int_or_none(table.pss_bytes[i]), int_or_none(table.pss_ns[i]), "")
        cost = tuple(int_or_none(values[i]) for values in (table.wss_low_bytes, table.wss_high_bytes, table.lost_ns))
        yield (
            *(sample, 0, *extent, *sizes, stored, "", *status, None, None, None, *parts, "", None, *tree, *pss, *cost),
            *(None, None),  # private and swapped bytes, which are of single processes
        )
        for row in by_sample.get(sample, ()):
            yield (
                sample,
                pids[row["process"]],
                *(row[n] for n in ("start_ns", "end_ns", "paused_ns", "wss_bytes", "rss_bytes", "stored_bytes")),
                *(row[n] for n in ("flush", "status", "reason", "cpu_ns", "minor_faults", "major_faults")),
                *(row[n] for n in ("faulted_in_bytes", "unknown_bytes", "rearm", "clear_gap_ns")),
                *(None, "", row["shared_bytes"], row["pss_bytes"], row["pss_ns"], row["pss_reason"]),
                *(None, None, None, row["private_bytes"], row["swap_bytes"]),
            )


def _pages(reader: ReportSource) -> Iterator[Row]:
    """Yield the runs of touched pages, split where another VMA begins."""
    vmas: dict[int, list[VmaRow]] = defaultdict(list)
    for v in reader.vma_rows():
        vmas[v.process].append(v)
    processes = reader.processes()
    for sample in reader.samples.sample.tolist():
        for process in processes:
            mapped = [v for v in vmas[process.key] if v.first_sample <= sample <= v.last_sample]
            for start, end, page_bytes in reader.runs(sample, process.key, mapped):
                yield sample, process.pid, start, end, page_bytes


def _vmas(reader: ReportSource) -> Iterator[Row]:
    """Yield each range, its mean touched bytes in its windows, and its resident bytes at its end."""
    rows = reader.vma_rows()
    means = _mean_wss(reader, rows)
    newest = _last(reader)
    process_of = {v.id: v.process for v in rows}
    resident: dict[int, dict[int, int]] = {}
    counted: dict[int, set[int | None]] = {}  # processes whose resident pages were read
    for v in rows:
        last = min(v.last_sample, newest)
        if last not in resident:
            resident[last] = reader.vma_rss(last)
            counted[last] = {process_of.get(row) for row in resident[last]}
        rss = resident[last].get(v.id, 0 if v.process in counted[last] else None)
        yield v.pid, v.start, v.end, v.perms, v.name, v.first_sample, v.last_sample, v.filtered, means.get(v.id), rss


def _mean_wss(reader: ReportSource, rows: list[VmaRow]) -> dict[int, int]:
    """Return the means by VMA row; without rows that no window has."""
    sums: dict[int, float] = defaultdict(float)
    unknown: set[int] = set()
    measured: dict[int, list[int]] = defaultdict(list)  # samples with a working set, by process
    samples = reader.samples.sample
    for first in range(0, len(samples), SAMPLES_PER_BATCH):
        span = int(samples[first]), int(samples[min(first + SAMPLES_PER_BATCH, len(samples)) - 1])
        for sample in reader.process_samples(*span):
            if sample["wss_bytes"] is not None:
                measured[sample["process"]].append(sample["sample"])
        _, ids, touched = reader.vma_wss(*span)
        unknown.update(ids[touched == UNKNOWN_BYTES].tolist())
        values, index = np.unique(ids, return_inverse=True)
        for row, total in zip(values.tolist(), np.bincount(index, touched).tolist(), strict=True):
            sums[row] += total
    means = {}
    for v in rows:
        first, last = np.searchsorted(measured[v.process], (v.first_sample, v.last_sample + 1))
        if last > first and v.id not in unknown:
            means[v.id] = round(sums[v.id] / int(last - first))
    return means


def _exact_reuse(reader: ReportSource) -> list[tuple[int, ExactReuse]]:
    """Return the reuse distances over the session by process."""
    pids = _pids(reader)
    exact: dict[int, ExactReuse] = defaultdict(ExactReuse)
    for _, process, reuse in reader.iterate_reuse(0, _last(reader)):
        exact[pids[process]].add(reuse)
    return sorted(exact.items())


def _reuse(reader: ReportSource) -> Iterator[Row]:
    """Yield exact distances over the session by process and bound; a first touch has distance -1."""
    for pid, of_process in _exact_reuse(reader):
        for bound in ("upper", "lower"):
            yield pid, bound, FIRST_TOUCH, of_process.first_touches
            distances, counts = of_process.entries(bound)
            yield from ((pid, bound, *pair) for pair in zip(distances.tolist(), counts.tolist(), strict=True))


def _miss_ratio(reader: ReportSource) -> Iterator[Row]:
    """Yield the miss ratio of LRU memories by process: its bounds, and the estimate if order in windows is random."""
    for pid, of_process in _exact_reuse(reader):
        curve = MissRatioCurve.of(of_process)
        sizes = curve.drawn_sizes_bytes
        estimate = curve.estimate_at(sizes)
        estimates = repeat(None) if estimate is None else estimate.tolist()
        columns = (sizes.tolist(), *(bound.tolist() for bound in curve.miss_ratio_at(sizes)), estimates)
        yield from ((pid, *row) for row in zip(*columns, strict=False))


def _reuse_bursts(reader: ReportSource) -> Iterator[Row]:
    """Yield the distances that shares of the touches of probes do not exceed, by process (``analysis.reuse_burst``)."""
    pids = _pids(reader)
    by_process: dict[int, BurstReuse] = defaultdict(BurstReuse)
    for sample, process, parts in reader.reuse_bursts(0, _last(reader)):
        by_process[pids[process]].add(sample, parts)
    for pid, bursts in sorted(by_process.items()):
        for percent in range(5, 100, 5):
            if distance := bursts.within(percent / 100):
                lower, upper, estimate = distance
                about = None if estimate is None else round(estimate)
                yield pid, percent / 100, lower, upper, about, bursts.count, bursts.touches, bursts.probe_ns


def _power(reader: ReportSource) -> Iterator[Row]:
    for r in reader.power(0, 2**62):
        yield (
            r.t_ns,
            r.device,
            r.power_w,
            r.energy_j,
            r.source,
            r.status,
            r.reason,
            r.scope,
            r.name,
            r.limit_w,
            r.utilization,
            r.memory_used_bytes,
            r.processes,
            *(getattr(r, name) for name in GPU_COUNTERS),
            r.counters_reason,
        )


def _gpu_memory(reader: ReportSource) -> Iterator[Row]:
    """Yield the memory of each process on all GPUs; a row for each change, valid until the next row of the process."""
    pids = _pids(reader)
    for reading in reader.gpu_memory(0, 2**62):
        yield reading.t_ns, pids[reading.process], reading.gpu_bytes, reading.status, reading.reason


def _gpu_use(reader: ReportSource) -> Iterator[Row]:
    """Yield how busy each process kept all GPUs, in the same way."""
    pids = _pids(reader)
    for use in reader.gpu_use(0, 2**62):
        yield use.t_ns, pids[use.process], use.gpus_used, use.status, use.reason


def _memory_use(reader: ReportSource) -> Iterator[Row]:
    """Yield the resident memory of the tree, at each moment it was read."""
    for use in reader.memory_use(0, 2**62):
        yield use.t_ns, use.processes, use.rss_bytes, use.pss_bytes


def _numa_use(reader: ReportSource) -> Iterator[Row]:
    """Yield on which NUMA nodes touched pages of each process lie, and where its threads ran."""
    pids = _pids(reader)
    for use in reader.numa_use(0, 2**62):
        yield use.t_ns, pids[use.process], use.node, use.pages, use.threads


def _memory_limit(reader: ReportSource) -> Iterator[Row]:
    """Yield the limit of memory that left least, at each moment it was read."""
    for limit in reader.memory_limits(0, 2**62):
        yield (
            *(limit.t_ns, limit.cgroup, limit.limit_bytes, limit.used_bytes),
            *(limit.reclaimable_bytes, limit.swap_bytes, limit.left_bytes),
            *(limit.stall_cgroup, limit.some_stall_ns, limit.full_stall_ns),
            *(limit.refaults, limit.oom_score_adj),
            *(limit.high_cgroup, limit.high_bytes, limit.high_used_bytes, limit.high_events),
        )


def _allocations(reader: ReportSource) -> Iterator[Row]:
    """Yield every allocation and free of the recorded training steps, with the allocated bytes after it."""
    for step in reader.allocation_steps():
        trace = reader.step_trace(step)
        names = ("", *trace.names)
        stacks = repeat(-1, len(trace)) if trace.stack is None else trace.stack.tolist()
        for t_ns, delta, usage_bytes, category, phase, op, layer, stack in zip(
            *(trace.t_ns.tolist(), trace.delta_bytes.tolist(), trace.usage_bytes.tolist()),
            *(trace.category.tolist(), trace.phase.tolist(), trace.op.tolist(), trace.layer.tolist(), stacks),
            strict=True,
        ):
            labels = CATEGORIES[category], PHASES[phase], names[op + 1], names[layer + 1], step.device
            yield step.pid, step.step, t_ns, delta, usage_bytes, *labels, stack if stack >= 0 else None


def _call_stacks(reader: ReportSource) -> Iterator[Row]:
    """Yield every call stack: its innermost call, and the number of the stack that made it."""
    stacks = reader.call_stacks()
    for number, (parent, frame) in enumerate(zip(stacks.parent, stacks.frame, strict=True)):
        function, file, line = stacks.frames[frame]
        yield number, parent if parent >= 0 else None, function, file, line or None


def _steps(reader: ReportSource) -> Iterator[Row]:
    """Yield every training step that a program reported, but its first."""
    for row in reader.training():
        start_ns = row.start_ns
        for step, end_ns in enumerate(reader.training_progress(row).ends_ns.tolist(), row.first_step):
            yield row.pid, step, start_ns, end_ns
            start_ns = end_ns


def _tensor_usage(reader: ReportSource) -> Iterator[Row]:
    """Yield the peak memory of tensors in each stretch of time, as the cheap view saw it."""
    for row in (row for device in reader.training_devices() for row in reader.training(device=device)):
        usage = reader.training_progress(row).usage
        names = ("", *usage.names)
        for start_ns, end_ns, step, op, by_category in zip(
            *(usage.start_ns.tolist(), usage.end_ns.tolist(), usage.step.tolist(), usage.op.tolist()),
            usage.usage_bytes.tolist(),
            strict=True,
        ):
            yield row.pid, start_ns, end_ns, step, names[op + 1], sum(by_category), *by_category, row.device


def _learning(reader: ReportSource) -> Iterator[Row]:
    """Yield loss and accuracy (percent) over time, as a training reported them."""
    yield from map(astuple, reader.learning())


def _tensors(reader: ReportSource) -> Iterator[Row]:
    """Yield every reported tensor with its touched bytes, over all windows in which its address was known."""
    for history in sorted(tensor_histories(reader), key=lambda history: history.pid):
        counted = TracedWindows(reader, history)
        sums = TensorSums.of(counted.count(counted.inside), len(counted.numbers))
        touched_bytes = sums.mean_bytes().tolist()
        for n, tensor in enumerate(counted.numbers.identities):
            windows, last = int(sums.windows[n]), int(sums.last_sample[n])
            touched = (round(touched_bytes[n]), windows, int(sums.touched_windows[n]) / windows) if windows else ()
            row = (history.pid, tensor.layer, CATEGORIES[tensor.category], tensor.size_bytes)
            yield *row, *(touched or (None, 0, None)), None if last < 0 else last, tensor.part


def _events(reader: ReportSource) -> Iterator[Row]:
    for event in reader.events(0, 2**62):
        yield event.t_ns, event.kind, event.text


_SAMPLE = ("sample", "pid", "start_ns", "end_ns", "paused_ns", "wss_bytes", "rss_bytes", "stored_bytes", "flush")
TABLES: dict[str, Table] = {
    "samples": (
        (
            *(*_SAMPLE, "status", "reason", "cpu_ns", "minor_faults", "major_faults"),
            *("faulted_in_bytes", "unknown_bytes", "rearm", "clear_gap_ns", "gaps", "disturbed", "shared_bytes"),
            *("pss_bytes", "pss_ns", "pss_reason", "wss_low_bytes", "wss_high_bytes", "lost_ns"),
            *("private_bytes", "swap_bytes"),
        ),
        _samples,
    ),
    "pages": (("sample", "pid", "start", "end", "page_bytes"), _pages),
    "vmas": (
        ("pid", "start", "end", "perms", "name", "first_sample", "last_sample", "filtered", "wss_bytes", "rss_bytes"),
        _vmas,
    ),
    "reuse": (("pid", "bound", "distance_bytes", "count"), _reuse),
    "miss_ratio": (("pid", "size_bytes", "miss_ratio_low", "miss_ratio_high", "miss_ratio_estimate"), _miss_ratio),
    "reuse_bursts": (
        ("pid", "share", "lower_bytes", "upper_bytes", "estimate_bytes", "bursts", "touches", "probe_ns"),
        _reuse_bursts,
    ),
    "allocations": (
        ("pid", "step", "t_ns", "delta_bytes", "usage_bytes", "category", "phase", "op", "layer", "device", "stack"),
        _allocations,
    ),
    "call_stacks": (("stack", "parent", "function", "file", "line"), _call_stacks),
    "steps": (("pid", "step", "start_ns", "end_ns"), _steps),
    "tensor_usage": (
        (
            *("pid", "start_ns", "end_ns", "step", "op", "held_bytes"),
            *(f"{category.replace(' ', '_')}_bytes" for category in CATEGORIES),
            "device",
        ),
        _tensor_usage,
    ),
    "learning": (("pid", "t_ns", "iteration", "epoch", "loss", "accuracy", "minimum"), _learning),
    "tensors": (
        (
            *("pid", "name", "category", "size_bytes", "touched_bytes", "windows", "touched_share"),
            *("last_sample", "part"),
        ),
        _tensors,
    ),
    "power": (
        (
            *("t_ns", "device", "watts", "joules", "source", "status", "reason"),
            *("scope", "name", "limit_w", "utilization", "memory_used_bytes", "processes"),
            *GPU_COUNTERS,
            "counters_reason",
        ),
        _power,
    ),
    "gpu_memory": (("t_ns", "pid", "gpu_bytes", "status", "reason"), _gpu_memory),
    "gpu_use": (("t_ns", "pid", "gpus_used", "status", "reason"), _gpu_use),
    "memory_limit": (
        (
            *("t_ns", "cgroup", "limit_bytes", "used_bytes", "reclaimable_bytes", "swap_bytes", "left_bytes"),
            *("stall_cgroup", "some_stall_ns", "full_stall_ns", "refaults", "oom_score_adj"),
            *("high_cgroup", "high_bytes", "high_used_bytes", "high_events"),
        ),
        _memory_limit,
    ),
    "memory_use": (("t_ns", "processes", "rss_bytes", "pss_bytes"), _memory_use),
    "numa_use": (("t_ns", "pid", "node", "pages", "threads"), _numa_use),
    "events": (("t_ns", "kind", "text"), _events),
}
