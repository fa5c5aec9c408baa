"""How well a training learns: loss, accuracy and the accuracy it must reach, on the axis of all panels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.style import Style
from textual import events

from memtui.widgets import text
from memtui.widgets.line_chart import Curve, drawn, held
from memtui.widgets.panel import Panel, axis_words
from memtui.widgets.raster import Line
from memtui.widgets.stacked_area import AXIS
from memtui.widgets.views.training import LearningView


class LearningChart(Panel):
    """Loss by the scale at the left, accuracy by the one at the right."""

    view: LearningView
    title = "learning"

    def on_click(self, event: events.Click) -> None:
        super().on_click(event)
        self.ask_for_time(event, self.view.axis, AXIS)

    def heading(self) -> Line:
        view, look = self.view, self.look
        line: Line = [(self.title, look["title"])]
        if view.title:
            line.append((f" {text.clean(view.title)}", look["focus"]))
        if view.iteration and view.peak and not self._whole(self.size.width):
            line.append((f"  {view.epoch} · {view.iteration:,}", look["text"]))
        return line

    def _whole(self, width: int) -> bool:
        """Return whether the lower edge has room for all that is to stand there."""
        ends = 2 * max(len(words) + 6 for words in axis_words(self.view.axis))
        return text.width(self._here()) + 3 + text.width(text.clean(self.view.peak)) <= width - ends

    def _here(self) -> str:
        epochs = f" of {self.view.epochs}" if self.view.epochs else ""
        return f"epoch {self.view.epoch}{epochs} · iteration {self.view.iteration:,}"

    def heading_right(self, width: int) -> Line:
        """Return what is known at the cursor."""
        view, look = self.view, self.look
        line: Line = []
        for mark, name, value, words in (
            ("loss", "loss", view.loss_here, f"{view.loss_here:.4g}"),
            ("accuracy", "accuracy", view.accuracy_here, f"{view.accuracy_here:.1f} %"),
            ("minimum", "at least", view.minimum_here, f"{view.minimum_here:g} %"),
        ):
            if value == value:
                glyph = _GLYPHS[mark] if look.ascii_only else _MARKS[mark]
                line += [(f"  {glyph} ", look[_ROLES[mark]]), (f"{name} " * (width >= _WORDY), look["dim"])]
                line.append((words, look["text"]))
        return line

    def footing(self) -> Line:
        return [(axis_words(self.view.axis)[0], self.look["dim"])]

    def footing_middle(self, width: int) -> Line:
        view, look = self.view, self.look
        if not view.iteration:
            return [(axis_words(view.axis)[1], look["dim"])]
        here, peak = (self._here(), look["text"]), (text.clean(view.peak), look["dim"])
        if not view.peak:
            return [here]
        return [here, (" · ", look["dim"]), peak] if self._whole(width) else [peak]

    def footing_right(self, width: int) -> Line:
        return [(axis_words(self.view.axis)[2], self.look["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, look = self.view, self.look
        columns, rows = width - AXIS, height
        if columns < 8 or rows < 2:
            return self.message("", width, height)
        if not len(view.t_ns):
            return self.message("nothing was told in this time", width, height)
        places = _places(view, 2 * columns)
        known = view.loss[np.isfinite(view.loss)]
        top = _ceiling(float(known.max())) if len(known) else 1.0
        heights = {
            "minimum": held(places, view.minimum, 2 * columns) / 100,
            "accuracy": held(places, view.accuracy, 2 * columns) / 100,
            "loss": held(places, view.loss, 2 * columns) / top,
        }
        curves = [
            Curve(values, look[_ROLES[name]], _GLYPHS[name], dashed=name == "minimum")
            for name, values in heights.items()
        ]
        cursor = view.axis.column(view.axis.cursor_ns, columns) if view.axis.marks_cursor else None
        left = _labels(rows, f"{top:.3g}", f"{top / 2:.3g}")
        right = _labels(rows, "100%", "50%")
        return [
            [
                (left[row].rjust(AXIS - 1) + " ", look[_ROLES["loss"]]),
                *_labelled(line, right[row], look[_ROLES["accuracy"]]),
            ]
            for row, line in enumerate(drawn(curves, rows, columns, look, cursor))
        ]


def _labelled(line: Line, label: str, style: Style) -> Line:
    """With a label at its right end, where the picture leaves room: the axis is as long as those of other panels."""
    if not line or not label or not line[-1][0].endswith(" " * (len(label) + 1)):
        return line
    run, ground = line[-1]
    return [*line[:-1], (run[: -len(label)], ground), (label, style)]


_WORDY = 90  # cells, from where on names stand at values
_ROLES = {"loss": "key", "accuracy": "live", "minimum": "warning"}
_MARKS = {"loss": "━", "accuracy": "━", "minimum": "┄"}
_GLYPHS = {"loss": "l", "accuracy": "a", "minimum": "-"}


def _places(view: LearningView, count: int) -> NDArray[np.int64]:
    width, first = view.axis.bins(count)
    return np.ceil((view.t_ns - view.axis.origin_ns) / width - 1e-9).astype(np.int64) - 1 - first


def _ceiling(value: float) -> float:
    """Return a number with one or two digits at or above a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.9999))


def _labels(rows: int, top: str, middle: str) -> list[str]:
    labels = [""] * rows
    labels[0], labels[-1] = top, "0"
    if rows >= 5:
        labels[rows // 2] = middle
    return labels
