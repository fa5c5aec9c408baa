"""The recorded steps of a session: the memory at their peak, by category, and its largest blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_pages import UNKNOWN, TensorMap
from memtui.core.fast_numpy import median
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.core.units import size
from memtui.reports.source import ReportSource
from memtui.session.tables.allocations import RecordedStep

LARGEST = 3  # blocks with a name in the report
LITTLE = 0.01  # of the device with the most: less has no lines of its own
MAIN_LABEL = "main memory"


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
class AllocatorSummary:
    """What PyTorch's allocator for a GPU held at most in any of the recorded steps.

    Attributes:
        allocated_bytes: its blocks, as ``torch.cuda.max_memory_allocated`` counts; None: not known.
        reserved_bytes: its segments, as ``torch.cuda.max_memory_reserved`` counts; None: not known.
        unknown_steps: number of steps in which they are not known.
        reason: why they are not known in the last of these.
    """

    allocated_bytes: int | None
    reserved_bytes: int | None
    unknown_steps: int
    reason: str


@dataclass(frozen=True, slots=True)
class AllocationSummary:
    """Recorded steps of one device.

    Attributes:
        steps: number of steps that were recorded whole.
        pids: their processes.
        peak_bytes: their peak memory; on a GPU, of what was requested.
        allocator: what the allocator of a GPU held for it; None: main memory, or nothing is known of it.
        at_peak: the moment of the highest peak.
        recording_ns: median time that recording added to a step.
        lost_steps: number of steps that were lost.
    """

    steps: int
    pids: tuple[int, ...]
    peak_bytes: PeakBytes
    allocator: AllocatorSummary | None
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
        allocator=_allocator_summary(steps),
        at_peak=_moment_of_peak(reader, most),
        recording_ns=median(np.array([step.cost_ns for step in steps])),
        lost_steps=sum(step.lost for step in steps),
    )


def _allocator_summary(steps: Sequence[RecordedStep]) -> AllocatorSummary | None:
    measured = [step for step in steps if step.allocated_peak_bytes is not None]
    unknown = [step for step in steps if step.allocated_peak_bytes is None and step.allocator_reason]
    if not measured and not unknown:
        return None
    return AllocatorSummary(
        allocated_bytes=max((step.allocated_peak_bytes or 0 for step in measured), default=None),
        reserved_bytes=max((step.reserved_peak_bytes or 0 for step in measured), default=None),
        unknown_steps=len(steps) - len(measured),
        reason=unknown[-1].allocator_reason if unknown else "",
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


def of_it(most: LargestTensor | None, whole_bytes: float = math.inf) -> str:
    """Return the largest tensor of a sum as text: " (97.7 MiB of it int64[200000, 64] of TensorDataset.tensors)".

    ``whole_bytes``: the sum, which is smaller than its largest tensor where it is a mean of moments without that one.
    """
    if most is None:
        return ""
    return f" ({size(most.size_bytes) if most.size_bytes <= whole_bytes else 'most'} of it {most.part})"


def by_device(
    main: AllocationSummary | None, others: Mapping[str, AllocationSummary | None]
) -> list[tuple[str, AllocationSummary]]:
    """Return the devices with recorded steps, the one with the highest peak first."""
    recorded = [(device, summary) for device, summary in {MAIN_MEMORY: main, **others}.items() if summary is not None]
    return sorted(recorded, key=lambda entry: -entry[1].peak_bytes.max)


def device_lines(
    main: AllocationSummary | None, others: Mapping[str, AllocationSummary | None], what: str = "training step"
) -> list[str]:
    """Return the lines of all devices; main memory has one line where a GPU holds nearly everything."""
    lines: list[str] = []
    devices = by_device(main, others)
    for device, summary in devices:
        first, most = devices[0][0], devices[0][1].peak_bytes.max
        label = MAIN_LABEL if device == MAIN_MEMORY else device
        if device == first:
            lines += allocation_lines(summary, what, "" if device == MAIN_MEMORY else device)
        elif device == MAIN_MEMORY and summary.peak_bytes.max < LITTLE * most:
            text = f"peak {size(summary.peak_bytes.max)}, below {LITTLE:.0%} of that of {first}".replace("%", " %")
            lines.append(f"{label:<12} {text}")
        else:
            lines += [f"{label:<12} {line[13:]}" for line in allocation_lines(summary, what)]
    return lines


def allocation_lines(summary: AllocationSummary, what: str = "training step", device: str = "") -> list[str]:
    """Return the lines of one device. ``what``: name of the recorded stretches, in the singular."""
    peak = summary.at_peak
    count = f"{summary.steps} {what}{'' if summary.steps == 1 else 'es' if what.endswith('h') else 's'}"
    nowhere = "the start of the step" if peak.at_begin else "an operator that is not known"
    where = nowhere if peak.at_begin else _operator(peak.op, peak.layer) or nowhere
    requested = " requested" if summary.allocator is not None else ""
    lost = f"; {summary.lost_steps} more were lost" if summary.lost_steps else ""
    largest = ", ".join(
        f"{_operator(block.op, block.layer) or 'unknown'} {size(block.size_bytes)} ({block.category})"
        for block in peak.largest
    )
    return [
        f"allocations  {f'{device}: ' if device else ''}{count} recorded: peak {size(summary.peak_bytes.median)}"
        f"{requested} in the median, at most {size(summary.peak_bytes.max)} in step {peak.step}, at {where}"
        f"{_allocator_clause(summary.allocator)}{lost}",
        f"at the peak  {', '.join(_parts(peak))}",
        *([f"largest new  {largest}"] if largest else []),
    ]


def _parts(peak: PeakMoment) -> list[str]:
    """Return the memory by category as text, the largest first."""
    by_size = sorted(peak.bytes.items(), key=lambda part: -part[1])
    most = {CATEGORIES[UNKNOWN]: peak.most_unknown}
    return [f"{category} {size(part)}{of_it(most.get(category))}" for category, part in by_size]


def _allocator_clause(allocator: AllocatorSummary | None) -> str:
    if allocator is None:
        return ""
    if allocator.allocated_bytes is None:
        return f"; allocated n/a: {allocator.reason}"
    but = f" (n/a in {allocator.unknown_steps} of the steps)" if allocator.unknown_steps else ""
    reserved = f", reserved {size(allocator.reserved_bytes)}"
    return f"; allocated {size(allocator.allocated_bytes)} (max_memory_allocated){reserved}{but}"


def _operator(op: str, layer: str) -> str:
    """Return an operator with its layer; empty where neither is known."""
    name = op.rpartition("/")[2]
    return f"{name or 'an unknown operator'} in layer {layer}" if layer else name
