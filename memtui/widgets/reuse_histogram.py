"""How far back a touched page was last touched: reuse distances, or the misses of a smaller memory."""

from __future__ import annotations

import math

import numpy as np
from textual import events

from memtui.analysis.miss_ratio import bounds_are_close
from memtui.widgets import raster, text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import ReuseView

AXIS = 6
_BOTH_ROWS = 9  # of the inside, from which on both sentences stand there


class ReuseHistogram(Panel):
    """Bars over a log2 axis; ``m`` turns them into the miss-ratio curve of the same touches."""

    view: ReuseView
    misses = False
    size_bytes: float | None = None  # memory the sentence is about; None: the least that misses a tenth at most

    def toggle(self) -> None:
        """Show the histogram or the miss ratio."""
        self.misses = not self.misses
        if self.view is not None:
            self.repaint()

    def move(self, by: int) -> None:
        """Speak of more (1) or less (-1) memory; shows the curve first."""
        if self.view is None or not len(self.view.size_bytes):
            return
        if not self.misses:
            self.toggle()
            return
        place = max(0, min(len(self.view.size_bytes) - 1, self._place + by))
        self.size_bytes = float(self.view.size_bytes[place])
        self.repaint()

    @property
    def _place(self) -> int:
        """Return the number of the size that is spoken of."""
        sizes = self.view.size_bytes
        if self.size_bytes is not None:
            return int(np.argmin(np.abs(np.log(sizes) - np.log(self.size_bytes))))
        enough = np.flatnonzero(self.view.miss_high <= 0.1)
        return int(enough[0]) if len(enough) else len(sizes) - 1

    def on_click(self, event: events.Click) -> None:
        columns, column = self.size.width - 2 - AXIS, event.x - 1 - AXIS
        if self.misses and self.view is not None and len(self.view.size_bytes) and 0 <= column < columns:
            low, high = self.view.size_bytes[0], self.view.size_bytes[-1]
            self.size_bytes = float(low * (high / low) ** ((column + 0.5) / columns))
            self.repaint()

    def heading(self) -> Line:
        return [("miss ratio" if self.misses else "reuse distance", self.look["title"])]

    def heading_right(self, width: int) -> Line:
        other = "reuse distance" if self.misses else "miss ratio"
        return [("m", self.look["key"]), (": " + other, self.look["dim"])]

    def footing_right(self, width: int) -> Line:
        view = self.view
        if self.misses or view.first_share is None:
            return []
        return [("first touch ", self.look["dim"]), (text.percent(view.first_share), self.look["text"])]

    def footing(self) -> Line:
        view = self.view
        if view.note or not view.interval:
            return []
        line = [(f"per page and {view.interval}", self.look["dim"])]
        if view.whose:
            line.append((f" · {view.whose}", self.look["warning"]))
        return line

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view.note or not len(view.edges_bytes):
            return self.message(view.note or "no page was touched twice yet", width, height)
        said = self._sentences(width, height)
        rows = height - 1 - len(said)
        if rows < 1 or width < AXIS + 8:
            return said
        return [*(self._curve if self.misses else self._bars)(width, rows), *said]

    def _bars(self, width: int, rows: int) -> list[Line]:
        view, look = self.view, self.look
        columns = width - AXIS
        edges, share = fold(view.edges_bytes, view.upper, columns)
        each = max(1, columns // len(share))
        high = float(share.max())
        top = next((s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8) if s >= high), 1.0)
        codes = raster.bars(
            np.repeat(share / top, each), rows, glyphs=raster.ASCII_VERTICAL if look.ascii_only else raster.VERTICAL
        )
        level = 2 + np.round(np.linspace(6, 0, rows)).astype(int)
        index = np.repeat(level[:, None], codes.shape[1], axis=1)
        lines = self._framed(codes, index, rows, top)
        return [*lines, self._sizes(edges, each, columns)]

    def _curve(self, width: int, rows: int) -> list[Line]:
        view, look = self.view, self.look
        columns = width - AXIS
        low, high = view.size_bytes[0], view.size_bytes[-1]
        at = np.geomspace(low, high, columns if look.ascii_only else columns * 2)
        place = np.clip(np.searchsorted(view.size_bytes, at, side="right") - 1, 0, len(view.size_bytes) - 1)
        sure, possible = view.miss_low[place], view.miss_high[place]
        glyphs = "braille" if not look.ascii_only else raster.ASCII_VERTICAL
        codes = raster.area(possible, rows, glyphs=glyphs)
        inner = raster.area(sure, rows, glyphs=glyphs)
        # Certain misses bright, those between the two bounds dark.
        index = np.where(inner != ord(" "), 6, 2)
        cursor = round(float(np.log(view.size_bytes[self._place] / low) / np.log(high / low)) * (columns - 1))
        codes[:, cursor], index[:, cursor] = ord("|" if look.ascii_only else "│"), len(look.heat)
        lines = self._framed(codes, index, rows, 1.0)
        edges = np.geomspace(low, high, columns + 1)
        return [*lines, self._sizes(edges, 1, columns)]

    def _framed(self, codes: np.ndarray, index: np.ndarray, rows: int, top: float) -> list[Line]:
        look = self.look
        labels = [""] * rows
        labels[0] = f"{top * 100:.0f} %"
        if rows >= 6:
            labels[rows // 2] = f"{top * 50:.3g} %"
        lines = raster.lines(codes, index, [*look.heat, look["cursor"]])
        return [[(labels[y].rjust(AXIS - 1) + " ", look["dim"]), *line] for y, line in enumerate(lines)]

    def _sizes(self, edges: np.ndarray, each: int, columns: int) -> Line:
        """Return powers of two under the bars, as many as fit with air between them."""
        words = [" "] * columns
        free = 0
        lowest, highest = int(np.ceil(np.log2(edges[0]) - 1e-6)), int(np.floor(np.log2(edges[-1]) + 1e-6))
        log = np.log2(edges)
        stride = max(1, int(np.ceil((highest - lowest + 1) * 6 / columns)))
        for power in range(lowest, highest + 1, stride):
            place = int(np.searchsorted(log, power - 1e-6)) * each
            label = text.short_size(2.0**power)
            if place >= free and place + len(label) <= columns:
                words[place : place + len(label)] = label
                free = place + len(label) + 2
        return [(" " * AXIS + "".join(words), self.look["dim"])]

    def _sentences(self, width: int, height: int) -> list[Line]:
        """Return what less memory would cost, said beside either picture where there is room."""
        if self.misses:
            return [self._miss_sentence(width)]
        half = self._half_sentence(width)
        if not half:
            return [self._miss_sentence(width)]
        both = height >= _BOTH_ROWS and len(self.view.size_bytes)
        return [half, *([self._miss_sentence(width)] if both else [])]

    def _half_sentence(self, width: int) -> Line:
        """Empty where the bounds are too far apart to tell anything."""
        view, look = self.view, self.look
        low, high = view.half_low_bytes, view.half_high_bytes
        if low is None or high is None:
            return [(" half of all touches are first touches so far", look["text"])]
        if not bounds_are_close(low, high):
            return []
        bounds = between(low, high)
        words = " half of all touches come back within "
        if len(words) + len(bounds) > width:
            words = " half of touches return within "
        return [(words, look["dim"]), (bounds, look["bright"])]

    def _miss_sentence(self, width: int) -> Line:
        view, look = self.view, self.look
        if not len(view.size_bytes):
            return []
        place = self._place
        memory, ratio = (
            text.size(view.size_bytes[place]),
            bounds(float(view.miss_low[place]), float(view.miss_high[place])),
        )
        window = f" per page and {view.interval} window" if view.interval else ""
        ways = (f" of touches{window} would miss", " of touches would miss", " would miss")
        words = next((w for w in ways if len(memory) + len(ratio) + len(w) + 8 <= width), ways[-1])
        return [
            (" with ", look["dim"]),
            (memory, look["bright"]),
            (", ", look["dim"]),
            (ratio, look["bright"]),
            (words, look["dim"]),
        ]


def bounds(low: float, high: float) -> str:
    """Two ratios as ``3.1-4.9 %``, rounded outwards so that they stay bounds; one where they are the same."""
    factor = 10 if high < 0.1 else 1
    first, last = math.floor(low * 100 * factor + 1e-9) / factor, math.ceil(high * 100 * factor - 1e-9) / factor
    if last - first <= 1 / factor and round(low * 100, 6) == round(high * 100, 6):
        return f"{high * 100:.1f} %"
    return f"{first:g}-{last:g} %"


def between(low: float, high: float) -> str:
    """Two bounds with one unit where they share it: ``131-139 MiB``."""
    first, second = text.size(low), text.size(high)
    if first == second:
        return first
    if first.split()[-1] == second.split()[-1]:
        first = first.split()[0]
    return f"{first}-{second}"


def fold(edges: np.ndarray, share: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Bins trimmed to whole powers of two around the data, then merged until they fit the columns."""
    used = np.flatnonzero(share > 0)
    if len(used):
        per = max(1, round(1 / max(1e-9, np.log2(edges[1] / edges[0]))))
        first = max(0, (used[0] // per - 1) * per)
        last = min(len(share), (used[-1] // per + 2) * per)
        edges, share = edges[first : last + 1], share[first:last]
    merge = int(np.ceil(len(share) / max(1, columns)))
    if merge > 1:
        starts = np.arange(0, len(share), merge)
        share = np.add.reduceat(share, starts)
        edges = np.append(edges[starts], edges[-1])
    return edges, share
