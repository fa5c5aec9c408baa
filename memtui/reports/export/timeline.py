"""A whole session as a timeline: counters, slices and instants for viewers of traces, read bit by bit.

A window's working set is a value from the window's start on; resident memory is one from the moment it was read. A
value that was not measured has no counter: the slice of the window says why.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from typing import Any

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES, PHASES, StepTrace
from memtui.core import progress_line
from memtui.core.readings import GPU_COUNTERS, PowerReading
from memtui.core.samples import Status
from memtui.core.text import program_first
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.formats.timeline import MICROSECOND_NS, Counter, Group, Instant, Item, Slice, Track, Value
from memtui.reports.export.tables import SAMPLES_PER_BATCH, UNITS, unit_of
from memtui.reports.source import ReportSource
from memtui.session.tables.allocations import RecordedStep

TREE, DEVICES = Group("all processes"), Group("power and GPUs")
_SAMPLES, _MARKS, _EVENTS = Track(TREE, "samples"), Track(TREE, "marks"), Track(TREE, "events")
_BYTES_KINDS = tuple(category.replace(" ", "_") for category in CATEGORIES)
_UNIT_SUFFIX = re.compile("(_bytes_per_s|_bytes|_w|_j)$")
_SHORT_UNITS = {"bytes": "bytes", "watts": "W", "joules": "J", "bytes per second": "bytes/s"}


class _Groups(defaultdict[int, Group]):
    """The group of each process by its pid: an exec, and a pid that is given again, is shown as the last command."""

    def __init__(self, reader: ReportSource) -> None:
        super().__init__()
        self.pids = defaultdict(lambda: -1)
        for process in reader.processes():
            self.pids[process.key] = process.pid
            self[process.pid] = Group(program_first(process.command), process.pid, process.command)

    def __missing__(self, pid: int) -> Group:
        group = self[pid] = Group(f"process {pid}", pid)
        return group


class _Windows:
    """Slices of windows. A window without a result, whose time is part of the next one, is an instant at its end."""

    def __init__(self, track: Track) -> None:
        self._track = track
        self._last: Slice | None = None

    def add(self, start_ns: int, end_ns: int, args: Mapping[str, Value]) -> Iterator[Item]:
        last, self._last = self._last, Slice(self._track, start_ns, end_ns, "window", args)
        if last is not None and start_ns < last.end_ns:
            yield Instant(self._track, last.end_ns, "window without a result", last.args)
        elif last is not None:
            yield last

    def finish(self) -> Iterator[Item]:
        if self._last is not None:
            yield self._last


def attributes(reader: ReportSource) -> dict[str, int | str]:
    """Return what is said of a session as a whole: where and how it was recorded, and the units."""
    hello, end, about = reader.hello, reader.end, reader.imported()
    values: dict[str, int | str] = {"session": reader.short_title, "memtui_version": hello.memtui_version}
    if about is not None:
        values |= {"imported_from": about.format, "file": about.file}
    else:
        host, target = hello.host, hello.target
        values |= {"host": host.hostname, "kernel": host.kernel, "architecture": host.architecture}
        values |= {"cpu_count": host.cpu_count, "memory_bytes": host.memory_bytes}
        values |= {"command": target.command, "pid": target.pid, "user": target.user}
        values |= {"tracker": hello.tracker, "flush": hello.flush, "interval_ns": hello.options.interval_ns}
    values |= {"samples": len(reader.samples), "end": "" if end is None else end.description}
    return values | {f"unit {name}": unit for name, unit in UNITS.items()}


def timeline(reader: ReportSource) -> Iterator[Item]:
    """Yield all that a session has on its time axis, table by table. Raises SessionError."""
    groups = _Groups(reader)
    progress_line.update("windows")
    yield from _tree(reader)
    progress_line.update("processes")
    yield from _processes(reader, groups)
    progress_line.update("power and marks")
    for low_ns, high_ns in _spans(reader):
        yield from _devices(reader, groups, low_ns, high_ns)
        yield from _learning(reader, groups, low_ns, high_ns)
        yield from _events(reader, low_ns, high_ns)
    progress_line.update("training steps")
    yield from _training(reader, groups)
    yield from _recorded_steps(reader, groups)


def _batches(reader: ReportSource) -> Iterator[slice]:
    total = len(reader.samples)
    for first in range(0, total, SAMPLES_PER_BATCH):
        progress_line.advance(first / total)  # of the table that is being written
        yield slice(first, min(first + SAMPLES_PER_BATCH, total))


def _spans(reader: ReportSource) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges that cover all time, each with a limited number of samples in it."""
    ends_ns = (int(reader.samples.end_ns[batch.stop - 1]) for batch in _batches(reader))
    yield from pairwise(chain((0,), ends_ns, (1 << 62,)))


