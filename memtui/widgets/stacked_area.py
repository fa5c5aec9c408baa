"""Kinds of tensors as areas on top of each other: what the charts of a step and of a training share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.widgets import raster, text
from memtui.widgets.raster import Line
from memtui.widgets.style import DrawStyle
from memtui.widgets.tensor_kinds import INDEX, LETTERS, ORDER, by_letter, kind_styles

AXIS = 6
_CURSOR = len(ORDER) + 1  # style behind those of the kinds and of nothing


@dataclass(frozen=True, slots=True, eq=False)
class Stacked:
    """All but the cursor: it stays while the cursor moves."""

    codes: raster.Codes
    styles: NDArray[np.int64]  # i8[rows, columns], place of the kind in ORDER
    top_bytes: float

    @classmethod
    def of(cls, held_bytes: NDArray[np.int64], rows: int, top_bytes: float, look: DrawStyle) -> Stacked:
        """Take what is held in each column, i8[columns, len(CATEGORIES)]."""
        held = np.cumsum(held_bytes[:, INDEX], axis=1)  # [columns, kinds], upper edges
        # The kind of a cell is the one that holds the middle of it.
        middle = (np.arange(rows)[::-1] + 0.5) * top_bytes / rows
        styles = (held[None, :, :] <= middle[:, None, None]).sum(axis=2)
        letters = [ord(LETTERS[name]) if by_letter(look) else ord("█") for name in ORDER]
        return cls(np.array([*letters, ord(" ")], np.uint32)[styles], styles, top_bytes)

    def lines(self, cursor: int | None, peak: int, peak_bytes: int, look: DrawStyle) -> list[Line]:
        """With an axis, the cursor in its column, and below it the mark of the peak; none where it is 0."""
        codes, styles = self.codes.copy(), self.styles.copy()
        rows, columns = codes.shape
        if cursor is not None:
            codes[:, cursor], styles[:, cursor] = ord("|" if look.ascii_only else "│"), _CURSOR
        lines = raster.lines(codes, styles, [*kind_styles(look), look["text"], look["cursor"]])
        labels = [text.short_size(self.top_bytes), *[""] * (rows - 2), "0"]
        if rows >= 6:
            labels[rows // 2] = text.short_size(self.top_bytes / 2)
        mark = _peak_mark(peak, columns, peak_bytes) if peak_bytes else ""
        return [
            *([(label.rjust(AXIS - 1) + " ", look["dim"]), *line] for label, line in zip(labels, lines, strict=True)),
            [(" " * AXIS + mark, look["bright"])],
        ]


def _peak_mark(at: int, columns: int, peak_bytes: int) -> str:
    word = f"peak {text.size(peak_bytes)}"
    marks = [" "] * columns
    marks[at] = "▲"
    begin = at + 2 if at + 2 + len(word) <= columns else max(0, at - 1 - len(word))
    marks[begin : begin + len(word)] = word
    return "".join(marks)[:columns]
