"""Call stacks as records: one for each frame, one for each stack, and for each recorded step the stacks of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.core.call_stacks import MOST_CALLS, MOST_LINE, MOST_STACKS, CallStacks, Frame
from memtui.session.blobs import pack, unpack

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """A call: the function, its file, and the line in it; "" and 0: not known."""

    id: int
    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class CallStackRecord:
    """A call stack: its innermost frame, and the stack that called it."""

    id: int
    parent: int | None
    frame: int


@dataclass(frozen=True, slots=True)
class AllocationStackRecord:
    """The call stack of each row of a recorded step."""

    id: int
    data: bytes


def stack_records(stacks: CallStacks) -> Iterator[FrameRecord | CallStackRecord]:
    """Yield the records of a table of stacks."""
    for number, frame in enumerate(stacks.frames):
        yield FrameRecord(number, *frame)
    for number, (parent, innermost) in enumerate(zip(stacks.parent, stacks.frame, strict=True)):
        yield CallStackRecord(number, parent if parent >= 0 else None, innermost)


def call_stacks_of(frames: Sequence[Row], stacks: Sequence[Row]) -> CallStacks:
    """Invert ``stack_records``: from the columns of both, in the order of their numbers. Raises ValueError."""
    for rows in frames, stacks:
        if len(rows) > MOST_STACKS:
            raise ValueError(f"there are more than {MOST_STACKS}")
        if [row[0] for row in rows] != list(range(len(rows))):
            raise ValueError("a number is missing")
    parents = [-1 if parent is None else parent for _, parent, _ in stacks]
    innermost = [frame for _, _, frame in stacks]
    if max((*parents, *innermost), default=0) >= MOST_STACKS:
        raise ValueError("a number is out of range")
    if max((line for *_, line in frames), default=0) >= MOST_LINE:
        raise ValueError("a line is out of range")
    table = CallStacks((Frame(*frame) for _, *frame in frames), parents, innermost)
    if max(table.depth, default=0) > MOST_CALLS:
        raise ValueError(f"one has more than {MOST_CALLS} calls")
    return table


def encode_stacks(stack: NDArray[np.int64]) -> bytes:
    """Return the stacks of the rows of a step, i8[n], as a blob."""
    return pack((len(stack),), None, stack)


def decode_stacks(data: bytes, rows: int, stacks: int) -> NDArray[np.int64]:
    """Undo ``encode_stacks``, for so many rows, of so many stacks. Raises ValueError on damaged data."""
    stack = unpack(data, 1, lambda count: count, most_names_bytes=16, most_numbers=rows).numbers
    if len(stack) != rows or (rows and not -1 <= stack.min() <= stack.max() < stacks):
        raise ValueError("a call stack is not there")
    return stack