def _without_none(values: Mapping[str, Value | None]) -> dict[str, Value]:
    """Return the values that are there: not None, no empty text, no nan."""
    return {name: value for name, value in values.items() if value is not None and value != "" and value == value}


def _counter(group: Group, name: str, unit: str, t_ns: int, value: float | None) -> Iterator[Item]:
    if value is not None and value == value:
        yield Counter(Track(group, name, unit), t_ns, (value,))


def _sizes(group: Group, row: Mapping[str, Any], resident: str) -> Iterator[Item]:
    """Yield the memory of a window, of one process or of all."""
    end_ns = row["end_ns"]
    yield from _counter(group, "working set", "bytes", row["start_ns"], row["wss_bytes"])
    yield from _counter(group, resident, "bytes", end_ns, row["rss_bytes"])
    yield from _counter(group, "PSS", "bytes", end_ns if row["pss_ns"] is None else row["pss_ns"], row["pss_bytes"])


def _tree(reader: ReportSource) -> Iterator[Item]:
    """Yield the samples. Their windows overlap where processes are paused one after another, so they are not slices."""
    samples = reader.samples
    whole = ("sample", "start_ns", "end_ns", "gaps")
    optional = ("wss_bytes", "wss_low_bytes", "wss_high_bytes", "rss_bytes", "pss_bytes", "pss_ns", "lost_ns")
    texts = ("disturbed", "status", "reason")
    for batch in _batches(reader):
        columns = [getattr(samples, name)[batch].tolist() for name in whole]
        columns += [[None if v != v else int(v) for v in getattr(samples, name)[batch].tolist()] for name in optional]
        columns += [getattr(samples, name)[batch] for name in texts]
        for values in zip(*columns, strict=True):
            row = dict(zip((*whole, *optional, *texts), values, strict=True))
            yield from _sizes(TREE, row, "sum of RSS")
            yield Instant(_SAMPLES, row["end_ns"], "sample", {**_window_args(row), "start_ns": row["start_ns"]})


def _window_args(row: Mapping[str, Any]) -> dict[str, Value]:
    names = ("sample", "wss_bytes", "wss_low_bytes", "wss_high_bytes", "lost_ns", "gaps", "disturbed", "reason")
    args = _without_none({name: row.get(name) for name in names})
    return args if row["status"] == Status.OK else {**args, "status": row["status"]}


def _processes(reader: ReportSource, groups: _Groups) -> Iterator[Item]:
    """Yield the windows and pauses of each process."""
    windows: dict[int, _Windows] = {}
    numbers = reader.samples.sample
    for batch in _batches(reader):
        for row in reader.process_samples(int(numbers[batch.start]), int(numbers[batch.stop - 1])):
            pid = groups.pids[row["process"]]
            group = groups[pid]
            yield from _sizes(group, row, "RSS")
            if pid not in windows:
                windows[pid] = _Windows(Track(group, "windows"))
            yield from windows[pid].add(row["start_ns"], row["end_ns"], _window_args(row))
            if row["paused_ns"]:
                yield _pause(Track(group, "pauses"), row)
    for of_process in windows.values():
        yield from of_process.finish()


def _pause(track: Track, row: Mapping[str, Any]) -> Item:
    """Return the pause of a window, which begins where the window ends; an instant where it had several within it."""
    end_ns, paused_ns, longest_ns = row["end_ns"], row["paused_ns"], row["longest_pause_ns"]
    args = _without_none({name: row[name] for name in ("sample", "walk_ns", "rearm_ns")})
    if longest_ns is None:
        return Slice(track, end_ns, end_ns + paused_ns, "paused", args)
    return Instant(track, end_ns, "paused in parts", args | {"paused_ns": paused_ns, "longest_pause_ns": longest_ns})


def _devices(reader: ReportSource, groups: _Groups, low_ns: int, high_ns: int) -> Iterator[Item]:
    for reading in reader.power(low_ns, high_ns):
        yield from _reading(reading)
    for memory in reader.gpu_memory(low_ns, high_ns):
        group = groups[groups.pids[memory.process]]
        yield from _counter(group, "GPU memory", "bytes", memory.t_ns, memory.gpu_bytes)
    for use in reader.gpu_use(low_ns, high_ns):
        yield from _counter(groups[groups.pids[use.process]], "GPUs used", "GPUs", use.t_ns, use.gpus_used)


def _reading(reading: PowerReading) -> Iterator[Item]:
    source = f"{reading.device} {reading.scope}"
    for name in ("power_w", "energy_j", "limit_w", "memory_used_bytes", "utilization", *GPU_COUNTERS):
        title = f"{source}: {_UNIT_SUFFIX.sub('', name).replace('_', ' ')}"
        unit = _SHORT_UNITS.get(unit_of(name), "share")
        yield from _counter(DEVICES, title, unit, reading.t_ns, getattr(reading, name))
    if reading.status != Status.OK:
        args = _without_none({"status": reading.status, "reason": reading.reason})
        yield Instant(Track(DEVICES, "not measured"), reading.t_ns, source, args)


