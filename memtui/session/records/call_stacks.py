"""Call stacks as records: one for each frame, one for each stack, and for each recorded step the stacks of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.core.call_stacks import MOST_LINE, MOST_STACKS, CallStacks, Frame
from memtui.session.blobs import pack, unpack


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


def call_stacks_of(frames: Sequence[FrameRecord], stacks: Sequence[CallStackRecord]) -> CallStacks:
    """Invert ``stack_records``; both in the order of their numbers. Raises ValueError on damaged data."""
    for numbers in [record.id for record in frames], [record.id for record in stacks]:
        if len(numbers) > MOST_STACKS:
            raise ValueError(f"there are more than {MOST_STACKS}")
        if numbers != list(range(len(numbers))):
            raise ValueError("a number is missing")
    if any(not 0 <= frame.line < MOST_LINE for frame in frames):
        raise ValueError("a line is out of range")
    if any(max(stack.frame, stack.parent or 0) >= MOST_STACKS for stack in stacks):
        raise ValueError("a number is out of range")
    return CallStacks(
        (Frame(frame.function, frame.file, frame.line) for frame in frames),
        (-1 if stack.parent is None else stack.parent for stack in stacks),
        (stack.frame for stack in stacks),
    )


def encode_stacks(stack: NDArray[np.int64]) -> bytes:
    """Return the stacks of the rows of a step, i8[n], as a blob."""
    return pack((len(stack),), None, stack)


def decode_stacks(data: bytes, rows: int, stacks: int) -> NDArray[np.int64]:
    """Undo ``encode_stacks``, for so many rows, of so many stacks. Raises ValueError on damaged data."""
    stack = unpack(data, 1, lambda count: count, most_names_bytes=16, most_numbers=rows).numbers
    if len(stack) != rows or (rows and not -1 <= stack.min() <= stack.max() < stacks):
        raise ValueError("a call stack is not there")
    return stack
