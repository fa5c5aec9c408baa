"""Recorded steps in the forms of other tools: ZPP text, MXNet's log and its analysis, a Chrome trace."""

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
from memtui.core.samples import MAIN_MEMORY
from memtui.formats.mxnet_tags import compat_key, raw_tag, tag_for
from memtui.formats.zpp import zpp_lines
from memtui.reports.source import ReportSource
from memtui.session.file_format import SessionError
from memtui.session.records.allocations import RecordedStep
from memtui.session.records.imported import ImportedFrom

MIB = 1 << 20
_FOREIGN = re.compile(r"[^\w-]+")
Files = Iterator[tuple[str, Callable[[BinaryIO], Any]]]


def zpp(reader: ReportSource) -> Files:
    """``*_meta.txt``."""
    for name, steps in _runs(reader):
        yield f"{name}_meta.txt", partial(_write_lines, partial(_zpp, reader, steps))


def mxnet(reader: ReportSource) -> Files:
    """``*.log``: a line for each allocation, as MXNet's memory patch writes it."""
    about = reader.imported()
    if about is not None and about.sums is not None:
        raise UserError(f"{reader.short_title}: {about.format} knows no single allocation; take --to analysis")
    for name, steps in _runs(reader):
        yield f"{name}.log", partial(_write_lines, partial(_mxnet, reader, steps))


def analysis(reader: ReportSource) -> Files:
    """``*_ANALYSIS``: what ``memory_analysis.py`` of tbd-tools makes of that log."""
    for name, steps in _runs(reader):
        yield f"{name}_ANALYSIS", partial(_write_lines, partial(_analysis, reader, steps))


def chrome(reader: ReportSource) -> Files:
    """``*.trace.json``: an instant event for each row, as PyTorch's profiler has it, and a counter by kind."""
    for name, steps in _runs(reader):
        yield f"{name}.trace.json", partial(_write_lines, partial(_chrome, reader, steps))


def _runs(reader: ReportSource) -> Iterator[tuple[str, list[RecordedStep]]]:
    """Name of a file, and the steps in it: one of a traced program, all that a file of another tool had of a device."""
    found = reader.allocation_steps()
    if not found:
        raise UserError(f"{reader.short_title}: has no recorded step; memtui trace and memtui import record some")
    pids, devices = {step.pid for step in found}, {step.device for step in found}
    runs: dict[str, list[RecordedStep]] = {}
    for step in found:
        words = [reader.short_title.removesuffix(".memtui")]
        words += [f"pid-{step.pid}"] * (len(pids) > 1)
        words += [_FOREIGN.sub("-", step.device)] * (len(devices) > 1)
        words += [f"step-{step.step}"] * (reader.imported() is None)
        runs.setdefault("-".join(words), []).append(step)
    yield from runs.items()


def _since_epoch_ns(reader: ReportSource) -> int:
    clock = reader.hello.clock
    return clock.wall_ns - clock.monotonic_ns if clock.wall_ns else 0


def _whole(reader: ReportSource, steps: list[RecordedStep]) -> StepTrace:
    """One step, or what a file of another tool had, in one piece."""
    about, trace = reader.imported(), _joined(reader, steps)
    if about is None or not about.counts:
        return trace
    # Numbers of lines: forms that want microseconds count them as such.
    return replace(trace, t_ns=trace.t_ns * 1000, start_ns=trace.start_ns * 1000, end_ns=trace.end_ns * 1000)


def _joined(reader: ReportSource, steps: list[RecordedStep]) -> StepTrace:
    try:
        return joined([reader.step_trace(step) for step in steps])
    except ValueError as error:
        raise SessionError(f"{reader.short_title}: is damaged: {error}") from None


def _zpp(reader: ReportSource, steps: list[RecordedStep]) -> Iterator[str]:
    return zpp_lines(_whole(reader, steps), _since_epoch_ns(reader))


def tag_of(trace: StepTrace, row: int, about: ImportedFrom | None) -> str:
    """Return the tag of an allocation: that of the log it is from, else what MXNet's patch would have called it."""
    op = trace.name(int(trace.op[row]))
    if about is not None and about.driver:
        return op
    return tag_for(int(trace.category[row]), trace.name(int(trace.layer[row])), op)


