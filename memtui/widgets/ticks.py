"""Moments on a picture: the tick of each kind, one to a column, and words beside it where there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from memtui.widgets import text
from memtui.widgets.views.memory import Mark, TimeAxis

TICKS = {
    "mark": "┃", "exec": "┃", "warning": "┃", "stopped": "┊", "gap": "┊", "disturbed": "┊", "not paused": "┊",
    "interval": "┊", "step": "┊", "each step": "┊",
}  # fmt: skip
WORDLESS = "each step"  # so many that words would be all there is
FEWEST = 8  # cells that are worth a part of the words
_REST = 0  # the second cell of a wide character: no character of its own


def by_column(marks: Iterable[Mark], axis: TimeAxis, columns: int) -> dict[int, Mark]:
    """Return one mark to a column, from the left: what the user wrote down before anything else, then the first."""
    found: dict[int, Mark] = {}
    for mark in marks:
        column = axis.column(mark.t_ns, columns) if mark.kind in TICKS else None
        if column is None:
            continue
        before = found.setdefault(column, mark)
        if mark.kind == "mark" and before.kind != "mark":
            found[column] = mark
    return dict(sorted(found.items()))


def words_beside(
    marks: dict[int, Mark], free: NDArray[np.bool_], plain: Callable[[str], str]
) -> list[tuple[int, list[int]]]:
    """First column and cells of the words, for those marks beside which there is room; the user's words come first.

    ``free`` says which cells of the row are blank, ``plain`` puts words into the glyphs there are. Words stand to the
    right of their tick or, where there is no room, to the left; a blank stays between them and anything else.
    """
    free = free.copy()
    found = []
    for column, mark in sorted(marks.items(), key=lambda one: one[1].kind != "mark"):
        if mark.kind == WORDLESS:
            continue
        words = plain(text.clean(mark.text if mark.kind == "mark" else mark.kind))
        rooms = _room(free[column + 1 :]), _room(free[:column][::-1])
        cells = cells_of(words)
        if len(cells) > max(rooms):
            if max(rooms) < FEWEST:
                continue
            cells = cells_of(plain(text.fit(words, max(rooms))))[: max(rooms)]
        begin = column + 1 if len(cells) <= rooms[0] else column - len(cells)
        free[max(0, begin - 1) : begin + len(cells) + 1] = False
        found.append((begin, cells))
    return found


def _room(free: NDArray[np.bool_]) -> int:
    """Cells for words from the first one on, without the blank at their end; the edge of the picture needs none."""
    taken = np.flatnonzero(~free)
    return max(0, int(taken[0]) - 1) if len(taken) else len(free)


def cells_of(words: str) -> list[int]:
    """Return a code point for every cell that words take."""
    cells: list[int] = []
    for char in words:
        width = text.width(char)
        cells += [ord(char), *[_REST] * (width - 1)] if width else []
    return cells


def without_rests(words: str) -> str:
    """Return what a row of such cells says."""
    return words.replace(chr(_REST), "")
