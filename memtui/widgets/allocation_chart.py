"""The memory of one training step, allocation by allocation: an area for each kind of tensor, on top of each other."""

from __future__ import annotations

import numpy as np
from textual import events
from textual.message import Message

from memtui.analysis.step_trace import CATEGORIES, StepTrace
from memtui.widgets import raster, text
from memtui.widgets.kinds import LETTERS, ORDER, by_letter, kind_styles
from memtui.widgets.panel import Panel, line_width
from memtui.widgets.raster import Line

AXIS = 6
_INDEX = [CATEGORIES.index(name) for name in ORDER]
_BLANK, _CURSOR = len(ORDER), len(ORDER) + 1  # styles behind those of the categories


class AllocationChart(Panel):
    """``view`` is a step; ``row`` the allocation under the cursor."""

    view: StepTrace
    row = 0
    title = "allocations"

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
        if 0 <= column < self.columns and len(self.view):
            self.post_message(self.Pointed(int(_rows_of(self.view, self.columns)[column])))

    def heading_right(self, width: int) -> Line:
        """What is held at the cursor."""
        trace, look = self.view, self.look
        if not len(trace):
            return []
        held = trace.by_category()[self.row][_INDEX].tolist()
        styles = kind_styles(look)
        there = [(place, name) for place, name in enumerate(ORDER) if held[place]]
        sizes = True
        while there:
            line: Line = []
            for place, name in there:
                mark = LETTERS[name] if by_letter(look) else "■"
                line += [(f"  {mark} ", styles[place]), (name, look["dim"])]
                line += [(" " + text.size(held[place]), look["text"])] * sizes
            if line_width(line) + len(self.title) + 8 <= width:
                return line
            if sizes:
                sizes = False
            else:
                there.remove(min(there, key=lambda part: held[part[0]]))
        return []

    def footing(self) -> Line:
        """What happened at the cursor."""
        trace, look = self.view, self.look
        if not len(trace):
            return []
        delta = int(trace.delta_bytes[self.row])
        sign = "+" if delta > 0 else "-"
        what = trace.name(int(trace.op[self.row])).rpartition("/")[2] or ("there before" if self._before else "freed")
        layer = trace.name(int(trace.layer[self.row]))
        words = f"{self.row + 1} of {len(trace)}: {sign}{text.size(abs(delta))} {what}" + (
            f" in layer {layer}" if layer else ""
        )
        return [(text.clean(words), look["text"])]

    def footing_right(self, width: int) -> Line:
        if not len(self.view):
            return []
        return [("held ", self.look["dim"]), (text.size(int(self.view.usage_bytes[self.row])), self.look["bright"])]

    @property
    def _before(self) -> bool:
        return self.row < self.view.existing

    def paint_inside(self, width: int, height: int) -> list[Line]:
        trace, look = self.view, self.look
        columns, rows = width - AXIS, height - 1
        if not len(trace) or columns < 8 or rows < 2:
            return self.message("nothing was allocated in this step", width, height)
        shown = _rows_of(trace, columns)
        held = np.cumsum(trace.by_category()[shown][:, _INDEX], axis=1)  # [columns, categories], upper edges
        top = raster.nice_ceiling(float(trace.peak_bytes))
        # The category of a cell is the one that holds the middle of it.
        middle = (np.arange(rows)[::-1] + 0.5) * top / rows
        index = (held[None, :, :] <= middle[:, None, None]).sum(axis=2)
        letters = [ord(LETTERS[name]) if by_letter(look) else ord("█") for name in ORDER]
        codes = np.array([*letters, ord(" ")], np.uint32)[index]
        cursor = int(np.searchsorted(_begins(trace, columns), self.row, side="right")) - 1
        codes[:, cursor], index[:, cursor] = ord("|" if look.ascii_only else "│"), _CURSOR
        peak = int(np.searchsorted(_begins(trace, columns), trace.peak_row, side="right")) - 1
        lines = raster.lines(codes, index, [*kind_styles(look), look["text"], look["cursor"]])
        labels = [text.short_size(top), *[""] * (rows - 2), "0"]
        if rows >= 6:
            labels[rows // 2] = text.short_size(top / 2)
        marks = [" "] * columns
        marks[peak] = "▲"
        word = f"peak {text.size(trace.peak_bytes)}"
        at = peak + 2 if peak + 2 + len(word) <= columns else max(0, peak - 1 - len(word))
        marks[at : at + len(word)] = word
        return [
            *([(label.rjust(AXIS - 1) + " ", look["dim"]), *line] for label, line in zip(labels, lines, strict=True)),
            [(" " * AXIS + "".join(marks)[:columns], look["bright"])],
        ]


def _begins(trace: StepTrace, columns: int) -> np.ndarray:
    """The first row of each column; what was there when the step began is one row."""
    first = max(0, trace.existing - 1)
    return first + np.arange(columns) * (len(trace) - first) // columns


def _rows_of(trace: StepTrace, columns: int) -> np.ndarray:
    """The row that stands for each column: the one with the most memory, so that no peak is lost."""
    begins, usage = _begins(trace, columns), trace.usage_bytes
    ends = np.maximum(np.append(begins[1:], len(trace)), begins + 1)
    return np.array([a + int(np.argmax(usage[a:b])) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)])
