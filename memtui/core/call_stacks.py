"""Call stacks, each once: a tree whose nodes are a frame and the stack that called it.

Files repeat the same stacks a hundred thousand times, and most stacks begin with the same calls.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtui.core.text import utf8_safe

MOST_STACKS = 1 << 20  # numbers, those of callers included
MOST_CALLS = 1 << 13  # of a stack
MOST_FUNCTION, MOST_FILE = 500, 1000  # characters
MOST_LINE = 1 << 31
_MOST_TEXT = 64 << 20  # characters of all frames together
_FRAME_BITS = 32


class Frame(NamedTuple):
    """A call: the function, its file, and the line in it that runs; "" and 0 where it is not known."""

    function: str
    file: str
    line: int


class CallStacks:
    """Numbers stacks from 0; -1 stands for no stack, or one that is not known.

    Attributes:
        frames: every frame once.
        parent: of each stack, the stack that called its innermost frame, a lower number; -1: none did.
        frame: of each stack, its innermost frame, an index into ``frames``.
        dropped: how often a stack had no room in the table.
    """

    def __init__(self, frames: Iterable[Frame] = (), parent: Iterable[int] = (), frame: Iterable[int] = ()) -> None:
        """Take a table that was stored. Raises ValueError where it is damaged."""
        self.frames = list(frames)
        self.parent, self.frame = array("i", parent), array("i", frame)
        self.dropped = 0
        if len(self.parent) != len(self.frame):
            raise ValueError("a call stack lacks its frame")
        callers = np.array(self.parent)
        if (callers < -1).any() or (callers >= np.arange(len(callers))).any():
            raise ValueError("a call stack is called by one that comes later")
        if len(self.frame) and not 0 <= min(self.frame) <= max(self.frame) < len(self.frames):
            raise ValueError("a call stack has a frame that is not there")

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def _frames(self) -> dict[Frame, int]:
        return {frame: number for number, frame in enumerate(self.frames)}

    @cached_property
    def _stacks(self) -> dict[int, int]:
        calls = zip(self.parent, self.frame, strict=True)
        return {_key(parent, frame): number for number, (parent, frame) in enumerate(calls)}

    @cached_property
    def depth(self) -> array[int]:
        """How many calls each stack has."""
        depth = array("i")
        for parent in self.parent:
            depth.append(depth[parent] + 1 if parent >= 0 else 1)
        return depth

    @cached_property
    def _room(self) -> int:
        return _MOST_TEXT - sum(map(_length, self.frames))

    def file_sets(self) -> tuple[NDArray[np.int64], list[tuple[str, ...]]]:
        """Return the files of each stack: i8[n] numbers, and what they number, each set once; 0 is the empty set."""
        sets: list[tuple[str, ...]] = [()]
        numbers: dict[tuple[int, str], int] = {}  # by the set of the callers, and the file of the call
        of_stack: list[int] = []
        for parent, frame in zip(self.parent, self.frame, strict=True):
            before, file = of_stack[parent] if parent >= 0 else 0, self.frames[frame].file
            if (before, file) not in numbers:
                if not file or file in sets[before]:
                    numbers[before, file] = before
                else:
                    numbers[before, file] = len(sets)
                    sets.append((*sets[before], file))
            of_stack.append(numbers[before, file])
        return np.array(of_stack, np.int64), sets

    def add(self, frames: Sequence[Frame]) -> int:
        """Return the number of a stack, whose innermost frame comes first; -1 without frames, or without room."""
        return self.add_numbers([self.add_frame(frame) for frame in frames])

    def add_frame(self, frame: Frame) -> int:
        """Return the number of a frame; -1: there is no room for it."""
        number = self._frames.get(frame)
        if number is None:
            short = Frame(utf8_safe(frame.function)[:MOST_FUNCTION], utf8_safe(frame.file)[:MOST_FILE], frame.line)
            if not 0 <= frame.line < MOST_LINE:
                raise ValueError("a line out of range")
            number = self._frames.get(short)
            if number is None:
                if self._room < _length(short) or len(self.frames) >= MOST_STACKS:
                    return -1
                self._room -= _length(short)
                number = self._frames[short] = len(self.frames)
                self.frames.append(short)
        return number

    def add_numbers(self, frames: Sequence[int]) -> int:
        """Return the number of a stack of frames by their numbers, as ``add`` does."""
        stack = -1
        if len(frames) and min(frames) < 0:
            self.dropped += 1
            return -1
        for frame in reversed(frames):
            stack = self.add_call(stack, frame)
            if stack < 0:
                break
        return stack

    def add_call(self, caller: int, frame: int) -> int:
        """Return the number of the stack in which a stack, or -1, calls a frame; -1 without room."""
        key = _key(caller, frame)
        number = self._stacks.get(key)
        if number is None:
            depth = self.depth[caller] + 1 if caller >= 0 else 1
            if len(self.parent) >= MOST_STACKS or depth > MOST_CALLS:
                self.dropped += 1
                return -1
            number = self._stacks[key] = len(self.parent)
            self.depth.append(depth)
            self.parent.append(caller)
            self.frame.append(frame)
        return number

    def warnings(self) -> tuple[str, ...]:
        """Return what is wrong with the table, as a line."""
        left_out = f"it has more or deeper call stacks than fit into a session; left out: {self.dropped}"
        return (left_out,) if self.dropped else ()

    def stack(self, number: int, most: int = MOST_CALLS) -> tuple[Frame, ...]:
        """Return the frames of a stack, the innermost first, and at most so many; none for -1."""
        frames: list[Frame] = []
        while number >= 0 and len(frames) < most:
            frames.append(self.frames[self.frame[number]])
            number = self.parent[number]
        return tuple(frames)


def _key(parent: int, frame: int) -> int:
    return (parent + 1) << _FRAME_BITS | frame


def _length(frame: Frame) -> int:
    return len(frame.function) + len(frame.file) + 64  # the frame itself takes room, too
