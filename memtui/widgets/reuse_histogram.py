"""Reuse distances of accesses, or the miss ratio of a smaller memory."""

from __future__ import annotations

import math

import numpy as np
from textual import events

from memtui.analysis.miss_ratio import are_one_figure, bounds_are_close
from memtui.core.fault_latency import FILE, SWAP
from memtui.core.units import duration_ns
from memtui.widgets import raster, text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import ReuseView

AXIS = 6
FEW = 0.1  # a memory that misses no more is enough
WIDE = 0.1  # a miss ratio whose bounds are further apart is given as its estimate
_BOTH_ROWS = 9  # inside the border, from which both sentences are shown


class ReuseHistogram(Panel):
    """Bars over a log2 axis; ``m`` shows the miss-ratio curve of the same accesses."""

    view: ReuseView
    misses = False
    size_bytes: float | None = None  # memory the sentence is about; None: the least that is enough

    def toggle(self) -> None:
        """Show the histogram or the miss ratio."""
        self.misses = not self.misses
        if self.view is not None:
            self.repaint()

    def move(self, by: int) -> None:
        """Move the cursor to more (1) or less (-1) memory; the first move shows the curve."""
        if self.view is None or not len(self.view.size_bytes):
            return
        if not self.misses:
            self.toggle()
            return
        index = max(0, min(len(self.view.size_bytes) - 1, self._size_index + by))
        self.size_bytes = float(self.view.size_bytes[index])
        self.repaint()

    def choose_size(self, size_bytes: float) -> bool:
        """Show the miss ratio of a memory size; return False where there is no curve yet."""
        if self.view is None or not len(self.view.size_bytes):
            return False
        self.misses, self.size_bytes = True, size_bytes
        self.repaint()
        return True

    @property
    def _chosen_bytes(self) -> float:
        """Return the memory size that the sentence is about; it may lie outside the curve."""
        return float(self.view.size_bytes[self._size_index]) if self.size_bytes is None else self.size_bytes

    @property
    def _misses(self) -> tuple[float, float, float | None]:
        """Return the miss ratio of that size: its two bounds, and its estimate where there is one."""
        view, index = self.view, self._size_index
        if self._chosen_bytes < view.size_bytes[0]:  # less memory never misses less; more than the last size is level
            return float(view.miss_low[0]), 1.0, None
        estimate = None if view.miss_estimate is None else float(view.miss_estimate[index])
        return float(view.miss_low[index]), float(view.miss_high[index]), estimate

    @property
    def _size_index(self) -> int:
        """Return the index of the step of the curve on which that memory size is.

        Enough misses a tenth at most; where more are first touches, which every memory misses, a tenth of the others.
        """
        sizes = self.view.size_bytes
        if self.size_bytes is not None:
            return max(0, int(np.searchsorted(sizes, self.size_bytes, side="right")) - 1)
        least = float(self.view.miss_high[-1])
        enough = np.flatnonzero(self.view.miss_high <= (FEW if least <= FEW else least + FEW * (1 - least)))
        return int(enough[0])

    def on_click(self, event: events.Click) -> None:
        columns, column = self.size.width - 2 - AXIS, event.x - 1 - AXIS
        if self.misses and self.view is not None and len(self.view.size_bytes) and 0 <= column < columns:
            low, high = self.view.size_bytes[0], self.view.size_bytes[-1]
            self.size_bytes = float(low * (high / low) ** ((column + 0.5) / columns))
            self.repaint()

    def heading(self) -> Line:
        return [("miss ratio" if self.misses else "reuse distance", self.draw_style["title"])]

    def heading_right(self, width: int) -> Line:
        other = "reuse distance" if self.misses else "miss ratio"
        return [("m", self.draw_style["key"]), (": " + other, self.draw_style["dim"])]

    def footing_right(self, width: int) -> Line:
        view = self.view
        if self.misses or view.first_share is None:
            return []
        return [("first touch ", self.draw_style["dim"]), (text.percent(view.first_share), self.draw_style["text"])]

    def footing(self) -> Line:
        view = self.view
        if view.note or not view.interval:
            return []
        line = [(f"per page and {view.interval}", self.draw_style["dim"])]
        if view.whose:
            line.append((f" · {view.whose}", self.draw_style["warning"]))
        return line

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view.note or not len(view.edges_bytes):
            return self.message(view.note or "no page was touched twice yet", width, height)
        sentences = self._sentences(width, height)
        rows = height - 1 - len(sentences)
        if rows < 1 or width < AXIS + 8:
            return sentences
        return [*(self._curve if self.misses else self._bars)(width, rows), *sentences]

    def _bars(self, width: int, rows: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        columns = width - AXIS
        edges, share = fold(view.edges_bytes, view.upper, columns)
        each = max(1, columns // len(share))
        high = float(share.max())
        top = next((s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8) if s >= high), 1.0)
        codes = raster.bars(
            np.repeat(share / top, each),
            rows,
            glyphs=raster.ASCII_VERTICAL if draw_style.ascii_only else raster.VERTICAL,
        )
        level = 2 + np.round(np.linspace(6, 0, rows)).astype(int)
        index = np.repeat(level[:, None], codes.shape[1], axis=1)
        lines = self._framed(codes, index, rows, top)
        return [*lines, self._sizes(edges, each, columns)]

    def _curve(self, width: int, rows: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        columns = width - AXIS
        low, high = view.size_bytes[0], view.size_bytes[-1]
        sizes = np.geomspace(low, high, columns if draw_style.ascii_only else columns * 2)
        size_index = np.clip(np.searchsorted(view.size_bytes, sizes, side="right") - 1, 0, len(view.size_bytes) - 1)
        sure, possible = view.miss_low[size_index], view.miss_high[size_index]
        glyphs = "braille" if not draw_style.ascii_only else raster.ASCII_VERTICAL
        codes = raster.area(possible, rows, glyphs=glyphs)
        inner = raster.area(sure, rows, glyphs=glyphs)
        # Certain misses bright, those between the two bounds dark.
        index = np.where(inner != ord(" "), 6, 2)
        chosen_bytes = min(max(self._chosen_bytes, low), high)
        cursor = round(math.log(chosen_bytes / low) / math.log(high / low) * (columns - 1))
        codes[:, cursor], index[:, cursor] = ord("|" if draw_style.ascii_only else "│"), len(draw_style.heat)
        lines = self._framed(codes, index, rows, 1.0)
        edges = np.geomspace(low, high, columns + 1)
        return [*lines, self._sizes(edges, 1, columns)]

    def _framed(self, codes: np.ndarray, index: np.ndarray, rows: int, top: float) -> list[Line]:
        draw_style = self.draw_style
        labels = [""] * rows
        labels[0] = f"{top * 100:.0f} %"
        if rows >= 6:
            labels[rows // 2] = f"{top * 50:.3g} %"
        lines = raster.lines(codes, index, [*draw_style.heat, draw_style["cursor"]])
        return [[(labels[y].rjust(AXIS - 1) + " ", draw_style["dim"]), *line] for y, line in enumerate(lines)]

    def _sizes(self, edges: np.ndarray, each: int, columns: int) -> Line:
        """Return powers of two under the bars, as many as fit with blanks between them."""
        axis = [" "] * columns
        free = 0
        lowest, highest = int(np.ceil(np.log2(edges[0]) - 1e-6)), int(np.floor(np.log2(edges[-1]) + 1e-6))
        log = np.log2(edges)
        stride = max(1, int(np.ceil((highest - lowest + 1) * 6 / columns)))
        for power in range(lowest, highest + 1, stride):
            column = int(np.searchsorted(log, power - 1e-6)) * each
            label = text.short_size(2.0**power)
            if column >= free and column + len(label) <= columns:
                axis[column : column + len(label)] = label
                free = column + len(label) + 2
        return [(" " * AXIS + "".join(axis), self.draw_style["dim"])]

    def _sentences(self, width: int, height: int) -> list[Line]:
        """Return what less memory would cost, in sentences below the picture."""
        if self.misses:
            lines = [self._miss_sentence(width), self._slowdown_sentence(width)]
            return lines[: 1 + (height >= _BOTH_ROWS and bool(lines[1]))]
        lines = [line for line in (self._burst_sentence(width), self._half_sentence(width)) if line]
        if not lines:
            return [self._miss_sentence(width)]
        if height < _BOTH_ROWS:
            return lines[:1]
        return [*lines, *([self._miss_sentence(width)] if len(self.view.size_bytes) else [])]

    def _burst_sentence(self, width: int) -> Line:
        """Return the same of the short windows at the end of bursts; empty where there are none."""
        view, draw_style = self.view, self.draw_style
        if view.burst_half_bytes is None:
            return []
        low, high, estimate = view.burst_half_bytes
        bounds, about = between(low, high), None if are_one_figure(low, high) else estimate
        value, end = (bounds, "") if about is None else (f"about {text.size(about)}", f" ({bounds})")
        windows = f"windows of {view.probe}"
        leads = f" of touches in {windows}, half come back within ", f" of {windows}, half come back within "
        short = f" in {view.probe}: half within "
        forms = [*((lead, end) for lead in (*leads, short)), (short, "")]
        lead, end = next((f for f in forms if len(f[0]) + len(value) + len(f[1]) <= width), forms[-1])
        return [(lead, draw_style["dim"]), (value, draw_style["bright"]), (end, draw_style["dim"])]

    def _half_sentence(self, width: int) -> Line:
        """Return within which distance half of the accesses return; empty where the bounds are too far apart."""
        view, draw_style = self.view, self.draw_style
        low, high = view.half_low_bytes, view.half_high_bytes
        if low is None or high is None:
            return [(" half of all touches or more are first touches", draw_style["text"])]
        bounds, estimate = between(low, high), view.half_estimate_bytes
        leads = " half of all touches come back within ", " half of touches return within "
        if estimate is None or are_one_figure(low, high):
            if not bounds_are_close(low, high):
                return []
            lead = leads[0] if len(leads[0]) + len(bounds) <= width else leads[1]
            return [(lead, draw_style["dim"]), (bounds, draw_style["bright"])]
        about = f"about {text.size(estimate)}"
        ends = (
            f" ({bounds}; if in random order inside each window)",
            f" ({bounds}; in random order)",
            f" ({bounds})",
            "",
        )
        forms = ((lead, end) for end in ends for lead in leads)
        lead, end = next((f for f in forms if len(f[0]) + len(about) + len(f[1]) <= width), (leads[1], ""))
        return [(lead, draw_style["dim"]), (about, draw_style["bright"]), (end, draw_style["dim"])]

    def _miss_sentence(self, width: int) -> Line:
        view, draw_style = self.view, self.draw_style
        if not len(view.size_bytes):
            return []
        low, high, estimate = self._misses
        memory, ratio = text.size(self._chosen_bytes), bounds(low, high)
        window = f" per page and {view.interval} window" if view.interval else ""
        ways = (f" of touches{window} would miss", " of touches would miss", " would miss")
        forms = [(ratio, way) for way in ways]
        if estimate is not None and high - low > WIDE:
            about = f"about {100 * estimate:.0f} %"
            asides = f" ({ratio}; in random order)", f" ({ratio})"
            forms = [(about, aside + way) for aside in asides for way in ways] + forms[-1:]
        value, ending = next((f for f in forms if len(memory) + len(f[0]) + len(f[1]) + 8 <= width), forms[-1])
        return [
            (" with ", draw_style["dim"]),
            (memory, draw_style["bright"]),
            (", ", draw_style["dim"]),
            (value, draw_style["bright"]),
            (ending, draw_style["dim"]),
        ]

    def _slowdown_sentence(self, width: int) -> Line:
        """Return what these misses take where each waits for a major fault; empty where that was not measured."""
        view, draw_style = self.view, self.draw_style
        if view.fault_latency is None or not view.seconds or not len(view.size_bytes):
            return []
        first = view.first_share or 0.0  # a first touch reads nothing back
        waits_s = view.touches / view.seconds * view.fault_latency.median_ns / 1e9
        low, high = (max(ratio - first, 0.0) * waits_s for ratio in self._misses[:2])
        value, latency = longer(low, high), duration_ns(view.fault_latency.median_ns)
        source = {SWAP: "swap", FILE: "files"}[view.fault_latency.source]
        leads, endings = (" it would take ", " takes "), (f", at {latency} a page from {source}", f" ({source})", "")
        forms = [(lead, ending) for ending in endings for lead in leads]
        lead, ending = next((f for f in forms if len(f[0]) + len(value) + len(f[1]) <= width), forms[-1])
        return [(lead, draw_style["dim"]), (value, draw_style["bright"]), (ending, draw_style["dim"])]


def longer(low: float, high: float) -> str:
    """Return by how much a time grows, between two shares of it: ``1.2-1.6 times as long``, ``2.1-4.0 % longer``."""
    if high < 0.005:
        return "less than 0.5 % longer"
    if high < 0.2:
        return f"about {bounds(low, high)} longer"
    least, most = (f"{1 + share:.2g}" if share < 99 else f"{1 + share:.0f}" for share in (low, high))
    return f"about {least if least == most else f'{least}-{most}'} times as long"


def bounds(low: float, high: float) -> str:
    """Return two ratios as ``3.1-4.9 %``, rounded outwards so that they stay bounds; one ratio where they are equal."""
    factor = 10 if high < 0.1 else 1
    first, last = math.floor(low * 100 * factor + 1e-9) / factor, math.ceil(high * 100 * factor - 1e-9) / factor
    if last - first <= 1 / factor and round(low * 100, 6) == round(high * 100, 6):
        return f"{high * 100:.1f} %"
    return f"{first:g}-{last:g} %"


def between(low: float, high: float) -> str:
    """Return two bounds with one unit where they share it: ``131-139 MiB``."""
    first, second = text.size(low), text.size(high)
    if first == second:
        return first
    if first.split()[-1] == second.split()[-1]:
        first = first.split()[0]
    return f"{first}-{second}"


def fold(edges: np.ndarray, share: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Trim bins to whole powers of two around the data, then merge them until they fit the columns."""
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
