"""Recorded steps in the forms of other tools (ZPP text, MXNet's log and its analysis, Chrome traces), and timelines."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES, StepTrace
from memtui.analysis.trace_segments import joined
from memtui.core.errors import UserError
from memtui.core.tracer_messages import MAIN_MEMORY, PINNED_MEMORY
from memtui.formats import chrome_timeline
from memtui.formats import perfetto as perfetto_trace
from memtui.formats.mxnet_tags import compat_key, raw_tag, tag_for
from memtui.formats.zpp import zpp_lines
from memtui.reports.export.timeline import attributes, timeline
from memtui.reports.source import ReportSource
from memtui.session.file_format import SESSION_SUFFIX, SessionError
from memtui.session.tables.allocations import RecordedStep
from memtui.session.tables.imported import ImportedFrom

MIB = 1 << 20
_FOREIGN = re.compile(r"[^\w-]+")
Files = Iterator[tuple[str, Callable[[BinaryIO], Any]]]


def zpp(reader: ReportSource) -> Files:
    """Yield ``*_meta.txt``."""
    for name, steps in _runs(reader):
        yield f"{name}_meta.txt", partial(_write_lines, partial(_zpp, reader, steps))


def mxnet(reader: ReportSource) -> Files:
    """Yield ``*.log``: a line for each allocation, as MXNet's memory patch writes it."""
    about = reader.imported()
    if about is not None and about.sums is not None:
        raise UserError(f"{reader.short_title}: {about.format} knows no single allocation; take --to analysis")
    for name, steps in _runs(reader):
        yield f"{name}.log", partial(_write_lines, partial(_mxnet, reader, steps))


def analysis(reader: ReportSource) -> Files:
    """Yield ``*_ANALYSIS``: the output of ``memory_analysis.py`` of tbd-tools for that log."""
    for name, steps in _runs(reader):
        yield f"{name}_ANALYSIS", partial(_write_lines, partial(_analysis, reader, steps))


def chrome(reader: ReportSource) -> Files:
    """Yield ``*.trace.json``: a recorded session as a whole, and each recorded step as PyTorch's profiler writes it.

    The file of a step has an instant event for each row and a counter by kind.
    """
    if reader.imported() is None:
        lines = partial(chrome_timeline.trace, attributes(reader), _start(reader), timeline(reader))
        yield f"{stem_of(reader)}{chrome_timeline.SUFFIX}", partial(_write_lines, lines)
        if not reader.allocation_steps():
            return
    for name, steps in _runs(reader):
        yield f"{name}{chrome_timeline.SUFFIX}", partial(_write_lines, partial(_chrome, reader, steps))


def perfetto(reader: ReportSource) -> Files:
    """Yield ``*.pftrace``: the session as a whole, imported ones too, in Perfetto's own format."""

    def write(file: BinaryIO) -> None:
        file.writelines(perfetto_trace.trace(attributes(reader), _start(reader), timeline(reader)))

    yield f"{stem_of(reader)}{perfetto_trace.SUFFIX}", write


def stem_of(reader: ReportSource) -> str:
    """Return what the names of exported files begin with."""
    return reader.short_title.removesuffix(SESSION_SUFFIX)


def file_part(name: str) -> str:
    """Return a name, as of a device, as a part of the name of a file."""
    return _FOREIGN.sub("-", name)


def _start(reader: ReportSource) -> tuple[int, int | None]:
    """Return the start of a session on CLOCK_MONOTONIC and in nanoseconds since 1970, where that is known."""
    clock = reader.hello.clock
    return clock.monotonic_ns, clock.wall_ns or None


def _runs(reader: ReportSource) -> Iterator[tuple[str, list[RecordedStep]]]:
    """Yield (name of a file, its steps): a step of a traced program, or all steps of a device of an imported file."""
    steps = reader.allocation_steps()
    if not steps:
        raise UserError(f"{reader.short_title}: has no recorded step; memtui trace and memtui import record some")
    pids, devices = {step.pid for step in steps}, {step.device for step in steps}
    runs: dict[str, list[RecordedStep]] = {}
    for step in steps:
        parts = [stem_of(reader)]
        parts += [f"pid-{step.pid}"] * (len(pids) > 1)
        parts += [file_part(step.device)] * (len(devices) > 1)
        parts += [f"step-{step.step}"] * (reader.imported() is None)
        runs.setdefault("-".join(parts), []).append(step)
    yield from runs.items()


def _since_epoch_ns(reader: ReportSource) -> int:
    clock = reader.hello.clock
    return clock.wall_offset_ns if clock.wall_ns else 0


def _single_trace(reader: ReportSource, steps: list[RecordedStep]) -> StepTrace:
    """Return the steps of a file as one trace."""
    about, trace = reader.imported(), _joined(reader, steps)
    if about is None or not about.counts:
        return trace
    # Numbers of lines: forms with microseconds have them as microseconds.
    return replace(trace, t_ns=trace.t_ns * 1000, start_ns=trace.start_ns * 1000, end_ns=trace.end_ns * 1000)


