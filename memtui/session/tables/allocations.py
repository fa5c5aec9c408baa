"""Recorded training steps as records: their scalars in columns, every allocation in one blob."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES, StepTrace
from memtui.core.text import cut_middle, utf8_safe
from memtui.core.tracer_messages import MAIN_MEMORY, AllocationStep
from memtui.core.units import size
from memtui.session.blobs import list_of, pack, unpack
from memtui.session.columns import Json
from memtui.session.validation import check_device, parse_json

MAX_ROWS = 1 << 22  # allocations and frees of one step
MAX_NAMES_BYTES = 16 << 20
MAX_REASON = 500  # characters
COLUMNS = 7  # of a trace
_MOST_CHARACTERS, _LEAST_CHARACTERS = 4096, 32  # of a name that is cut
_MOST_ESCAPED = 12  # characters of JSON that stand for one


@dataclass(frozen=True, slots=True)
class AllocationStepColumns(Generic[Json]):
    """The scalars of a recorded training step.

    ``peak_parts``: bytes by category when most was allocated; ``cost_ns``: what recording took.
    """

    id: int
    pid: int
    step: int
    start_ns: int
    end_ns: int
    start_bytes: int
    peak_bytes: int
    peak_op: str
    peak_layer: str
    peak_parts: Json
    rows: int
    cost_ns: int
    dropped: int
    lost: int


@dataclass(frozen=True, slots=True)
class AllocationStepRecord(AllocationStepColumns[str]):
    """A recorded training step with every allocation."""

    data: bytes


@dataclass(frozen=True, slots=True)
class AllocationDeviceRecord:
    """The device of a recorded step, where that is not main memory."""

    id: int
    device: str


@dataclass(frozen=True, slots=True)
class AllocatorPeakRecord:
    """The most that PyTorch's allocator held in a recorded step on a GPU: blocks and segments; None: not known."""

    id: int
    allocated_bytes: int | None
    reserved_bytes: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class RecordedStep(AllocationStepColumns[dict[str, int]]):
    """The scalars of a step.

    Attributes:
        peak_parts: bytes by category when most was allocated.
        device: whose memory it is.
        allocated_peak_bytes: on a GPU, what ``torch.cuda.max_memory_allocated`` counts; None: not known.
        reserved_peak_bytes: on a GPU, what ``torch.cuda.max_memory_reserved`` counts; None: not known.
        allocator_reason: why these are not known.
    """

    device: str = MAIN_MEMORY
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    allocator_reason: str = ""

    @property
    def peak_above_start_bytes(self) -> int:
        """The bytes that the step needs beyond what was allocated before it."""
        return self.peak_bytes - self.start_bytes


def trace_of(message: AllocationStep) -> StepTrace:
    """Return the trace that a process sent, which may be anybody's. Raises ValueError unless it is one of a step."""
    if message.columns.shape[-1] > MAX_ROWS:
        raise ValueError(f"step {message.step} has more than {MAX_ROWS} allocations")
    return StepTrace.from_columns(
        message.columns,
        step=message.step,
        start_ns=message.start_ns,
        end_ns=message.end_ns,
        existing=message.existing,
        names=message.names,
    )


def step_record(number: int, message: AllocationStep) -> AllocationStepRecord:
    """Return the record of a step that a process sent. Raises ValueError."""
    trace = trace_of(message)
    check_device(message.device)
    record = trace_record(number, trace, pid=message.pid)
    return replace(record, cost_ns=message.cost_ns, dropped=message.dropped, lost=message.lost)


def peak_record(number: int, message: AllocationStep) -> AllocatorPeakRecord:
    """Return the record of what a GPU's allocator held in a step that a process sent. Raises ValueError."""
    both = message.allocated_peak_bytes, message.reserved_peak_bytes
    if any(size is not None and (type(size) is not int or not 0 <= size < 1 << 62) for size in both):
        raise ValueError("the peak of an allocator is not a number of bytes")
    if not isinstance(message.allocator_reason, str):
        raise ValueError("the reason for an unknown peak is not text")
    return AllocatorPeakRecord(number, *both, utf8_safe(message.allocator_reason[:MAX_REASON]))


