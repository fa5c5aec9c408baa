"""Stacked areas of the kinds of tensors, for the charts of a step and of a training."""

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
    """The areas without the cursor: they stay the same while the cursor moves."""

    codes: raster.Codes
    styles: NDArray[np.int64]  # i8[rows, columns], place of the kind in ORDER
    top_bytes: float

    @classmethod
    def of(cls, usage_bytes: NDArray[np.int64], rows: int, top_bytes: float, draw_style: DrawStyle) -> Stacked:
        """Return the areas of the bytes in each column, i8[columns, len(CATEGORIES)]."""
        upper_edges = np.cumsum(usage_bytes[:, INDEX], axis=1)  # [columns, kinds], upper edges
        # The kind of a cell is the kind at its middle.
        middle = (np.arange(rows)[::-1] + 0.5) * top_bytes / rows
        styles = (upper_edges[None, :, :] <= middle[:, None, None]).sum(axis=2)
        letters = [ord(LETTERS[name]) if by_letter(draw_style) else ord("█") for name in ORDER]
        return cls(np.array([*letters, ord(" ")], np.uint32)[styles], styles, top_bytes)

    def lines(self, cursor: int | None, peak: int, peak_bytes: int, draw_style: DrawStyle) -> list[Line]:
        """Return the picture with an axis and the cursor, and below it the peak; ``peak_bytes`` 0: no peak."""
        codes, styles = self.codes.copy(), self.styles.copy()
        rows, columns = codes.shape
        if cursor is not None:
            codes[:, cursor], styles[:, cursor] = ord("|" if draw_style.ascii_only else "│"), _CURSOR
        lines = raster.lines(codes, styles, [*kind_styles(draw_style), draw_style["text"], draw_style["cursor"]])
        labels = [text.short_size(self.top_bytes), *[""] * (rows - 2), "0"]
        if rows >= 6:
            labels[rows // 2] = text.short_size(self.top_bytes / 2)
        peak_label = _peak_label(peak, columns, peak_bytes) if peak_bytes else ""
        return [
            *(
                [(label.rjust(AXIS - 1) + " ", draw_style["dim"]), *line]
                for label, line in zip(labels, lines, strict=True)
            ),
            [(" " * AXIS + peak_label, draw_style["bright"])],
        ]


def _peak_label(column: int, columns: int, peak_bytes: int) -> str:
    word = f"peak {text.size(peak_bytes)}"
    cells = [" "] * columns
    cells[column] = "▲"
    start = column + 2 if column + 2 + len(word) <= columns else max(0, column - 1 - len(word))
    cells[start : start + len(word)] = word
    return "".join(cells)[:columns]
