"""Recorded training steps as rows: their scalars in columns, every allocation in one blob."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES, StepTrace
from memtui.core.samples import MAIN_MEMORY, AllocationStep
from memtui.core.text import storable
from memtui.session.blobs import list_of, pack, unpack
from memtui.session.validation import check_device, parse_json

MAX_ROWS = 1 << 22  # allocations and frees of one step
MAX_NAMES_BYTES = 16 << 20
COLUMNS = 7  # of a trace
KINDS = "iiiiiiittt" + "iiii"


class RecordedStep(NamedTuple):
    """The scalars of a step. ``peak_parts``: bytes by category when most was held; ``cost_ns``: what recording took."""

    id: int
    pid: int
    step: int
    start_ns: int
    end_ns: int
    start_bytes: int
    peak_bytes: int
    peak_op: str
    peak_layer: str
    peak_parts: dict[str, int]
    rows: int
    cost_ns: int
    dropped: int
    lost: int
    device: str = MAIN_MEMORY

    @property
    def peak_above_start_bytes(self) -> int:
        """What the step needs beyond what was held before it."""
        return self.peak_bytes - self.start_bytes


SCALARS = ", ".join(field for field in RecordedStep._fields if field != "device")


def trace_of(message: AllocationStep) -> StepTrace:
    """Return what a process sent. It may be anybody's: raises ValueError where it is no trace of a step."""
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


def step_row(number: int, message: AllocationStep) -> tuple[object, ...]:
    """Return a row of the table. Raises ValueError."""
    trace = trace_of(message)
    check_device(message.device)
    peak = trace.peak_row
    parts = trace.by_category()[peak].tolist() if peak >= 0 else [0] * len(CATEGORIES)

    scalars = RecordedStep(
        number,
        message.pid,
        trace.step,
        trace.start_ns,
        trace.end_ns,
        trace.start_bytes,
        trace.peak_bytes,
        storable(trace.name(int(trace.op[peak]))) if peak >= 0 else "",
        storable(trace.name(int(trace.layer[peak]))) if peak >= 0 else "",
        {},
        len(trace.t_ns),
        message.cost_ns,
        message.dropped,
        message.lost,
    )
    held = json.dumps({category: part for category, part in zip(CATEGORIES, parts, strict=True) if part})
    return (*scalars._replace(peak_parts=held)[:-1], encode_step(trace))  # type: ignore[arg-type]


def recorded_step(row: tuple[object, ...]) -> RecordedStep:
    """Return the scalars of a row whose columns were checked against ``KINDS``. Raises ValueError."""
    found = RecordedStep(*row)  # type: ignore[arg-type]
    parts = parse_json(found.peak_parts)  # type: ignore[arg-type]
    if not isinstance(parts, dict) or not all(k in CATEGORIES and type(v) is int and v >= 0 for k, v in parts.items()):
        raise ValueError("peak_parts is not a table of bytes by category")
    return found._replace(peak_parts=parts)


def encode_step(trace: StepTrace) -> bytes:
    """All rows and names. Times as differences, which are small."""
    columns = trace.to_columns().copy()
    columns[0] = np.diff(columns[0], prepend=trace.start_ns)
    return pack((trace.existing, columns.shape[1]), list(map(storable, trace.names)), columns)


def decode_step(row: RecordedStep, data: bytes) -> StepTrace:
    """Inverse of ``encode_step``. Raises ValueError on damaged data."""
    most = COLUMNS * min(row.rows, MAX_ROWS)
    found = unpack(data, 2, lambda _, rows: COLUMNS * rows, most_names_bytes=MAX_NAMES_BYTES, most_numbers=most)
    existing, rows = found.counts
    columns = found.numbers.reshape(COLUMNS, rows)
    columns[0] = row.start_ns + np.cumsum(columns[0])
    return StepTrace.from_columns(
        columns,
        step=row.step,
        start_ns=row.start_ns,
        end_ns=row.end_ns,
        existing=existing,
        names=list_of(found.names),
        copy=False,
    )