def _tagged(reader: ReportSource, steps: list[RecordedStep]) -> Iterator[tuple[int, int, str]]:
    """(time, bytes, tag) of every allocation, what was there before included."""
    about, trace = reader.imported(), _joined(reader, steps)
    for row in np.flatnonzero(trace.delta_bytes > 0).tolist():
        yield int(trace.t_ns[row]), int(trace.delta_bytes[row]), tag_of(trace, row, about)


def _mxnet(reader: ReportSource, steps: list[RecordedStep]) -> Iterator[str]:
    about = reader.imported()
    coarse = Counter(about.coarse if about is not None else ())
    said = _said(reader) if about is not None and about.driver else deque()
    for t_ns, size, tag in _tagged(reader, steps):
        while said and said[0][0] <= t_ns:
            yield said.popleft()[1]
        if coarse[tag] and size % MIB == 0:
            coarse[tag] -= 1
            yield f"Allocate {size // MIB} MB GPU memory ({tag}).\n"
        else:
            yield f"[mem] Allocate {size} bytes GPU memory ({tag}).\n"
    yield from (line for _, line in said)


def _said(reader: ReportSource) -> deque[tuple[int, str]]:
    """Lines of an imported log besides its allocations, with their numbers."""
    free = "[mem] {} MB GPU global memory free, total {} MB.\n"
    found = [(one.t_ns, free.format(one.free_bytes // MIB, one.total_bytes // MIB)) for one in reader.driver_memory()]
    found += [(one.t_ns, f"[trace] {one.text}\n") for one in reader.events(0, 1 << 62) if one.kind == "mark"]
    return deque(sorted(found))


def _analysis(reader: ReportSource, steps: list[RecordedStep]) -> Iterator[str]:
    """JSON by category of the original, which drops what it does not know."""
    about = reader.imported()
    found: dict[str, list[Any]] = {}
    if about is not None and about.sums is not None:
        found = {key: [total, list(tags)] for key, (total, tags) in about.sums.items()}
    else:
        for _, size, tag in _tagged(reader, steps):
            raw = raw_tag(tag)
            key = compat_key(raw)
            if key is not None:
                one = found.setdefault(key, [0.0, []])
                one[0] += float(size)
                one[1].append(raw)
    yield json.dumps(found, indent=2)


def _chrome(reader: ReportSource, steps: list[RecordedStep]) -> Iterator[str]:
    trace, device = _whole(reader, steps), steps[0].device
    base_ns = max(0, trace.start_ns + _since_epoch_ns(reader))
    number = re.search(r":(\d{1,4})$", device, re.ASCII)
    place = (0, -1) if device == MAIN_MEMORY else (1, int(number[1]) if number else 0)
    head = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": base_ns, "profile_memory": 1}
    yield json.dumps(head)[:-1] + ', "traceEvents": [\n'
    usage, held = trace.usage_bytes.tolist(), trace.by_category().tolist()
    delta, block = trace.delta_bytes.tolist(), trace.block.tolist()
    for row, t_ns in enumerate(trace.t_ns.tolist()):
        common = {"pid": steps[0].pid, "tid": steps[0].pid, "ts": (t_ns - trace.start_ns) / 1000}
        told = {
            "Bytes": delta[row],
            "Total Allocated": usage[row],
            "Total Reserved": 0,
            "Addr": block[row] + 1,  # no address is known, and a number tells blocks apart as well
            "Device Type": place[0],
            "Device Id": place[1],
            "Operator": trace.name(int(trace.op[row])),
            "Layer": trace.name(int(trace.layer[row])),
        }
        memory = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **common, "args": told}
        by_kind = dict(zip(CATEGORIES, held[row], strict=True))
        counter = {"ph": "C", "name": f"bytes held on {device}", **common, "args": by_kind}
        comma = "" if row + 1 == len(trace) else ","
        yield f"{json.dumps(memory)},\n{json.dumps(counter)}{comma}\n"
    yield "]}\n"


def _write_lines(lines: Callable[[], Iterator[str]], file: BinaryIO) -> None:
    for line in lines():
        file.write(line.encode())
