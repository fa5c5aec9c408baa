"""The recorded steps of a session: the memory at their peak, by category, and its largest blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.fast_numpy import median
from memtui.analysis.tensor_pages import UNKNOWN, TensorMap
from memtui.core.samples import MAIN_MEMORY
from memtui.core.units import size
from memtui.reports.source import ReportSource
from memtui.session.records.allocations import RecordedStep

LARGEST = 3  # blocks with a name in the report


@dataclass(frozen=True, slots=True)
class PeakBytes:
    """The peak memory of a recorded step: median and maximum over the steps."""

    median: float
    max: int


@dataclass(frozen=True, slots=True)
class LargeBlock:
    """A block that a step allocated itself. ``layer`` is empty where it was allocated outside a layer."""

    op: str
    layer: str
    category: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LargestTensor:
    """The largest tensor of a sum: its type, its shape and the part of the program that owns it."""

    part: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PeakMoment:
    """The moment of the peak.

    Attributes:
        pid, step: process and number of the step.
        op, layer: the last operator before the peak; it may have added little.
        bytes: allocated memory by category.
        at_begin: whether the peak is the memory from before the step.
        largest: the largest blocks that the step had allocated itself by then.
        most_unknown: the largest tensor that belongs to no model and no optimiser.
    """

    pid: int
    step: int
    op: str
    layer: str
    bytes: Mapping[str, int]
    at_begin: bool
    largest: tuple[LargeBlock, ...]
    most_unknown: LargestTensor | None


@dataclass(frozen=True, slots=True)
class AllocationSummary:
    """Recorded steps of one device.

    Attributes:
        steps: number of steps that were recorded whole.
        pids: their processes.
        peak_bytes: their peak memory.
        at_peak: the moment of the highest peak.
        recording_ns: median time that recording added to a step.
        lost_steps: number of steps that were lost.
    """

    steps: int
    pids: tuple[int, ...]
    peak_bytes: PeakBytes
    at_peak: PeakMoment
    recording_ns: float
    lost_steps: int


def allocation_summary(reader: ReportSource, steps: Sequence[RecordedStep]) -> AllocationSummary | None:
    """Return the memory at the peak of some recorded steps; None without steps.

    Raises:
        SessionError: the session is damaged.
    """
    if not steps:
        return None
    most = max(steps, key=lambda step: step.peak_bytes)
    return AllocationSummary(
        steps=len(steps),
        pids=tuple(sorted({step.pid for step in steps})),
        peak_bytes=PeakBytes(median(np.array([step.peak_bytes for step in steps])), most.peak_bytes),
        at_peak=_moment_of_peak(reader, most),
        recording_ns=median(np.array([step.cost_ns for step in steps])),
        lost_steps=sum(step.lost for step in steps),
    )


def _moment_of_peak(reader: ReportSource, step: RecordedStep) -> PeakMoment:
    trace = reader.step_trace(step)
    blocks = [block for block in trace.new_blocks(trace.peak_row) if block.size_bytes] if trace.peak_row >= 0 else []
    return PeakMoment(
        pid=step.pid,
        step=step.step,
        op=step.peak_op,
        layer=step.peak_layer,
        bytes=step.peak_parts,
        at_begin=trace.peak_row < 0 or trace.peak_row < trace.existing,
        largest=tuple(
            LargeBlock(trace.name(block.op), trace.name(block.layer), CATEGORIES[block.category], block.size_bytes)
            for block in blocks[:LARGEST]
        ),
        most_unknown=_most_unknown(reader, step),
    )


def _most_unknown(reader: ReportSource, step: RecordedStep) -> LargestTensor | None:
    """Return the largest tensor that belongs to no model and no optimiser, as reported around that step."""
    if step.device != MAIN_MEMORY or CATEGORIES[UNKNOWN] not in step.peak_parts:
        return None
    maps = [tensors for pid, _, tensors in reader.tensor_maps() if pid == step.pid]
    most = largest_unknown(maps[-1]) if maps else None
    unknown_bytes = step.peak_parts[CATEGORIES[UNKNOWN]]
    return most if most is not None and unknown_bytes <= 2 * most.size_bytes <= 2 * unknown_bytes else None


def largest_unknown(tensors: TensorMap) -> LargestTensor | None:
    """Return the largest tensor of no model and no optimiser: it has a type, a shape and perhaps a data set."""
    most = tensors.most_of(UNKNOWN)
    return None if most is None else LargestTensor(*most)


def of_it(most: LargestTensor | None) -> str:
    """Return the largest tensor of a sum as text: " (97.7 MiB of it int64[200000, 64] of TensorDataset.tensors)"."""
    return f" ({size(most.size_bytes)} of it {most.part})" if most else ""


def allocation_lines(summary: AllocationSummary | None, what: str = "training step") -> list[str]:
    """Return the lines of the report. ``what``: name of the recorded stretches, in the singular."""
    if summary is None:
        return []
    peak = summary.at_peak
    count = f"{summary.steps} {what}{'' if summary.steps == 1 else 'es' if what.endswith('h') else 's'}"
    nowhere = "the begin of the step" if peak.at_begin else "an operator that is not known"
    where = _operator(peak.op, peak.layer) or nowhere
    lost = f"; {summary.lost_steps} more were lost" if summary.lost_steps else ""
    largest = ", ".join(
        f"{_operator(block.op, block.layer) or 'unknown'} {size(block.size_bytes)} ({block.category})"
        for block in peak.largest
    )
    return [
        f"allocations  {count} recorded: peak {size(summary.peak_bytes.median)} in the median, at most "
        f"{size(summary.peak_bytes.max)} in step {peak.step}, at {where}{lost}",
        f"at the peak  {', '.join(_parts(peak))}",
        *([f"largest new  {largest}"] if largest else []),
    ]


def _parts(peak: PeakMoment) -> list[str]:
    """Return the memory by category as text, the largest first."""
    by_size = sorted(peak.bytes.items(), key=lambda part: -part[1])
    most = {CATEGORIES[UNKNOWN]: peak.most_unknown}
    return [f"{category} {size(part)}{of_it(most.get(category))}" for category, part in by_size]


def _operator(op: str, layer: str) -> str:
    return op.rpartition("/")[2] + (f" in layer {layer}" if layer else "")
