"""Sums of call stacks by function and by file: each has what it and all that it calls have, each block once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.stack_capture import call_text
from memtui.core.call_stacks import MOST_FILE, CallStacks, Frame

NO_FILE = "(no file)"
_MOST_PARTS = 8  # of a path, in a name


class Groups:
    """The functions, or the files, of a table of stacks.

    Attributes:
        names: of each, distinct.
    """

    def __init__(self, stacks: CallStacks, by: str) -> None:
        """Take the stacks, and whether to add up ``by`` "function" or "file"."""
        numbers: dict[Frame, int] = {}
        keys = (Frame("", call.file, 0) if by == "file" else call._replace(line=0) for call in stacks.frames)
        of_frame = [numbers.setdefault(key, len(numbers)) for key in keys]
        group_keys = list(numbers)
        self.names = [key.file or NO_FILE for key in group_keys] if by == "file" else function_names(group_keys)
        self._parent = np.array(stacks.parent, np.int64)
        group = np.array(of_frame, np.int64)[np.array(stacks.frame, np.int64)]
        self._outermost = _outermost(self._parent, group.tolist(), len(group_keys))
        self._group = group[self._outermost]
        depth = np.array(stacks.depth)
        order = np.argsort(depth, kind="stable")
        edges = np.searchsorted(depth[order], np.arange(2, int(depth.max(initial=0)) + 2))
        self._levels = [order[low:high] for low, high in pairwise(edges.tolist())][::-1]

    def columns(self, columns: Sequence[NDArray[np.float64] | None]) -> list[NDArray[np.float64] | None]:
        """Return the sums of columns that have a number for each stack."""
        return [None if column is None else self.sums(column) for column in columns]

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sums of one number for each stack; those of no known stack, which come last, are in none."""
        total = values[: len(self._parent)].astype(float)
        for level in self._levels:  # the deepest first: each adds what it has to its caller
            np.add.at(total, self._parent[level], total[level])
        return np.bincount(self._group, total[self._outermost], len(self.names)).astype(float)


def _outermost(parent: NDArray[np.int64], group: list[int], groups: int) -> NDArray[np.int64]:
    """Return the stacks whose innermost call is the first one of its group in them, so that recursion counts once."""
    order = np.argsort(parent, kind="stable")
    first = np.searchsorted(parent[order], np.arange(-1, len(parent) + 1)).tolist()
    called = order.tolist()  # by stack n, those from first[n + 1] to first[n + 2]
    within = [False] * groups
    outermost, to_do = [], called[: first[1]]
    while to_do:
        number = to_do.pop()
        if number < 0:
            within[group[~number]] = False
            continue
        if not within[group[number]]:
            within[group[number]] = True
            outermost.append(number)
            to_do.append(~number)  # comes up after all that it calls
        to_do += called[first[number + 1] : first[number + 2]]
    return np.array(outermost, np.int64)


def function_names(functions: Sequence[Frame]) -> list[str]:
    """Return ``step (train.py)`` for each function; where several are alike with as much of their paths as it takes."""
    names = [call_text(function) for function in functions]
    unclear, parts = list(range(len(functions))), 1
    while unclear:
        count = Counter(names[number] for number in unclear)
        longer = parts + 1 if parts < _MOST_PARTS else MOST_FILE  # the whole path
        unclear = [n for n in unclear if count[names[n]] > 1 and functions[n].file.count("/") >= parts]
        for number in unclear:
            function, file, _ = functions[number]
            names[number] = f"{function} ({'/'.join(file.split('/')[-longer:])})"
        parts = longer
    return names
