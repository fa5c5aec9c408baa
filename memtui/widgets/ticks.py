"""Ticks on a time axis: a glyph for each kind, one tick to a column, and a label beside it where there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from memtui.widgets import text
from memtui.widgets.views.memory import Tick, TimeAxis

TICKS = {
    "mark": "┃", "exec": "┃", "warning": "┃", "stopped": "┊", "gap": "┊", "disturbed": "┊", "not paused": "┊",
    "interval": "┊", "step": "┊", "each step": "┊",
}  # fmt: skip
UNLABELLED = "each step"  # a kind with so many ticks that labels would fill the picture
FEWEST = 8  # cells: a label that is cut shorter is left out
_REST = 0  # the second cell of a wide character: no character of its own


def by_column(ticks: Iterable[Tick], axis: TimeAxis, columns: int) -> dict[int, Tick]:
    """Return one tick to a column, from the left: a mark of the user before all others, then the first tick."""
    shown: dict[int, Tick] = {}
    for tick in ticks:
        column = axis.column(tick.t_ns, columns) if tick.kind in TICKS else None
        if column is None:
            continue
        before = shown.setdefault(column, tick)
        if tick.kind == "mark" and before.kind != "mark":
            shown[column] = tick
    return dict(sorted(shown.items()))


def tick_labels(
    ticks: dict[int, Tick], free: NDArray[np.bool_], displayable: Callable[[str], str]
) -> list[tuple[int, list[int]]]:
    """Return first column and cells of the label of each tick that has room for one; marks of the user come first.

    ``free`` says which cells of the row are blank, ``displayable`` converts a text to the glyphs of the terminal. A
    label stands to the right of its tick or, where there is no room, to the left; a blank separates it from the rest.
    """
    free = free.copy()
    labels = []
    for column, tick in sorted(ticks.items(), key=lambda item: item[1].kind != "mark"):
        if tick.kind == UNLABELLED:
            continue
        label = displayable(text.clean(tick.text if tick.kind == "mark" else tick.kind))
        rooms = _room(free[column + 1 :]), _room(free[:column][::-1])
        cells = cells_of(label)
        if len(cells) > max(rooms):
            if max(rooms) < FEWEST:
                continue
            cells = cells_of(displayable(text.fit(label, max(rooms))))[: max(rooms)]
        start = column + 1 if len(cells) <= rooms[0] else column - len(cells)
        free[max(0, start - 1) : start + len(cells) + 1] = False
        labels.append((start, cells))
    return labels


def _room(free: NDArray[np.bool_]) -> int:
    """Return the cells for a label from the first cell on, less a blank at its end; the edge needs no blank."""
    taken = np.flatnonzero(~free)
    return max(0, int(taken[0]) - 1) if len(taken) else len(free)


def cells_of(label: str) -> list[int]:
    """Return a code point for every cell of a label."""
    cells: list[int] = []
    for char in label:
        width = text.width(char)
        cells += [ord(char), *[_REST] * (width - 1)] if width else []
    return cells


def without_rests(row: str) -> str:
    """Return the text of a row of such cells."""
    return row.replace(chr(_REST), "")
