"""Training steps that ended, and their tensor memory, as records: scalars in columns, the rest in one blob."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_usage import TensorUsage
from memtui.core.text import utf8_safe
from memtui.core.tracer_messages import MAIN_MEMORY, TrainingProgress
from memtui.session.blobs import list_of, pack, unpack
from memtui.session.validation import check_device

MAX_STEPS = MAX_STRETCHES = 1 << 18  # of one message
MAX_NAMES_BYTES = 1 << 20
_COLUMNS = 4 + len(CATEGORIES)


@dataclass(frozen=True, slots=True)
class TrainingProgressColumns:
    """The scalars of a message about training steps that ended.

    ``peak_bytes``: the peak of the tensor memory; 0: not seen.
    """

    id: int
    pid: int
    first_step: int
    steps: int
    start_ns: int
    end_ns: int
    peak_bytes: int
    view: str
    reason: str
    cost_ns: int


@dataclass(frozen=True, slots=True)
class TrainingProgressRecord(TrainingProgressColumns):
    """A message about training steps with their times, and the tensor memory."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ProgressDeviceRecord:
    """The device of such a message, where that is not main memory."""

    id: int
    device: str


@dataclass(frozen=True, slots=True)
class ProgressRow(TrainingProgressColumns):
    """The scalars of a message, see ``TrainingProgress``."""

    device: str = MAIN_MEMORY


@dataclass(frozen=True, slots=True, eq=False)
class RecordedProgress:
    """A row with the contents of its blob: i8[steps] ends of steps, and the tensor memory."""

    row: ProgressRow
    ends_ns: NDArray[np.int64]
    usage: TensorUsage


def progress_record(number: int, message: TrainingProgress) -> TrainingProgressRecord:
    """Return the record of a message. Raises ValueError for values that are impossible."""
    ends_ns, usage = _checked(message.start_ns, message.ends_ns, TensorUsage.of(message.usage, message.names))
    if message.first < 0:
        raise ValueError(f"step {message.first} is negative")
    check_device(message.device)
    return TrainingProgressRecord(
        id=number,
        pid=message.pid,
        first_step=message.first,
        steps=len(ends_ns),
        start_ns=message.start_ns,
        end_ns=int(ends_ns[-1]),
        peak_bytes=int(usage.total_bytes.max(initial=0)),
        view=utf8_safe(message.view),
        reason=utf8_safe(message.reason),
        cost_ns=message.cost_ns,
        data=encode_progress(message.start_ns, ends_ns, usage),
    )


def _checked(start_ns: int, ends_ns: NDArray[np.int64], usage: TensorUsage) -> tuple[NDArray[np.int64], TensorUsage]:
    ends_ns = np.asarray(ends_ns).reshape(-1)
    if not 0 < len(ends_ns) <= MAX_STEPS or len(usage) > MAX_STRETCHES:
        raise ValueError(f"{len(ends_ns)} steps in a message")
    if not 0 <= start_ns <= int(ends_ns[0]) or (np.diff(ends_ns) < 0).any() or int(ends_ns[-1]) > 1 << 62:
        raise ValueError("a step ends before it begins")
    return ends_ns, usage


def encode_progress(start_ns: int, ends_ns: NDArray[np.int64], usage: TensorUsage) -> bytes:
    """Return the blob of a message, times as differences, which are small."""
    columns = usage.columns
    columns[1] -= columns[0]
    columns[0] -= start_ns
    names = list(map(utf8_safe, usage.names))
    numbers = np.diff(ends_ns, prepend=start_ns), columns
    return pack((len(ends_ns), len(usage)), names, *numbers, most_names_bytes=MAX_NAMES_BYTES)


def decode_progress(row: ProgressRow, data: bytes) -> RecordedProgress:
    """Undo ``encode_progress``. Raises ValueError on damaged data."""
    most = MAX_STEPS + _COLUMNS * MAX_STRETCHES
    packed = unpack(data, 2, _length, most_names_bytes=MAX_NAMES_BYTES, most_numbers=most)
    steps, many = packed.counts
    ends_ns = row.start_ns + np.cumsum(packed.numbers[:steps])
    columns = packed.numbers[steps:].reshape(_COLUMNS, many)
    columns[0] += row.start_ns
    columns[1] += columns[0]
    return RecordedProgress(
        row, *_checked(row.start_ns, ends_ns, TensorUsage.of(columns, tuple(list_of(packed.names))))
    )


def _length(steps: int, many: int) -> int:
    if not 0 < steps <= MAX_STEPS or many > MAX_STRETCHES:
        raise ValueError("has a damaged head")
    return steps + _COLUMNS * many
