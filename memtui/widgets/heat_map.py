"""The heat map: addresses down, time across, warmer where more of the memory was accessed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from rich.style import Style
from textual import events

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_pages import NO_KIND
from memtui.widgets import raster, text
from memtui.widgets.panel import FullWidthLine, Panel, axis_labels, line_width
from memtui.widgets.raster import Line, Run
from memtui.widgets.tensor_kinds import LETTERS, ORDER, SHIFT, number_styles, pairs
from memtui.widgets.views.memory import HeatBand, HeatCursor, HeatView


def label_cells(width: int) -> int:
    """Return cells of the address axis in a box of ``width``."""
    return min(22, max(9, width // 4))


def picture_cells(width: int, height: int) -> tuple[int, int]:
    """Return columns and rows of the picture in a panel of a size, border included: the size of a view."""
    inside = max(0, width - 2)
    return max(0, inside - label_cells(inside) - 1), max(0, height - 2)


NO_TENSOR = "  no tensor is known (memtui trace)", "  no tensor is known"  # for much room and for little


class HeatMap(Panel):
    """Half blocks: two rows of addresses to a row of cells. Ranges carry their names on the axis."""

    view: HeatView
    title = "where and when"

    class Pointed(Panel.TimeClicked):
        """A cell was clicked: a moment and a row of cells."""

        def __init__(self, t_ns: float, row: int) -> None:
            super().__init__(t_ns)
            self.row = row

    def on_click(self, event: events.Click) -> None:
        if self.view is None or self.view.note or not self.view.share.size:
            return
        width = self.size.width - 2
        columns = width - label_cells(width) - 1
        column, row = event.x - 1 - label_cells(width) - 1, event.y - 1
        if row < 0 or event.y >= self.size.height - 1 or column >= columns:
            return
        axis = self.view.axis
        self.post_message(self.Pointed(axis.moment(column, columns) if column >= 0 else axis.cursor_ns, row))

    def heading(self) -> Line:
        line: Line = [(self.title, self.draw_style["title"])]
        if self.view.by_kind and not self.view.note:
            if self.view.kinds is None:
                long, short = NO_TENSOR
                fits = len(self.title + long) + 4 < self.size.width
                line.append((long if fits else short, self.draw_style["warning"]))
            elif (self.view.kinds == NO_KIND).all():
                line += [("  tensors fill no row of it: ", self.draw_style["warning"]), ("z", self.draw_style["key"])]
                line.append((" zooms in", self.draw_style["warning"]))
        if self.view.zoom:
            line += [
                (f"  zoomed to {text.clean(self.view.zoom)} (", self.draw_style["text"]),
                ("Z", self.draw_style["key"]),
            ]
            line += [(" back)", self.draw_style["text"])]
        return line

    def heading_right(self, width: int) -> Line:
        draw_style = self.draw_style
        if width < 48 or self.view.note:
            return []
        if self.view.kinds is not None:
            return self._legend(width, set(self.view.kinds.tolist()))
        if draw_style.half_blocks:
            scale: Line = [("■", draw_style.heat[i]) for i in range(1, 10)]
        else:
            scale = [(raster.ASCII_SHADES if draw_style.ascii_only else raster.SHADES, draw_style["text"])]
        if self.view.zoom and width < 100:
            return scale
        return [("touched few ", draw_style["dim"]), *scale, (" all", draw_style["dim"])]

    def _legend(self, width: int, kinds: set[int]) -> Line:
        """Return the legend of the kinds in sight; their letters are at the rows."""
        there = [name for name in ORDER if CATEGORIES.index(name) in kinds]
        styles = number_styles(self.draw_style)
        room = width - line_width(self.heading()) - 10
        for names in (True, False):
            line: Line = []
            for name in there:
                label = f" {name}" if names else ""
                line += [(f"  {LETTERS[name]}", styles[CATEGORIES.index(name)]), (label, self.draw_style["dim"])]
            if line_width(line) <= room:
                return line[:1] and [(line[0][0].lstrip(), line[0][1]), *line[1:]]
        return []

    def footing(self) -> Line:
        if self.view.cursor is not None:
            caption = cursor_text(self.view.cursor, self.size.width - 6)
            return [(caption, self.draw_style["text"])]
        return [(axis_labels(self.view.axis)[0], self.draw_style["dim"])]

    def footing_middle(self, width: int) -> Line:
        if self.view.cursor is not None:
            return []
        room = max(8, width - 12 - sum(map(text.width, axis_labels(self.view.axis)[::2])))
        caption, hottest = text.clean(self.view.caption), self.view.hottest
        if text.width(caption) > room:
            caption = caption.partition(" · ")[0]
        if hottest is not None and text.width(caption) > room:  # the name gives way, never the size behind it
            name, caption = text.clean(hottest.label), caption.replace("hottest ", "hot ", 1)
            cells = max(3, room - text.width(caption) + text.width(name))
            caption = caption.replace(name, _shortened([*self.view.bands, hottest], cells)[-1].label.rstrip(), 1)
        return [(text.sentence(caption, room).strip(), self.draw_style["dim"])]

    def footing_right(self, width: int) -> Line:
        return [(axis_labels(self.view.axis)[2], self.draw_style["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        if view.note or not view.share.size:
            return self.message(view.note or "waiting for the first window", width, height)
        labels = label_cells(width)
        columns = width - labels - 1
        levels = raster.quantise(view.share)
        kinds = view.kinds if view.kinds is not None and len(view.kinds) == len(levels) else None
        if draw_style.half_blocks and kinds is not None:
            cells = raster.half_blocks(shifted(levels, kinds), pairs(draw_style))
        elif draw_style.half_blocks:
            cells = raster.half_blocks(levels, draw_style.pairs)
        else:
            cells = raster.shade_cells(
                levels, raster.ASCII_SHADES if draw_style.ascii_only else raster.SHADES, draw_style["text"]
            )
        letters = self._kind_letters(kinds) if kinds is not None else []
        cursor = view.axis.column(view.axis.cursor_ns, view.share.shape[1]) if view.axis.shows_cursor else None
        lines: list[Line] = []
        for band in _shortened(view.bands, labels):
            for part in range(band.rows):
                row = band.row + part
                if row >= height or row >= len(cells):
                    break
                letter = letters[row] if letters else None
                picture = cells[row]
                if letter is not None and not draw_style.half_blocks:
                    picture = [(run, letter[1]) for run, _ in picture]
                lines.append(self._row(band, part, picture, labels, columns, cursor, letter))
        return lines

    def _kind_letters(self, kinds: NDArray[np.uint8]) -> list[Run | None]:
        """Return the letter of the kind by row of cells: not every terminal can show the kind by colour."""
        styles, letters = number_styles(self.draw_style), []
        for upper, lower in zip(kinds[::2].tolist(), kinds[1::2].tolist(), strict=True):
            kind = upper if upper != NO_KIND else lower
            letters.append(None if kind == NO_KIND else (LETTERS[CATEGORIES[kind]], styles[kind]))
        return letters

    def _row(
        self, band: HeatBand, part: int, cells: Line, labels: int, columns: int, cursor: int | None, kind: Run | None
    ) -> Line:
        draw_style, view = self.draw_style, self.view
        if band.kind == "gap":
            return [(text.fit(f"  ┄┄ {band.label} ┄┄", labels + 1 + columns), draw_style["gap"])]
        style = draw_style["text"] if band.kind == "range" else draw_style["dim"]
        if view.focus is not None and view.focus == band.key:
            style = draw_style["focus"]
        here = view.cursor is not None and view.cursor.row == band.row + part
        picture = cells if cursor is None else overlay(cells, cursor, "│", draw_style["cursor"])
        gutter = ("▸", draw_style["cursor"]) if here else kind or (" ", style)
        line = [*self._label(band, part, labels, style), gutter, *picture]
        exact = view.share.shape[1] == columns and line_width(line[: -len(picture)]) == labels + 1
        return FullWidthLine(line) if exact else line

    def _label(self, band: HeatBand, part: int, cells: int, style: Style) -> Line:
        """Return the name of a band, dashes where addresses were left out before it, and zoomed its bounds."""
        draw_style = self.draw_style
        if part == 0:
            name = band.label
            rest = cells - text.width(name) - 1
            if not band.after_gap or rest < 1:
                return [(text.fit(name, cells), style)]
            return [(f"{name} ", style), ("┄" * rest, draw_style["gap"])]
        bound = ""
        if self.view.zoom and band.kind == "range" and band.rows > 2:
            bounds = text.shortened([f"{band.start:x}", f"{band.end:x}"], cells)  # what both have in common gives way
            bound = bounds[0] if part == 1 else bounds[1] if part == band.rows - 1 else ""
        return [(text.fit(bound, cells), draw_style["dim"])]


def _shortened(bands: Sequence[HeatBand], cells: int) -> list[HeatBand]:
    """Return the bands with labels cut so that no differing part is lost."""
    full = ["" if band.kind == "gap" else text.clean(band.label) for band in bands]
    labels = text.shortened(full, cells)
    processes = [text.clean(band.who) for band in bands]
    if labels != full and any(processes):
        labels = _of_processes(full, processes, cells)
    # Of "anon 1M …314" the blank and the size go first.
    named = zip(bands, (re.sub("… ?…", "…", label) for label in labels), strict=True)
    return [band if band.kind == "gap" else replace(band, label=label) for band, label in named]


NAME_CELLS = 8  # of a range in a tree: with fewer, what all processes have in common gives way to the name


def _of_processes(labels: list[str], processes: list[str], cells: int) -> list[str]:
    """Return labels that start with a process, or with nothing, cut so that process and name stay apart."""
    names = [label.removeprefix(f"{who} ") for label, who in zip(labels, processes, strict=True)]
    several, longest = sorted(set(processes) - {""}), max(map(text.width, processes))
    need = min(NAME_CELLS, max(text.width(name) for name, who in zip(names, processes, strict=True) if who))
    room, short = longest, {who: who for who in several}
    if cells - longest - 1 < need:  # the last digits of pids tell them apart
        brief = {who: who.replace("rank ", "r") for who in several}
        ways = (
            {who: own if len(own) <= n else f"…{own[1 - n :]}" for who, own in brief.items()}
            for n in range(3, longest + 3)
        )
        short = next(way for way in ways if len(set(way.values())) == len(several))
        room = max(map(text.width, short.values()))
    names = text.shortened([name if who else "" for name, who in zip(names, processes, strict=True)], cells - room - 1)
    whole = text.shortened(labels, cells)
    if cells - room - 1 < 3:
        return whole
    return [f"{short[who]} {name}" if who else label for who, name, label in zip(processes, names, whole, strict=True)]


def shifted(levels: raster.Levels, kinds: NDArray[np.uint8]) -> raster.Levels:
    """Return levels of pixels, u1[rows, columns], in the colours of the kind of each row, u1[rows], where known."""
    shift = np.where(kinds == NO_KIND, 0, (kinds.astype(np.uint16) + 1) * SHIFT).astype(np.uint8)
    return np.where(levels == raster.NOTHING, levels, levels + shift[:, None]).astype(np.uint8)


def cursor_text(cursor: HeatCursor, room: int) -> str:
    """Return address, name, time and touched pages at the cursor, in the longest form that has room."""
    address, name = f"{cursor.start:012x}", text.clean(cursor.name)
    when = text.clock(cursor.t_s, tenths=True)
    if cursor.touched_bytes is None:
        pages = "no pages stored"
    else:
        pages = f"{cursor.touched_bytes >> 12} of {cursor.cell_bytes >> 12} pages"
    low = f"…{address[-9:]}"  # cells next to each other differ in the middle of their addresses
    ways = (
        f"{address} {name} · {when} · {pages} touched",
        f"{address} {name} · {when} · {pages}",
        f"{low} {name} · {when} · {pages}",
        f"{low} · {when} · {pages}",
        f"{address} · {pages}",
        f"{low} · {pages}",
    )
    return next((form for form in ways if text.width(form) <= room), pages[:room])


def overlay(line: Line, column: int, glyph: str, style: Style) -> Line:
    """Return the line with the glyph in one cell, on the background of that cell."""
    out: Line = []
    start = 0
    for run, have in line:
        if start <= column < start + len(run):
            offset = column - start
            ground = Style(bgcolor=have.bgcolor) if have.bgcolor is not None else Style()
            parts = ((run[:offset], have), (glyph, style + ground), (run[offset + 1 :], have))
            out += [(part, part_style) for part, part_style in parts if part]
        else:
            out.append((run, have))
        start += len(run)
    return out
