"""The memory of one training step, allocation by allocation: an area for each kind of tensor, on top of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from textual import events
from textual.message import Message

from memtui.analysis.step_index import StepIndex
from memtui.widgets import raster, text
from memtui.widgets.kinds import INDEX, LETTERS, ORDER, by_letter, kind_styles, legend
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line

AXIS = 6
_CURSOR = len(ORDER) + 1  # style behind those of the categories and of nothing


@dataclass(frozen=True, slots=True, eq=False)
class _Picture:
    """All but the cursor: it stays while the cursor moves."""

    begins: NDArray[np.int64]  # i8[columns], first row of each
    codes: raster.Codes
    styles: NDArray[np.int64]  # i8[rows, columns], place of the category in ORDER
    top_bytes: float


class AllocationChart(Panel):
    """``view`` is a step; ``row`` the allocation under the cursor."""

    view: StepIndex
    row = 0
    title = "allocations"

    def __init__(self, view: StepIndex | None = None, **options: Any) -> None:
        super().__init__(view, **options)
        self._picture: tuple[tuple[object, ...], _Picture] | None = None

    class Pointed(Message):
        """A column was clicked."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    @property
    def columns(self) -> int:
        """How many there is room for."""
        return max(1, self.size.width - 2 - AXIS)

    def point(self, row: int) -> None:
        """Put the cursor on an allocation."""
        if row != self.row:
            self.row = row
            self.repaint()

    def on_click(self, event: events.Click) -> None:
        super().on_click(event)
        column = event.x - 1 - AXIS
        if self.view and 0 <= column < self.columns:
            self.post_message(self.Pointed(int(_rows_of(self.view, _begins(self.view, self.columns))[column])))

    def heading_right(self, width: int) -> Line:
        """What is held at the cursor."""
        if not len(self.view):
            return []
        return legend(self.view.held_by_category(self.row).tolist(), self.look, width - len(self.title) - 8)

    def footing(self) -> Line:
        """What happened at the cursor."""
        if not len(self.view):
            return []
        trace, row = self.view.trace, self.row
        before = row < trace.existing
        delta = self.view.start_bytes if before else int(trace.delta_bytes[row])
        done = "there before" if before else "freed" if delta < 0 else "allocated"
        what = trace.name(int(trace.op[row])).rpartition("/")[2] or done
        layer = "" if before else trace.name(int(self.view.layer[row]))
        where = f" {'of' if delta < 0 else 'in'} layer {layer}" if layer else ""
        return [(text.clean(f"{row + 1} of {len(trace)}: {text.change(delta)} {what}{where}"), self.look["text"])]

    def footing_right(self, width: int) -> Line:
        if not len(self.view):
            return []
        return [("held ", self.look["dim"]), (text.size(int(self.view.usage_bytes[self.row])), self.look["bright"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        index, look = self.view, self.look
        columns, rows = width - AXIS, height - 1
        if not len(index) or columns < 8 or rows < 2:
            return self.message("nothing was allocated in this step", width, height)
        picture = self._drawn(columns, rows)
        codes, styles = picture.codes.copy(), picture.styles.copy()
        cursor, peak = (np.searchsorted(picture.begins, (self.row, index.peak_row), side="right") - 1).tolist()
        codes[:, cursor], styles[:, cursor] = ord("|" if look.ascii_only else "│"), _CURSOR
        lines = raster.lines(codes, styles, [*kind_styles(look), look["text"], look["cursor"]])
        labels = [text.short_size(picture.top_bytes), *[""] * (rows - 2), "0"]
        if rows >= 6:
            labels[rows // 2] = text.short_size(picture.top_bytes / 2)
        marks = [" "] * columns
        marks[peak] = "▲"
        word = f"peak {text.size(index.peak_bytes)}"
        at = peak + 2 if peak + 2 + len(word) <= columns else max(0, peak - 1 - len(word))
        marks[at : at + len(word)] = word
        return [
            *([(label.rjust(AXIS - 1) + " ", look["dim"]), *line] for label, line in zip(labels, lines, strict=True)),
            [(" " * AXIS + "".join(marks)[:columns], look["bright"])],
        ]

    def _drawn(self, columns: int, rows: int) -> _Picture:
        index, letter = self.view, by_letter(self.look)
        key = index, columns, rows, letter
        if self._picture is None or self._picture[0] != key:
            begins = _begins(index, columns)
            shown = _rows_of(index, begins).tolist()
            held = np.array([index.held_by_category(row)[INDEX] for row in shown])
            held = np.cumsum(held, axis=1)  # [columns, categories], upper edges
            top_bytes = raster.nice_ceiling(float(index.peak_bytes))
            # The category of a cell is the one that holds the middle of it.
            middle = (np.arange(rows)[::-1] + 0.5) * top_bytes / rows
            styles = (held[None, :, :] <= middle[:, None, None]).sum(axis=2)
            letters = [ord(LETTERS[name]) if letter else ord("█") for name in ORDER]
            codes = np.array([*letters, ord(" ")], np.uint32)[styles]
            self._picture = key, _Picture(begins, codes, styles, top_bytes)
        return self._picture[1]


def _begins(index: StepIndex, columns: int) -> NDArray[np.int64]:
    """The first row of each column; what was there when the step began is one row."""
    first = index.begin_row
    return first + np.arange(columns) * (len(index) - first) // columns


def _rows_of(index: StepIndex, begins: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row that stands for each column: the one with the most memory, so that no peak is lost."""
    usage, ends = index.usage_bytes, np.maximum(np.append(begins[1:], len(index)), begins + 1)
    return np.array([a + int(np.argmax(usage[a:b])) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)])