def _joined(reader: ReportSource, steps: list[RecordedStep]) -> StepTrace:
    try:
        return joined([reader.step_trace(step) for step in steps])
    except ValueError as error:
        raise SessionError(f"{reader.short_title}: is damaged: {error}") from None


def _zpp(reader: ReportSource, steps: list[RecordedStep]) -> Iterator[str]:
    return zpp_lines(_single_trace(reader, steps), _since_epoch_ns(reader))


def tag_of(trace: StepTrace, row: int, about: ImportedFrom | None) -> str:
    """Return the tag of an allocation: the tag in its log, or the tag that MXNet's patch would have given it."""
    op = trace.name(int(trace.op[row]))
    if about is not None and about.driver:
        return op
    return tag_for(int(trace.category[row]), trace.name(int(trace.layer[row])), op)


def _tagged(reader: ReportSource, steps: list[RecordedStep]) -> Iterator[tuple[int, int, str]]:
    """Yield (time, bytes, tag) of every allocation, those from before the step included."""
    about, trace = reader.imported(), _joined(reader, steps)
    for row in np.flatnonzero(trace.delta_bytes > 0).tolist():
        yield int(trace.t_ns[row]), int(trace.delta_bytes[row]), tag_of(trace, row, about)


def _mxnet(reader: ReportSource, steps: list[RecordedStep]) -> Iterator[str]:
    about = reader.imported()
    coarse = Counter(about.coarse if about is not None else ())
    others = _other_lines(reader) if about is not None and about.driver else deque()
    for t_ns, size, tag in _tagged(reader, steps):
        while others and others[0][0] <= t_ns:
            yield others.popleft()[1]
        if coarse[tag] and size % MIB == 0:
            coarse[tag] -= 1
            yield f"Allocate {size // MIB} MB GPU memory ({tag}).\n"
        else:
            yield f"[mem] Allocate {size} bytes GPU memory ({tag}).\n"
    yield from (line for _, line in others)


def _other_lines(reader: ReportSource) -> deque[tuple[int, str]]:
    """Return the lines of an imported log besides its allocations, with their numbers."""
    free = "[mem] {} MB GPU global memory free, total {} MB.\n"
    lines = [(row.t_ns, free.format(row.free_bytes // MIB, row.total_bytes // MIB)) for row in reader.driver_memory()]
    lines += [(event.t_ns, f"[trace] {event.text}\n") for event in reader.events(0, 1 << 62) if event.kind == "mark"]
    return deque(sorted(lines))


def _analysis(reader: ReportSource, steps: list[RecordedStep]) -> Iterator[str]:
    """Yield the JSON by category of the original tool, which drops unknown allocations."""
    about = reader.imported()
    by_key: dict[str, list[Any]] = {}
    if about is not None and about.sums is not None:
        by_key = {key: [total, list(tags)] for key, (total, tags) in about.sums.items()}
    else:
        for _, size, tag in _tagged(reader, steps):
            raw = raw_tag(tag)
            key = compat_key(raw)
            if key is not None:
                of_key = by_key.setdefault(key, [0.0, []])
                of_key[0] += float(size)
                of_key[1].append(raw)
    yield json.dumps(by_key, indent=2)


def _chrome(reader: ReportSource, steps: list[RecordedStep]) -> Iterator[str]:
    trace, device = _single_trace(reader, steps), steps[0].device
    base_ns = max(0, trace.start_ns + _since_epoch_ns(reader))
    number = re.search(r":(\d{1,4})$", device, re.ASCII)
    device_type, device_id = (0, -1) if device in (MAIN_MEMORY, PINNED_MEMORY) else (1, int(number[1]) if number else 0)
    head = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": base_ns, "profile_memory": 1}
    yield json.dumps(head)[:-1] + ', "traceEvents": [\n'
    usage, by_category = trace.usage_bytes.tolist(), trace.by_category().tolist()
    delta, block = trace.delta_bytes.tolist(), trace.block.tolist()
    for row, t_ns in enumerate(trace.t_ns.tolist()):
        common = {"pid": steps[0].pid, "tid": steps[0].pid, "ts": (t_ns - trace.start_ns) / 1000}
        arguments = {
            "Bytes": delta[row],
            "Total Allocated": usage[row],
            "Total Reserved": 0,
            "Addr": block[row] + 1,  # no address is known, and a number identifies a block as well
            "Device Type": device_type,
            "Device Id": device_id,
            "Operator": trace.name(int(trace.op[row])),
            "Layer": trace.name(int(trace.layer[row])),
        }
        memory = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **common, "args": arguments}
        by_kind = dict(zip(CATEGORIES, by_category[row], strict=True))
        counter = {"ph": "C", "name": f"bytes held on {device}", **common, "args": by_kind}
        comma = "" if row + 1 == len(trace) else ","
        yield f"{json.dumps(memory)},\n{json.dumps(counter)}{comma}\n"
    yield "]}\n"


def _write_lines(lines: Callable[[], Iterator[str]], file: BinaryIO) -> None:
    for line in lines():
        file.write(line.encode())
