"""The lists of call stacks below the chart of allocations: one stack, and what is alive by stack, function and file."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.stack_capture import call_text
from memtui.analysis.stack_groups import Groups
from memtui.core.call_stacks import CallStacks, Frame
from memtui.reports.stack_summary import CALLED_BY
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
_NO_STACK = "(no call stack)"


class StackLists:
    """The call stacks of a step."""

    def __init__(self, stacks: CallStacks, stack: NDArray[np.int64]) -> None:
        """Take the table, and the number of the stack of each row of the step."""
        self._stacks, self._stack = stacks, stack
        self._groups: dict[str, Groups] = {}

    def number(self, row: int) -> int:
        """Return the number of the stack of a row."""
        return int(self._stack[row])

    def calls(self, number: int) -> list[Row]:
        """Return the calls of a stack, the innermost first; those inside of PyTorch are dim."""
        return call_rows(self._stacks.stack(number))

    def sums(self, born: NDArray[np.int32], size_bytes: NDArray[np.int64], group: str) -> list[Row]:
        """Return the bytes of some blocks by group, the largest first.

        A function and a file have what they and all that they call have allocated, each block once.

        Args:
            born: the rows that allocated the blocks.
            size_bytes: of each block.
            group: one of ``GROUPS``.
        """
        total, stack, count = max(1, int(size_bytes.sum())), self._stack[born], len(self._stacks) + 1
        # A remainder makes the stack that is not known, -1, the last one.
        sizes = np.bincount(stack % count, size_bytes, count).astype(float)
        blocks = np.bincount(stack % count, minlength=count).astype(float)
        names = None
        if group != "by stack":
            groups = self._groups_by(group)
            sizes, blocks = (np.append(groups.sums(values), values[-1]) for values in (sizes, blocks))
            names = [*groups.names, _NO_STACK]
        used = np.flatnonzero(blocks)
        rows = []
        for number in used[np.argsort(-sizes[used], kind="stable")].tolist():
            size, key = int(sizes[number]), number if number < len(sizes) - 1 else -1
            cells = text.size(size), text.percent(size / total), f"{int(blocks[number]):,}"
            if names is None:
                rows.append(Row(key, (*cells, self.line(key))))
            else:
                rows.append(Row((group, key), (*cells, names[number])))
        return rows

    def line(self, number: int) -> str:
        """Return a stack in a line, from the innermost call outside of PyTorch on."""
        frames = self._stacks.stack(number)
        own = list(dropwhile(_inside, frames)) or frames
        return CALLED_BY.join(map(call_text, own[:_MOST_CALLS])) or _NO_STACK

    def _groups_by(self, group: str) -> Groups:
        if group not in self._groups:
            self._groups[group] = Groups(self._stacks, group.removeprefix("by "))
        return self._groups[group]


def call_rows(calls: Iterable[Frame]) -> list[Row]:
    """Return rows of the calls of a stack; those inside of PyTorch are dim."""
    rows = []
    for depth, frame in enumerate(calls):
        cells = frame.function, str(frame.line) if frame.line else "", frame.file
        rows.append(Row(depth, cells, "dim" if _inside(frame) else "text"))
    return rows


def _inside(frame: Frame) -> bool:
    """Whether a call is inside of PyTorch, or not in Python."""
    return not frame.file.endswith(".py") or "/torch/" in f"/{frame.file}"
