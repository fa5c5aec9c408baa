"""The working set over time, with the resident set behind it."""

from __future__ import annotations

import numpy as np
from textual import events

from memtui.widgets import raster, text, ticks
from memtui.widgets.panel import FullWidthLine, Panel, axis_labels, line_width
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import GraphView, Tick

AXIS = 6  # cells of the value axis
STEPS = ("step", ticks.UNLABELLED)  # of a training: no warnings


class WssGraph(Panel):
    """A filled braille area with a fixed zero, and RSS as a thin line in it.

    RSS above the scale has a scale of its own above a break of the axis; without room for that the break has the value.
    """

    view: GraphView
    title = "working set"

    def on_click(self, event: events.Click) -> None:
        if self.view is not None:
            self.post_clicked_time(event, self.view.axis, AXIS)

    def heading(self) -> Line:
        if not self.view.note:
            line: Line = [(self.title, self.draw_style["title"])]
            if self.view.whose:
                line.append((f" {text.clean(self.view.whose)}", self.draw_style["focus"]))
            if self.view.focus:
                line += [("  ", self.draw_style["border"]), (text.clean(self.view.focus), self.draw_style["focus"])]
                line += [(f" {text.size_column(self.view.focus_now_bytes).rstrip()}", self.draw_style["focus"])]
            return line
        how = "" if self.view.resident == "RSS" else f"({text.clean(self.view.resident)})  "
        return [
            (f"resident set  {how}", self.draw_style["title"]),
            (text.size_column(self.view.rss_now_bytes), self.draw_style["rss"]),
        ]

    def heading_right(self, width: int) -> Line:
        view, draw_style = self.view, self.draw_style
        if view.note:
            label, note = "WSS n/a: ", text.clean(view.note)
            room = width - 8 - line_width(self.heading()) - len(label)
            note = text.sentence(note, min(max(8, room), text.width(note)))
            return [(label, draw_style["warning"]), (note, draw_style["dim"])]
        dim, bright = draw_style["dim"], draw_style["bright"]
        now: Line = [("now " if view.axis.follow else "here ", dim), (text.size_column(view.now_bytes), bright)]
        most: Line = [(text.size_column(view.max_bytes), draw_style["text"])]
        forms = ([*now, (" · max in sight ", dim), *most], [*now, (" · max ", dim), *most], now)
        room = width - 8 - line_width(self.heading())
        return next((line for line in forms if line_width(line) <= room), now)

    def footing(self) -> Line:
        return [(axis_labels(self.view.axis)[0], self.draw_style["dim"])]

    def footing_middle(self, width: int) -> Line:
        """Return the middle of the axis, or notes on the window at the cursor: as many as fit."""
        room = width - sum(len(label) + 6 for label in axis_labels(self.view.axis)[::2]) - 2
        line: Line = []
        parts = [(part, "warning") for part in self.view.caveats] + [(part, "text") for part in self.view.caption]
        for part, role in parts:
            label = text.clean(part)
            left = room - line_width(line) - 3 * bool(line)
            if text.width(label) > left:
                if line or left < 12:
                    continue
                label = text.sentence(label, left)
            line += [(" · ", self.draw_style["dim"])] * bool(line) + [(label, self.draw_style[role])]
        if not line:
            return [(axis_labels(self.view.axis)[1], self.draw_style["dim"])]
        return line

    def footing_right(self, width: int) -> Line:
        return [(axis_labels(self.view.axis)[2], self.draw_style["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        columns = width - AXIS
        if columns < 4 or not len(view.end_ns):
            return self.message(view.note or "waiting for the first window", width, height)
        area, line, focus = self._binned(columns)
        top, off_scale = self._scale(area, line)
        column = view.axis.column(view.axis.cursor_ns, columns) if view.axis.shows_cursor else None
        head: list[Line] = []
        if off_scale:
            band = 0 if height < _BAND_FROM else 2 if height < _HIGH_BAND_FROM else 3
            head = [*self._rss_band(line, band, columns, column), self._break(columns, own_scale=band > 0)]
        rows = height - len(head)
        codes = raster.area(area / top, rows, glyphs="braille" if not draw_style.ascii_only else raster.ASCII_VERTICAL)
        index = np.repeat(self._row_colours(rows)[:, None], columns, axis=1)
        if not off_scale and not view.note and np.isfinite(line).any():
            self._draw_rss(codes, index, line / top, rows)
        if focus is not None:
            self._draw_focus(codes, index, focus / top, rows)
        self._draw_ticks(codes, index, column)
        if column is not None:
            codes[:, column], index[:, column] = ord("|" if draw_style.ascii_only else "│"), _CURSOR
        styles = [
            *draw_style.heat,
            draw_style["rss"],
            draw_style["cursor"],
            *draw_style.focus_on_heat,
            draw_style["focus"],
        ]
        styles += [draw_style["key"], draw_style["warning"], draw_style["dim"]]
        labels = self._labels(rows, top)
        lines = raster.lines(codes, index, styles)
        if view.ticks:
            lines = [[(ticks.without_rests(run), style) for run, style in line] for line in lines]
        return head + [
            FullWidthLine([(labels[y].rjust(AXIS - 1) + " ", draw_style["dim"]), *line]) for y, line in enumerate(lines)
        ]

    def _binned(self, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return what is drawn, two values a column: the area, the resident set and the chosen range, if any."""
        view = self.view
        series = [view.rss_bytes, *([] if view.note else [view.wss_bytes])]
        series += [] if view.focus_bytes is None else [view.focus_bytes]
        count = columns if self.draw_style.ascii_only else columns * 2
        width, first = view.axis.bins(columns)
        width, first = width * columns / count, first * (count // columns)
        start, end = view.start_ns - view.axis.origin_ns, view.end_ns - view.axis.origin_ns
        bins = raster.bin_samples(start, end, np.stack(series), first, width, count)
        return bins[0 if view.note else 1], bins[0], None if view.focus_bytes is None else bins[-1]

    def _scale(self, area: np.ndarray, line: np.ndarray) -> tuple[float, bool]:
        """Return the value of the upper edge, and whether RSS lies above it."""
        high = float(np.nanmax(area)) if np.isfinite(area).any() else 1.0
        top = raster.nice_ceiling(high, headroom=1.02)
        if self.view.note or not np.isfinite(line).any():
            return top, False
        rss = float(np.nanmax(line))
        return (top, True) if rss > 1.6 * top else (raster.nice_ceiling(max(high, rss), headroom=1.02), False)

    def _rss_band(self, line: np.ndarray, rows: int, columns: int, cursor: int | None) -> list[Line]:
        """Return RSS over time between two bounds of its own, without a zero."""
        if not rows:
            return []
        draw_style = self.draw_style
        low, high = own_bounds(line)
        codes = np.full((rows, columns), ord(" "), np.uint32)
        curve = self._line((line - low) / (high - low), rows, columns, "-")
        codes[curve != 0] = curve[curve != 0]
        index = np.zeros((rows, columns), np.intp)
        if cursor is not None:
            codes[:, cursor], index[:, cursor] = ord("|" if draw_style.ascii_only else "│"), 1
        labels = [text.short_size(high), *[""] * (rows - 2), text.short_size(low)]
        painted = raster.lines(codes, index, [draw_style["rss"], draw_style["cursor"]])
        return [
            [(label.rjust(AXIS - 1) + " ", draw_style["rss"]), *run] for label, run in zip(labels, painted, strict=True)
        ]

    def _break(self, columns: int, *, own_scale: bool) -> Line:
        """Return the break of the axis: RSS above it has another scale, or is not drawn."""
        draw_style, rss = self.draw_style, self.view.rss_now_bytes
        name = text.clean(self.view.resident)
        figure = f"{name} {text.size_column(rss).strip()}" if rss is not None else f"{name} n/a"
        caption = f" {figure}, {'own scale' if own_scale else 'above the scale'} "
        left = max(0, columns - len(caption) - 2)
        return [
            ("≈".rjust(AXIS - 1) + " ", draw_style["rss"]),
            ("┈" * left, draw_style["faint"]),
            (caption, draw_style["rss"]),
            ("┈" * 2, draw_style["faint"]),
        ]

    def _line(self, heights: np.ndarray, rows: int, columns: int, glyph: str) -> np.ndarray:
        """Return a thin line through heights; 0 outside it."""
        if not self.draw_style.ascii_only:
            return raster.trace(heights, rows)
        codes = np.zeros((rows, columns), np.uint32)
        finite = np.flatnonzero(np.isfinite(heights))
        row = rows - 1 - np.clip(heights[finite] * rows, 0, rows - 1).astype(int)
        codes[row, finite] = ord(glyph)
        return codes

    def _draw_focus(self, codes: np.ndarray, index: np.ndarray, heights: np.ndarray, rows: int) -> None:
        """Draw the line of one range, in front of the area: the working set of the range is a part of the area."""
        curve = self._line(heights, rows, codes.shape[1], "o")
        there, filled = curve != 0, codes == _FULL
        index[there & filled] += _ON_HEAT
        index[there & ~filled] = _FOCUS
        codes[there] = curve[there]

    def _draw_rss(self, codes: np.ndarray, index: np.ndarray, heights: np.ndarray, rows: int) -> None:
        curve = self._line(heights, rows, codes.shape[1], "-")
        free = (codes == ord(" ")) & (curve != 0)
        codes[free], index[free] = curve[free], _RSS

    def _draw_ticks(self, codes: np.ndarray, index: np.ndarray, cursor: int | None) -> None:
        """Draw ticks and their labels, in blank cells only: each tick in the highest blank of its column.

        A column that is full to the top keeps its glyph, in the colour of the tick.
        """
        by_column = ticks.by_column(self.view.ticks, self.view.axis, codes.shape[1])
        blank = codes == ord(" ")
        if cursor is not None:
            blank[:, cursor] = False
            by_column.pop(cursor, None)  # the cursor is there, and the footing has the text
        rows: dict[int, dict[int, Tick]] = {}
        for column, tick in by_column.items():
            row = int(np.argmax(blank[:, column]))
            if tick.kind != ticks.UNLABELLED or blank[row, column]:
                index[row, column] = _USER_MARK if tick.kind == "mark" else _LABEL if tick.kind in STEPS else _TROUBLE
            if blank[row, column]:
                codes[row, column] = ord(ticks.TICKS[tick.kind])
            rows.setdefault(row, {})[column] = tick
        blank[:, list(by_column)] = False
        for row, there in rows.items():
            for column, cells in ticks.tick_labels(there, blank[row], self.draw_style.displayable):
                span = slice(column, column + len(cells))
                codes[row, span], index[row, span] = cells, _LABEL

    def _row_colours(self, rows: int) -> np.ndarray:
        """Return a style that is warmer with height. Resident memory alone is not heat: it stays cool."""
        if self.view.note:
            return np.full(rows, _RSS)
        return 2 + np.round(np.linspace(6, 0, rows) if rows > 1 else np.array([3.0])).astype(int)

    @staticmethod
    def _labels(rows: int, top: float) -> list[str]:
        labels = [""] * rows
        labels[0] = text.short_size(top)
        if rows >= 5:
            labels[rows // 2] = text.short_size(top / 2)
        labels[-1] = "0" if rows > 1 else labels[-1]
        return labels


_RSS, _CURSOR, _ON_HEAT, _FOCUS, _USER_MARK, _TROUBLE, _LABEL = (
    10,
    11,
    12,
    22,
    23,
    24,
    25,
)  # styles after the heat levels
_FULL = 0x28FF  # a cell with all dots
_BAND_FROM, _HIGH_BAND_FROM = 8, 11  # rows of the inside, from which on RSS is drawn on two rows, on three


def own_bounds(values: np.ndarray) -> tuple[float, float]:
    """Return bounds for a line without a zero: a tenth of its height apart at least, and on steps."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    span = max(high - low, 0.1 * high, 1.0)
    middle, step = (low + high) / 2, 2.0 ** np.floor(np.log2(span / 4))
    low, high = np.floor((middle - span / 2) / step) * step, np.ceil((middle + span / 2) / step) * step
    return max(0.0, float(low)), float(high)
