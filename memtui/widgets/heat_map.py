"""Where and when: addresses down, time across, warmer where more of the memory was touched."""

from __future__ import annotations

from rich.style import Style

from memtui.views import HeatView
from memtui.widgets import raster, text
from memtui.widgets.panel import Exact, Panel, axis_words
from memtui.widgets.raster import Line


def label_cells(width: int) -> int:
    """Cells of the address axis in a box of ``width``."""
    return min(22, max(9, width // 5))


def picture_cells(width: int, height: int) -> tuple[int, int]:
    """Columns and rows of the picture in a panel of a size, frame included: what a view must be made for."""
    inside = max(0, width - 2)
    return max(0, inside - label_cells(inside) - 1), max(0, height - 2)


class HeatMap(Panel):
    """Half blocks: two rows of addresses to a row of cells. Ranges carry their names on the axis."""

    view: HeatView
    title = "where and when"

    def heading_right(self, width: int) -> Line:
        look = self.look
        if width < 48 or self.view.note:
            return []
        if look.half_blocks:
            scale: Line = [(look.plain("▮") if look.ascii_only else "■", look.heat[i]) for i in range(1, 10)]
        else:
            scale = [(raster.ASCII_SHADES if look.ascii_only else raster.SHADES, look["text"])]
        return [("touched few ", look["dim"]), *scale, (" all", look["dim"])]

    def footing(self) -> Line:
        return [(axis_words(self.view.axis)[0], self.look["dim"])]

    def footing_middle(self, width: int) -> Line:
        room = max(8, width - 34)
        caption = text.clean(self.view.caption)
        if text.width(caption) > room:
            caption = caption.partition(" · ")[0]
        return [(self.look.plain(text.fit(caption, room).strip()), self.look["dim"])]

    def footing_right(self, width: int) -> Line:
        return [(axis_words(self.view.axis)[2], self.look["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, look = self.view, self.look
        if view.note or not view.share.size:
            return self.message(view.note or "waiting for the first window", width, height)
        labels = label_cells(width)
        columns = width - labels - 1
        levels = raster.quantise(view.share)
        if look.half_blocks:
            cells = raster.half_blocks(levels, look.pairs)
        else:
            cells = raster.shade_cells(levels, raster.ASCII_SHADES if look.ascii_only else raster.SHADES, look["text"])
        cursor = view.axis.column(view.axis.cursor_ns, view.share.shape[1]) if view.axis.marks_cursor else None
        lines: list[Line] = []
        for band in view.bands:
            for part in range(band.rows):
                row = band.row + part
                if row >= height or row >= len(cells):
                    break
                lines.append(self._row(band.label if part == 0 else "", band.kind, cells[row], labels, columns, cursor))
        return lines

    def _row(self, label: str, kind: str, cells: Line, labels: int, columns: int, cursor: int | None) -> Line:
        look = self.look
        if kind == "gap":
            dashes = look.plain("┄┄")
            return [(text.fit(f"  {dashes} {label} {dashes}", labels + 1 + columns), look["gap"])]
        style = look["text"] if kind == "range" else look["dim"]
        picture = cells if cursor is None else overlay(cells, cursor, look.plain("│"), look["cursor"])
        line = [(look.plain(text.fit(text.clean(label), labels)) + " ", style), *picture]
        return Exact(line) if self.view.share.shape[1] == columns else line


def overlay(line: Line, column: int, glyph: str, style: Style) -> Line:
    """The line with one cell replaced, keeping that cell's background."""
    out: Line = []
    at = 0
    for run, have in line:
        if at <= column < at + len(run):
            place = column - at
            ground = Style(bgcolor=have.bgcolor) if have.bgcolor is not None else Style()
            parts = ((run[:place], have), (glyph, style + ground), (run[place + 1 :], have))
            out += [(part, part_style) for part, part_style in parts if part]
        else:
            out.append((run, have))
        at += len(run)
    return out
