"""Captures of memray as records: a head with the readings of its clock, and blocks in as many as they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from memtui.analysis.stack_capture import MOST_BLOCKS, MOST_READINGS, Readings, StackBlocks, StackCapture
from memtui.core.call_stacks import CallStacks
from memtui.session.blobs import pack, unpack

BLOCKS_OF_ROW = 1 << 18  # of one record
_COLUMNS = 6
_ALLOCATED, _FREED = 3, 4


@dataclass(frozen=True, slots=True)
class CaptureRecord:
    """A capture of the allocations of a process by memray, and the readings of its clock."""

    pid: int
    rows: int
    start_ns: int
    end_ns: int
    readings: bytes


@dataclass(frozen=True, slots=True)
class CaptureBlocksRecord:
    """Some of the blocks that a capture saw, in the order of their allocation."""

    id: int
    pid: int
    data: bytes


def capture_records(capture: StackCapture, first_id: int = 0) -> Iterator[CaptureRecord | CaptureBlocksRecord]:
    """Yield the records of a capture without its stacks; those of its blocks are numbered from ``first_id``."""
    readings = capture.readings
    times = np.diff(readings.t_ns, prepend=capture.start_ns), np.diff(readings.rows, prepend=0)
    packed = pack((len(readings),), None, *times)
    yield CaptureRecord(capture.pid, capture.rows, capture.start_ns, capture.end_ns, packed)
    columns = capture.blocks.columns
    for number, low in enumerate(range(0, len(capture.blocks), BLOCKS_OF_ROW), start=first_id):
        part = columns[:, low : low + BLOCKS_OF_ROW]
        part[_FREED] -= part[_ALLOCATED]
        part[_ALLOCATED] = np.diff(part[_ALLOCATED], prepend=0)
        yield CaptureBlocksRecord(number, capture.pid, pack((part.shape[1],), None, part))


def decode_capture(record: CaptureRecord, blocks: Sequence[bytes], stacks: CallStacks) -> StackCapture:
    """Undo ``capture_records``. Raises ValueError on damaged data."""
    if len(blocks) * BLOCKS_OF_ROW > MOST_BLOCKS + BLOCKS_OF_ROW:
        raise ValueError(f"more than {MOST_BLOCKS} blocks")
    columns = [_columns(data) for data in blocks] or [np.zeros((_COLUMNS, 0), np.int64)]
    capture = StackCapture(
        pid=record.pid,
        rows=record.rows,
        start_ns=record.start_ns,
        end_ns=record.end_ns,
        stacks=stacks,
        blocks=StackBlocks.of(np.concatenate(columns, axis=1)),
        readings=_readings(record),
    )
    capture.check()
    return capture


def _readings(record: CaptureRecord) -> Readings:
    packed = unpack(record.readings, 1, lambda n: 2 * n, most_names_bytes=16, most_numbers=2 * MOST_READINGS)
    times, rows = np.cumsum(packed.numbers.reshape(2, -1), axis=1)
    return Readings(rows, times + record.start_ns)


def _columns(data: bytes) -> np.ndarray:
    most = _COLUMNS * BLOCKS_OF_ROW
    packed = unpack(data, 1, lambda n: _COLUMNS * n, most_names_bytes=16, most_numbers=most)
    columns = packed.numbers.reshape(_COLUMNS, -1)
    columns[_ALLOCATED] = np.cumsum(columns[_ALLOCATED])
    columns[_FREED] += columns[_ALLOCATED]
    return columns