def layer_types(message: AllocationStep) -> dict[str, str]:
    """Return the class of each layer that a process sent. Raises ValueError."""
    types = message.layer_types
    if not isinstance(types, dict) or not all(isinstance(text, str) for pair in types.items() for text in pair):
        raise ValueError("the classes of layers are not texts by name")
    if sum(map(len, (*types, *types.values()))) > MAX_NAMES_BYTES:
        raise ValueError("the classes of its layers are too long")
    return {utf8_safe(name): utf8_safe(kind) for name, kind in types.items()}


def trace_record(number: int, trace: StepTrace, *, pid: int = 0) -> AllocationStepRecord:
    """Return the record of a trace that is known to be sound."""
    peak = trace.peak_row
    parts = trace.by_category()[peak].tolist() if peak >= 0 else [0] * len(CATEGORIES)
    return AllocationStepRecord(
        id=number,
        pid=pid,
        step=trace.step,
        start_ns=trace.start_ns,
        end_ns=trace.end_ns,
        start_bytes=trace.start_bytes,
        peak_bytes=trace.peak_bytes,
        peak_op=utf8_safe(trace.name(int(trace.op[peak]))) if peak >= 0 else "",
        peak_layer=utf8_safe(trace.name(int(trace.layer[peak]))) if peak >= 0 else "",
        peak_parts=json.dumps({name: part for name, part in zip(CATEGORIES, parts, strict=True) if part}),
        rows=len(trace.t_ns),
        cost_ns=0,
        dropped=0,
        lost=0,
        data=encode_step(trace),
    )


def recorded_step(*columns: Any, device: str = MAIN_MEMORY, peak: AllocatorPeakRecord | None = None) -> RecordedStep:
    """Return the step of a row whose columns, all but its blob, were checked. Raises ValueError."""
    peaks = (None, None, "") if peak is None else (peak.allocated_bytes, peak.reserved_bytes, peak.reason)
    step = RecordedStep(*(*columns, device, *peaks))
    parts = parse_json(step.peak_parts)  # type: ignore[arg-type]
    if not isinstance(parts, dict) or not all(k in CATEGORIES and type(v) is int and v >= 0 for k, v in parts.items()):
        raise ValueError("peak_parts is not a table of bytes by category")
    return replace(step, peak_parts=parts)


def encode_step(trace: StepTrace) -> bytes:
    """Return a blob of all rows and names, times as differences, which are small. Raises ValueError: see ``pack``."""
    columns = trace.to_columns()
    columns[0] = np.diff(columns[0], prepend=trace.start_ns)
    names = list(map(utf8_safe, trace.names))
    return pack((trace.existing, columns.shape[1]), names, columns, most_names_bytes=MAX_NAMES_BYTES)


def with_short_names(trace: StepTrace) -> tuple[StepTrace, int]:
    """Return a trace whose names fit into a record, and how many characters of each are left; 0: all of them.

    Longer ones are cut in the middle. Raises ValueError where cutting does not help, as there are too many.
    """
    names, characters = list(map(utf8_safe, trace.names)), 2 * _MOST_CHARACTERS
    if _MOST_ESCAPED * sum(map(len, names)) + 4 * len(names) <= MAX_NAMES_BYTES:
        return trace, 0
    while len(json.dumps(names)) > MAX_NAMES_BYTES:
        characters //= 2
        if characters < _LEAST_CHARACTERS:
            raise ValueError(f"has more names of operations and layers than fit into {size(MAX_NAMES_BYTES)}")
        names = [cut_middle(name, characters) for name in names]
    cut = characters <= _MOST_CHARACTERS
    return (replace(trace, names=tuple(names)), characters) if cut else (trace, 0)


def decode_step(row: RecordedStep, data: bytes) -> StepTrace:
    """Undo ``encode_step``. Raises ValueError on damaged data."""
    most = COLUMNS * min(row.rows, MAX_ROWS)
    packed = unpack(data, 2, lambda _, rows: COLUMNS * rows, most_names_bytes=MAX_NAMES_BYTES, most_numbers=most)
    existing, rows = packed.counts
    columns = packed.numbers.reshape(COLUMNS, rows)
    columns[0] = row.start_ns + np.cumsum(columns[0])
    return StepTrace.from_columns(
        columns,
        step=row.step,
        start_ns=row.start_ns,
        end_ns=row.end_ns,
        existing=existing,
        names=list_of(packed.names),
        copy=False,
    )
