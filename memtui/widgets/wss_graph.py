"""The working set over time, with the resident set behind it."""

from __future__ import annotations

import numpy as np
from textual import events

from memtui.widgets import raster, text, ticks
from memtui.widgets.panel import FullWidthLine, Panel, axis_words, line_width
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import GraphView, Mark

AXIS = 6  # cells of the value axis
STEPS = ("step", ticks.WORDLESS)  # of a training: nothing is wrong with them


class WssGraph(Panel):
    """A filled braille area with a fixed zero. RSS is a thin line in it.

    Where it is off the scale it has one of its own above a break; without room for that only the break says so.
    """

    view: GraphView
    title = "working set"

    def on_click(self, event: events.Click) -> None:
        if self.view is not None:
            self.ask_for_time(event, self.view.axis, AXIS)

    def heading(self) -> Line:
        if not self.view.note:
            line: Line = [(self.title, self.look["title"])]
            if self.view.whose:
                line.append((f" {text.clean(self.view.whose)}", self.look["focus"]))
            if self.view.focus:
                line += [("  ", self.look["frame"]), (text.clean(self.view.focus), self.look["focus"])]
                line += [(f" {text.size_column(self.view.focus_now_bytes).rstrip()}", self.look["focus"])]
            return line
        how = "" if self.view.resident == "RSS" else f"({text.clean(self.view.resident)})  "
        return [
            (f"resident set  {how}", self.look["title"]),
            (text.size_column(self.view.rss_now_bytes), self.look["rss"]),
        ]

    def heading_right(self, width: int) -> Line:
        view, look = self.view, self.look
        if view.note:
            room = width - 38
            note = text.fit(text.clean(view.note), max(8, room - 12)).rstrip()
            return [("WSS n/a: ", look["warning"]), (note, look["dim"])]
        dim, bright = look["dim"], look["bright"]
        line: Line = [("now " if view.axis.follow else "here ", dim), (text.size_column(view.now_bytes), bright)]
        if width >= 68:
            line += [(" · median ", dim), (text.size_column(view.median_bytes), look["text"])]
        line += [(" · max ", dim), (text.size_column(view.max_bytes), look["text"])]
        return line

    def footing(self) -> Line:
        return [(axis_words(self.view.axis)[0], self.look["dim"])]

    def footing_middle(self, width: int) -> Line:
        """Return the middle of the axis, or what is to be said of the window at the cursor: as many parts as fit."""
        room = width - sum(len(words) + 6 for words in axis_words(self.view.axis)[::2]) - 2
        line: Line = []
        parts = [(part, "warning") for part in self.view.caveats] + [(part, "text") for part in self.view.caption]
        for part, role in parts:
            words = text.clean(part)
            left = room - line_width(line) - 3 * bool(line)
            if text.width(words) > left:
                if line or left < 12:
                    continue
                words = text.sentence(words, left)
            line += [(" · ", self.look["dim"])] * bool(line) + [(words, self.look[role])]
        if not line:
            return [(axis_words(self.view.axis)[1], self.look["dim"])]
        return line

    def footing_right(self, width: int) -> Line:
        return [(axis_words(self.view.axis)[2], self.look["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, look = self.view, self.look
        columns = width - AXIS
        if columns < 4 or not len(view.end_ns):
            return self.message(view.note or "waiting for the first window", width, height)
        area, line, focus = self._binned(columns)
        top, off_scale = self._scale(area, line)
        column = view.axis.column(view.axis.cursor_ns, columns) if view.axis.marks_cursor else None
        head: list[Line] = []
        if off_scale:
            band = 0 if height < _BAND_FROM else 2 if height < _HIGH_BAND_FROM else 3
            head = [*self._rss_band(line, band, columns, column), self._break(columns, own_scale=band > 0)]
        rows = height - len(head)
        codes = raster.area(area / top, rows, glyphs="braille" if not look.ascii_only else raster.ASCII_VERTICAL)
        index = np.repeat(self._row_colours(rows)[:, None], columns, axis=1)
        if not off_scale and not view.note and np.isfinite(line).any():
            self._draw_rss(codes, index, line / top, rows)
        if focus is not None:
            self._draw_focus(codes, index, focus / top, rows)
        self._draw_marks(codes, index, column)
        if column is not None:
            codes[:, column], index[:, column] = ord("|" if look.ascii_only else "│"), _CURSOR
        styles = [*look.heat, look["rss"], look["cursor"], *look.focus_on_heat, look["focus"]]
        styles += [look["key"], look["warning"], look["dim"]]
        labels = self._labels(rows, top)
        lines = raster.lines(codes, index, styles)
        if view.marks:
            lines = [[(ticks.without_rests(run), style) for run, style in line] for line in lines]
        return head + [
            FullWidthLine([(labels[y].rjust(AXIS - 1) + " ", look["dim"]), *line]) for y, line in enumerate(lines)
        ]

    def _binned(self, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return what is drawn, two values a column: the area, the resident set and the range looked at, if any."""
        view = self.view
        series = [view.rss_bytes, *([] if view.note else [view.wss_bytes])]
        series += [] if view.focus_bytes is None else [view.focus_bytes]
        count = columns if self.look.ascii_only else columns * 2
        width, first = view.axis.bins(columns)
        width, first = width * columns / count, first * (count // columns)
        begin, end = view.begin_ns - view.axis.origin_ns, view.end_ns - view.axis.origin_ns
        bins = raster.bin_samples(begin, end, np.stack(series), first, width, count)
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
        """Return RSS over time between two bounds of its own, without a zero below it."""
        if not rows:
            return []
        look = self.look
        low, high = own_bounds(line)
        codes = np.full((rows, columns), ord(" "), np.uint32)
        marks = self._line((line - low) / (high - low), rows, columns, "-")
        codes[marks != 0] = marks[marks != 0]
        index = np.zeros((rows, columns), np.intp)
        if cursor is not None:
            codes[:, cursor], index[:, cursor] = ord("|" if look.ascii_only else "│"), 1
        labels = [text.short_size(high), *[""] * (rows - 2), text.short_size(low)]
        painted = raster.lines(codes, index, [look["rss"], look["cursor"]])
        return [[(label.rjust(AXIS - 1) + " ", look["rss"]), *run] for label, run in zip(labels, painted, strict=True)]

    def _break(self, columns: int, *, own_scale: bool) -> Line:
        """Return where the axis is broken: what is above has another scale, or is not drawn."""
        look, rss = self.look, self.view.rss_now_bytes
        name = text.clean(self.view.resident)
        known = f"{name} {text.size_column(rss).strip()}" if rss is not None else f"{name} n/a"
        words = f" {known}, {'own scale' if own_scale else 'above the scale'} "
        left = max(0, columns - len(words) - 2)
        return [
            ("≈".rjust(AXIS - 1) + " ", look["rss"]),
            ("┈" * left, look["faint"]),
            (words, look["rss"]),
            ("┈" * 2, look["faint"]),
        ]

    def _line(self, heights: np.ndarray, rows: int, columns: int, glyph: str) -> np.ndarray:
        """Return a thin line through heights; 0 where it is not."""
        if not self.look.ascii_only:
            return raster.trace(heights, rows)
        marks = np.zeros((rows, columns), np.uint32)
        known = np.flatnonzero(np.isfinite(heights))
        place = rows - 1 - np.clip(heights[known] * rows, 0, rows - 1).astype(int)
        marks[place, known] = ord(glyph)
        return marks

    def _draw_focus(self, codes: np.ndarray, index: np.ndarray, heights: np.ndarray, rows: int) -> None:
        """Draw the line of one range, in front of the area: its working set is a part of it."""
        marks = self._line(heights, rows, codes.shape[1], "o")
        there, filled = marks != 0, codes == _FULL
        index[there & filled] += _ON_HEAT
        index[there & ~filled] = _FOCUS
        codes[there] = marks[there]

    def _draw_rss(self, codes: np.ndarray, index: np.ndarray, heights: np.ndarray, rows: int) -> None:
        marks = self._line(heights, rows, codes.shape[1], "-")
        free = (codes == ord(" ")) & (marks != 0)
        codes[free], index[free] = marks[free], _RSS

    def _draw_marks(self, codes: np.ndarray, index: np.ndarray, cursor: int | None) -> None:
        """Draw ticks and their words, in blanks only: each tick in the highest of its column.

        A column that is full to the top keeps what is drawn there, in the colour of the tick.
        """
        marks = ticks.by_column(self.view.marks, self.view.axis, codes.shape[1])
        blank = codes == ord(" ")
        if cursor is not None:
            blank[:, cursor] = False
            marks.pop(cursor, None)  # the cursor is there, and what happened stands below
        rows: dict[int, dict[int, Mark]] = {}
        for column, mark in marks.items():
            row = int(np.argmax(blank[:, column]))
            if mark.kind != ticks.WORDLESS or blank[row, column]:
                index[row, column] = _MARK if mark.kind == "mark" else _WORDS if mark.kind in STEPS else _TROUBLE
            if blank[row, column]:
                codes[row, column] = ord(ticks.TICKS[mark.kind])
            rows.setdefault(row, {})[column] = mark
        blank[:, list(marks)] = False
        for row, there in rows.items():
            for column, cells in ticks.words_beside(there, blank[row], self.look.plain):
                place = slice(column, column + len(cells))
                codes[row, place], index[row, place] = cells, _WORDS

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


_RSS, _CURSOR, _ON_HEAT, _FOCUS, _MARK, _TROUBLE, _WORDS = 10, 11, 12, 22, 23, 24, 25  # styles after the heat levels
_FULL = 0x28FF  # a cell with all dots
_BAND_FROM, _HIGH_BAND_FROM = 8, 11  # rows of the inside, from which on RSS is drawn on two rows, on three


def own_bounds(values: np.ndarray) -> tuple[float, float]:
    """Bounds for a line that needs no zero: a tenth of its height apart at least, and on steps, so that they stand."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    span = max(high - low, 0.1 * high, 1.0)
    middle, step = (low + high) / 2, 2.0 ** np.floor(np.log2(span / 4))
    low, high = np.floor((middle - span / 2) / step) * step, np.ceil((middle + span / 2) / step) * step
    return max(0.0, float(low)), float(high)
