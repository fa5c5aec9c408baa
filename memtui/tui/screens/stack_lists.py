"""The lists of call stacks below the chart of allocations: one stack, and what is alive by stack, function and file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import dropwhile

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.stack_capture import call_text
from memtui.core.call_stacks import CallStacks, Frame
from memtui.widgets import text
from memtui.widgets.table import Column, Row

GROUPS = ("", "by stack", "by function", "by file")  # the first one: the calls of one stack
CALLS = (
    Column("function", 0, most=70),
    Column("line", 8, right=True),
    Column("file", 40, rank=2),
)
SUMS = (
    Column("size", 12, right=True),
    Column("share", 10, right=True),
    Column("blocks", 10, right=True, rank=2),
    Column("", 0),
)
_MOST_CALLS = 12  # of a stack in one line
_NO_STACK, _NO_FILE = "(no call stack)", "(no file)"


class StackLists:
    """The call stacks of a step."""

    def __init__(self, stacks: CallStacks, stack: NDArray[np.int64]) -> None:
        """Take the table, and the number of the stack of each row of the step."""
        self._stacks, self._stack = stacks, stack
        self._keys: dict[tuple[str, int], tuple[str, ...]] = {}  # of a stack, by the kind of group

    def number(self, row: int) -> int:
        """Return the number of the stack of a row."""
        return int(self._stack[row])

    def calls(self, number: int) -> list[Row]:
        """Return the calls of a stack, the innermost first; those inside of PyTorch are dim."""
        rows = []
        for depth, frame in enumerate(self._stacks.stack(number)):
            cells = frame.function, str(frame.line) if frame.line else "", frame.file
            rows.append(Row(depth, cells, "dim" if _inside(frame) else "text"))
        return rows

    def sums(self, born: NDArray[np.int32], size_bytes: NDArray[np.int64], group: str) -> list[Row]:
        """Return the bytes of some blocks by group, the largest first.

        A function and a file have what they and all that they call have allocated, each block once.

        Args:
            born: the rows that allocated the blocks.
            size_bytes: of each block.
            group: one of ``GROUPS``.
        """
        total = max(1, int(size_bytes.sum()))
        bytes_of, blocks_of = Counter[object](), Counter[object]()
        numbers, which = np.unique(self._stack[born], return_inverse=True)
        of_stack = np.bincount(which, size_bytes, len(numbers)).astype(np.int64).tolist()
        counts = np.bincount(which, minlength=len(numbers)).tolist()
        for number, size, count in zip(numbers.tolist(), of_stack, counts, strict=True):
            for key in (number,) if group == "by stack" else self._keys_of(number, group):
                bytes_of[key] += size
                blocks_of[key] += count
        return [
            Row(
                key,
                (
                    text.size(size),
                    text.percent(size / total),
                    f"{blocks_of[key]:,}",
                    self.line(key) if isinstance(key, int) else str(key),
                ),
            )
            for key, size in bytes_of.most_common()
        ]

    def line(self, number: int) -> str:
        """Return a stack in a line, from the innermost call outside of PyTorch on."""
        frames = self._stacks.stack(number)
        own = list(dropwhile(_inside, frames)) or frames
        return " < ".join(map(call_text, own[:_MOST_CALLS])) or _NO_STACK

    def _keys_of(self, number: int, group: str) -> tuple[str, ...]:
        cached = self._keys.get((group, number))
        if cached is None:
            key: Callable[[Frame], str] = _file if group == "by file" else _function
            keys = tuple(dict.fromkeys(map(key, self._stacks.stack(number)))) or (_NO_STACK,)
            cached = self._keys[group, number] = keys
        return cached


def _inside(frame: Frame) -> bool:
    """Whether a call is inside of PyTorch, or not in Python."""
    return not frame.file.endswith(".py") or "/torch/" in f"/{frame.file}"


def _file(frame: Frame) -> str:
    return frame.file or _NO_FILE


def _function(frame: Frame) -> str:
    return f"{frame.function} ({frame.file.rpartition('/')[2]})" if frame.file else frame.function
