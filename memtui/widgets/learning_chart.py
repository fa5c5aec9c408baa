"""The learning curves: loss, accuracy and the accuracy to reach, on the time axis that all panels share."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray
from rich.style import Style
from textual import events

from memtui.widgets import text
from memtui.widgets.line_chart import Curve, drawn, forward_fill
from memtui.widgets.panel import Panel, axis_labels, line_width
from memtui.widgets.raster import Line
from memtui.widgets.stacked_area import AXIS
from memtui.widgets.views.training import LearningView


class LearningChart(Panel):
    """Loss by the scale at the left, accuracy by the one at the right."""

    view: LearningView
    title = "learning"

    def on_click(self, event: events.Click) -> None:
        super().on_click(event)
        self.post_clicked_time(event, self.view.axis, AXIS)

    def heading(self) -> Line:
        view, draw_style = self.view, self.draw_style
        line: Line = [(self.title, draw_style["title"])]
        if view.title:
            line.append((f" {text.clean(view.title)}", draw_style["focus"]))
        if view.iteration and view.peak and not self._whole(self.size.width):
            line.append((f"  epoch {view.epoch}", draw_style["text"]))
        return line

    def _whole(self, width: int) -> bool:
        """Return whether the lower edge has room for both parts of its text."""
        ends = 2 * max(len(label) + 6 for label in axis_labels(self.view.axis))
        return text.width(self._here()) + 3 + text.width(text.clean(self.view.peak)) <= width - ends

    def _here(self) -> str:
        epochs = f" of {self.view.epochs}" if self.view.epochs else ""
        return f"epoch {self.view.epoch}{epochs} · iteration {self.view.iteration:,}"

    def heading_right(self, width: int) -> Line:
        """Return the values at the cursor, with as many of their names as have room."""
        lines = [
            self._values(names) for names in (("loss", "accuracy", "minimum"), ("loss", "accuracy"), ("loss",), ())
        ]
        room = width - line_width(self.heading()) - 8
        return next((line for line in lines if line_width(line) <= room), lines[-1])

    def _values(self, names: Collection[str]) -> Line:
        """Return the values at the cursor; ``names``: of the curves that are named."""
        view, draw_style = self.view, self.draw_style
        line: Line = []
        for curve, name, value, formatted in (
            ("loss", "loss", view.loss_here, f"{view.loss_here:.4g}"),
            ("accuracy", "accuracy", view.accuracy_here, f"{view.accuracy_here:.1f} %"),
            ("minimum", "at least", view.minimum_here, f"{view.minimum_here:g} %"),
        ):
            if value == value:
                glyph = _GLYPHS[curve] if draw_style.ascii_only else _LINE_GLYPHS[curve]
                line += [
                    (f"  {glyph} ", draw_style[_ROLES[curve]]),
                    (f"{name} " * (curve in names), draw_style["dim"]),
                ]
                line.append((formatted, draw_style["text"]))
        return line

    def footing(self) -> Line:
        return [(axis_labels(self.view.axis)[0], self.draw_style["dim"])]

    def footing_middle(self, width: int) -> Line:
        view, draw_style = self.view, self.draw_style
        if not view.iteration:
            return [(axis_labels(view.axis)[1], draw_style["dim"])]
        here, peak = (self._here(), draw_style["text"]), (text.clean(view.peak), draw_style["dim"])
        if not view.peak:
            return [here]
        return [here, (" · ", draw_style["dim"]), peak] if self._whole(width) else [peak]

    def footing_right(self, width: int) -> Line:
        return [(axis_labels(self.view.axis)[2], self.draw_style["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        columns, rows = width - AXIS, height
        if columns < 8 or rows < 2:
            return self.message("", width, height)
        if not len(view.t_ns):
            return self.message("nothing was told in this time", width, height)
        point_columns = _columns(view, 2 * columns)
        finite = view.loss[np.isfinite(view.loss)]
        top = _ceiling(float(finite.max())) if len(finite) else 1.0
        heights = {
            "minimum": forward_fill(point_columns, view.minimum, 2 * columns) / 100,
            "accuracy": forward_fill(point_columns, view.accuracy, 2 * columns) / 100,
            "loss": forward_fill(point_columns, view.loss, 2 * columns) / top,
        }
        curves = [
            Curve(values, draw_style[_ROLES[name]], _GLYPHS[name], dashed=name == "minimum")
            for name, values in heights.items()
        ]
        cursor = view.axis.column(view.axis.cursor_ns, columns) if view.axis.shows_cursor else None
        left = _labels(rows, f"{top:.3g}", f"{top / 2:.3g}")
        right = _labels(rows, "100%", "50%")
        return [
            [
                (left[row].rjust(AXIS - 1) + " ", draw_style[_ROLES["loss"]]),
                *_labelled(line, right[row], draw_style[_ROLES["accuracy"]]),
            ]
            for row, line in enumerate(drawn(curves, rows, columns, draw_style, cursor))
        ]


def _labelled(line: Line, label: str, style: Style) -> Line:
    """Return the line with a label over blanks at its right end: the axis stays as long as that of other panels."""
    if not line or not label or not line[-1][0].endswith(" " * (len(label) + 1)):
        return line
    run, ground = line[-1]
    return [*line[:-1], (run[: -len(label)], ground), (label, style)]


_ROLES = {"loss": "key", "accuracy": "live", "minimum": "warning"}
_LINE_GLYPHS = {"loss": "━", "accuracy": "━", "minimum": "┄"}
_GLYPHS = {"loss": "l", "accuracy": "a", "minimum": "-"}


def _columns(view: LearningView, count: int) -> NDArray[np.int64]:
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
