"""Bytes by call stack for viewers of profiles: folded stacks (flamegraph.pl) and speedscope."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from memtui._version import __version__
from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.stack_capture import call_text
from memtui.core.call_stacks import CallStacks, Frame
from memtui.core.errors import UserError
from memtui.core.text import printable
from memtui.reports.export.steps import file_part, stem_of
from memtui.reports.source import ReportSource
from memtui.reports.stack_sums import StackSums, stack_sums
from memtui.session.tables.allocations import RecordedStep

Files = Iterator[tuple[str, Callable[[BinaryIO], Any]]]
UNKNOWN, SHARED, OUTSIDE = "(stack not known)", "(blocks of several stacks)", "(outside of all blocks)"
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Bytes by call stack.

    Attributes:
        name: what they are: "peak", "touched".
        stacks: the call stacks.
        values: f8[stacks + 1], bytes of each; the last number is of no known stack.
        others: bytes that are of no single stack, by what they are.
    """

    name: str
    stacks: CallStacks
    values: NDArray[np.float64]
    others: tuple[tuple[str, float], ...] = ()

    def samples(self) -> Iterator[tuple[tuple[Frame, ...], int]]:
        """Yield (calls, the outermost first; bytes) of every stack that has any."""
        rounded = np.rint(self.values).astype(np.int64)
        for number in np.flatnonzero(rounded[:-1]).tolist():
            yield self.stacks.stack(number)[::-1], int(rounded[number])
        for name, value in ((UNKNOWN, float(rounded[-1])), *self.others):
            if round(value):
                yield (Frame(name, "", 0),), round(value)


def folded(reader: ReportSource) -> Files:
    """Yield ``*.folded``, one for each kind of bytes: a line for each stack, ``main;step;make 4096``."""
    stem = stem_of(reader)
    for profile in profiles(reader):
        yield f"{stem}-{profile.name}.folded", partial(_write_folded, profile)


def speedscope(reader: ReportSource) -> Files:
    """Yield ``*.speedscope.json``, with all kinds of bytes as profiles of one file."""
    written, stem = profiles(reader), stem_of(reader)

    def write(file: BinaryIO) -> None:
        file.write(json.dumps(_speedscope(stem, written)).encode())

    yield f"{stem}.speedscope.json", write


def profiles(reader: ReportSource) -> list[Profile]:
    """Return all kinds of bytes by stack that a session has. Raises UserError where it has no call stacks."""
    sums = stack_sums(reader)
    several = len(sums) > 1
    result = [
        profile
        for of_process in sums
        for profile in _of_capture(of_process, f"-{of_process.capture.pid}" if several else "")
    ]
    result = result or list(_of_steps(reader))
    if not result:
        raise UserError(
            f"{reader.short_title}: has no call stacks; sessions of memtui import have them: of a capture of memray, a "
            "CUDA snapshot, a Chrome trace made with with_stack=True"
        )
    result = [profile for profile in result if any(profile.samples())]
    if not result:
        raise UserError(f"{reader.short_title}: has call stacks, and no bytes of any: there is nothing to export")
    return result


def _of_capture(sums: StackSums, which: str) -> Iterator[Profile]:
    stacks = sums.capture.stacks
    yield Profile(f"peak{which}", stacks, sums.peak_bytes)
    yield Profile(f"left{which}", stacks, sums.left_bytes)
    if sums.touched_bytes is not None and sums.passing_bytes is not None:
        others = (SHARED, sums.shared_bytes or 0.0), (OUTSIDE, sums.outside_bytes or 0.0)
        yield Profile(f"touched{which}", stacks, sums.touched_bytes + sums.passing_bytes, others)
    if sums.resident_bytes is not None:
        yield Profile(f"resident{which}", stacks, sums.resident_bytes)


def _of_steps(reader: ReportSource) -> Iterator[Profile]:
    """Yield the peaks of recorded steps that have stacks: of each device the step that held most."""
    fullest: dict[str, RecordedStep] = {}
    for step in reader.allocation_steps():
        if step.device not in fullest or step.peak_bytes > fullest[step.device].peak_bytes:
            fullest[step.device] = step
    stacks: CallStacks | None = None
    for device, step in fullest.items():
        trace = reader.step_trace(step)
        if trace.stack is not None:
            stacks = stacks or reader.call_stacks()
            name = "peak" if len(fullest) == 1 else f"peak-{file_part(device)}"
            yield Profile(name, stacks, _at_peak(trace, trace.stack, len(stacks)))


def _at_peak(trace: StepTrace, stack: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return f8[stacks + 1]: bytes of the blocks that are alive at the peak, by the stack that allocated them."""
    alive = {block.block for block in trace.live_at(trace.peak_row)} if len(trace) else set()
    rows = [row for row in np.flatnonzero(trace.delta_bytes > 0).tolist() if int(trace.block[row]) in alive]
    numbers = np.array(rows, np.int64)
    return np.bincount(stack[numbers] % (count + 1), trace.delta_bytes[numbers], count + 1).astype(float)


def _write_folded(profile: Profile, file: BinaryIO) -> None:
    lines: dict[str, int] = defaultdict(int)
    for calls, value in profile.samples():
        lines[";".join(printable(call_text(call)).replace(";", ",") for call in calls)] += value
    for line, value in sorted(lines.items()):
        file.write(f"{line} {value}\n".encode())


def _speedscope(name: str, profiles: Sequence[Profile]) -> dict[str, Any]:
    numbers: dict[Frame, int] = {}
    written = []
    for profile in profiles:
        samples, weights = [], []
        for calls, value in profile.samples():
            samples.append([numbers.setdefault(call, len(numbers)) for call in calls])
            weights.append(value)
        written.append({
            "type": "sampled",
            "name": profile.name,
            "unit": "bytes",
            "startValue": 0,
            "endValue": sum(weights),
            "samples": samples,
            "weights": weights,
        })  # fmt: skip
    frames = [
        {
            "name": call.function,
            **({"file": call.file} if call.file else {}),
            **({"line": call.line} if call.line else {}),
        }
        for call in numbers
    ]
    return {
        "$schema": _SCHEMA,
        "exporter": f"memtui@{__version__}",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": written,
    }