def _learning(reader: ReportSource, groups: _Groups, low_ns: int, high_ns: int) -> Iterator[Item]:
    for point in reader.learning(low_ns, high_ns):
        group = groups[point.pid]
        yield from _counter(group, "loss", "loss", point.t_ns, point.loss)
        yield from _counter(group, "accuracy", "%", point.t_ns, point.accuracy)


def _events(reader: ReportSource, low_ns: int, high_ns: int) -> Iterator[Item]:
    scale = _scale(reader)
    for event in reader.events(low_ns, high_ns):
        is_mark = event.kind == "mark"
        name = event.text if is_mark else f"{event.kind}: {event.text}"
        yield Instant(_MARKS if is_mark else _EVENTS, event.t_ns * scale, name, {}, everywhere=is_mark)


def _training(reader: ReportSource, groups: _Groups) -> Iterator[Item]:
    """Yield every training step that a program reported, and what tensors held meanwhile."""
    for row in reader.training():
        track, start_ns = Track(groups[row.pid], "training steps"), row.start_ns
        for step, end_ns in enumerate(reader.training_progress(row).ends_ns.tolist(), row.first_step):
            yield Slice(track, start_ns, end_ns, f"step {step}", {"step": step})
            start_ns = end_ns
    for row in chain.from_iterable(reader.training(device=device) for device in reader.training_devices()):
        usage = reader.training_progress(row).usage
        track = Track(groups[row.pid], f"tensors on {row.device}", "bytes", _BYTES_KINDS)
        for start_ns, values in zip(usage.start_ns.tolist(), usage.usage_bytes.tolist(), strict=True):
            yield Counter(track, start_ns, tuple(values))


def _recorded_steps(reader: ReportSource, groups: _Groups) -> Iterator[Item]:
    """Yield the steps with every allocation: their phases, and what was allocated after each row."""
    scale = _scale(reader)
    for step in reader.allocation_steps():
        group = groups[step.pid]
        suffix = "" if step.device == MAIN_MEMORY else f" on {step.device}"
        args: dict[str, Value] = {"peak_bytes": step.peak_bytes, "start_bytes": step.start_bytes, "rows": step.rows}
        args |= _without_none({"peak_op": step.peak_op, "peak_layer": step.peak_layer, "cost_ns": step.cost_ns})
        args |= _without_none({name: getattr(step, name) for name in ("allocated_peak_bytes", "reserved_peak_bytes")})
        extent = (step.start_ns * scale, step.end_ns * scale)
        yield Slice(Track(group, f"recorded steps{suffix}"), *extent, f"step {step.step}", args)
        trace = reader.step_trace(step)
        yield from _phases(Track(group, f"phases{suffix}"), trace, scale)
        yield from _allocated(Track(group, f"allocated on {step.device}", "bytes", _BYTES_KINDS), trace, scale)
        yield from _allocator(group, step, scale)
    for memory in reader.driver_memory():
        for name, value in (("free", memory.free_bytes), ("total", memory.total_bytes)):
            yield from _counter(DEVICES, f"GPU memory {name}", "bytes", memory.t_ns * scale, value)


def _phases(track: Track, trace: StepTrace, scale: int) -> Iterator[Item]:
    """Yield stretches of rows of one phase: each lasts until the first row of the next."""
    phase, t_ns = trace.phase[trace.existing :], trace.t_ns[trace.existing :]
    if not len(phase):
        return
    first = np.flatnonzero(np.diff(phase, prepend=-1))
    starts_ns = [*t_ns[first].tolist(), trace.end_ns]
    for number, (start_ns, end_ns) in zip(phase[first].tolist(), pairwise(starts_ns), strict=True):
        yield Slice(track, start_ns * scale, end_ns * scale, PHASES[number], {"step": trace.step})


def _allocated(track: Track, trace: StepTrace, scale: int) -> Iterator[Item]:
    """Yield the allocated bytes by kind: once for all that existed before the step, then after each row."""
    first = max(trace.existing - 1, 0)
    for t_ns, values in zip(trace.t_ns[first:].tolist(), trace.by_category()[first:].tolist(), strict=True):
        yield Counter(track, t_ns * scale, tuple(values))


def _allocator(group: Group, step: RecordedStep, scale: int) -> Iterator[Item]:
    for name, value in (("allocated", step.allocated_peak_bytes), ("reserved", step.reserved_peak_bytes)):
        title = f"allocator of {step.device}: peak {name} in a recorded step"
        yield from _counter(group, title, "bytes", step.start_ns * scale, value)


def _scale(reader: ReportSource) -> int:
    """Return nanoseconds per unit of time: numbers of lines are shown as microseconds."""
    about = reader.imported()
    return MICROSECOND_NS if about is not None and about.counts else 1
