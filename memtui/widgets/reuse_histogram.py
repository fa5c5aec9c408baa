"""How far back a touched page was last touched: reuse distances, or the misses of a smaller memory."""

from __future__ import annotations

import numpy as np

from memtui.views import ReuseView
from memtui.widgets import raster, text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line

AXIS = 6


class ReuseHistogram(Panel):
    """Bars over a log2 axis; ``m`` turns them into the miss-ratio curve of the same touches."""

    view: ReuseView
    misses = False

    def toggle(self) -> None:
        """Histogram or miss ratio."""
        self.misses = not self.misses
        if self.view is not None:
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
        if view.note or view.interval_s is None:
            return []
        line = [(f"per page and {view.interval_s:.3g} s", self.look["dim"])]
        if view.whose:
            line.append((self.look.plain(f" · {view.whose}"), self.look["warning"]))
        return line

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view.note or not len(view.edges_bytes):
            return self.message(view.note or "no page was touched twice yet", width, height)
        rows = height - 2
        if rows < 1 or width < AXIS + 8:
            return [self._sentence(width)]
        return [*(self._curve if self.misses else self._bars)(width, rows), self._sentence(width)]

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
        lines = self._framed(codes, index, rows, 1.0)
        edges = np.geomspace(low, high, columns + 1)
        return [*lines, self._sizes(edges, 1, columns)]

    def _framed(self, codes: np.ndarray, index: np.ndarray, rows: int, top: float) -> list[Line]:
        look = self.look
        labels = [""] * rows
        labels[0] = f"{top * 100:.0f} %"
        if rows >= 6:
            labels[rows // 2] = f"{top * 50:.3g} %"
        return [
            [(labels[y].rjust(AXIS - 1) + " ", look["dim"]), *raster.runs(codes[y], index[y], look.heat)]
            for y in range(rows)
        ]

    def _sizes(self, edges: np.ndarray, each: int, columns: int) -> Line:
        """Powers of two under the bars, as many as fit with air between them."""
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

    def _sentence(self, width: int) -> Line:
        view, look = self.view, self.look
        if self.misses:
            return self._miss_sentence()
        low, high = view.half_low_bytes, view.half_high_bytes
        if low is None or high is None:
            return [(" half of all touches never come back", look["text"])]
        bounds = between(low, high)
        words = " half of all touches come back within "
        if len(words) + len(bounds) > width:
            words = " half of touches return within "
        return [(words, look["dim"]), (bounds, look["bright"])]

    def _miss_sentence(self) -> Line:
        view, look = self.view, self.look
        if not len(view.size_bytes):
            return []
        enough = np.flatnonzero(view.miss_high <= 0.1)
        place = int(enough[0]) if len(enough) else len(view.size_bytes) - 1
        low, high = view.miss_low[place] * 100, view.miss_high[place] * 100
        ratio = f"{low:.1f}–{high:.1f} %" if high - low >= 0.05 else f"{high:.1f} %"
        return [
            (" with ", look["dim"]),
            (text.size(view.size_bytes[place]), look["bright"]),
            (" of memory ", look["dim"]),
            (look.plain(ratio), look["bright"]),
            (" of touches miss", look["dim"]),
        ]


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
