"""The tensors of the working set, hot to cold, and the rest of it."""

from __future__ import annotations

from rich.style import Style

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.widgets import raster, text
from memtui.widgets.panel import FullWidthLine, cut
from memtui.widgets.raster import Line
from memtui.widgets.row_panel import RowPanel
from memtui.widgets.tensor_kinds import LETTERS, by_letter, number_styles
from memtui.widgets.views.memory import TREND, TensorRow, TensorSort, TensorsView

Column = tuple[str, int]  # name, cells
BAR = 10  # cells of a full one


class TensorTable(RowPanel):
    """A table on the line API: only the rows in sight are painted, only those that changed are written."""

    view: TensorsView

    # Texts on the border

    def heading(self) -> Line:
        view, draw_style = self.view, self.draw_style
        line: Line = [
            ("working set by ", draw_style["title"]),
            (view.by, draw_style["title"]),
            (" (", draw_style["dim"]),
        ]
        line += [("g", draw_style["key"]), (")", draw_style["dim"])]
        if view.pid is not None:
            line.append((f" of pid {view.pid}", draw_style["focus"]))
        if view.tensors:
            line.append((f"  {view.tensors} tensors", draw_style["dim"]))
        if view.filter_text:
            line += [
                ("  / ", draw_style["key"]),
                (text.fit(text.clean(view.filter_text), 20).rstrip(), draw_style["bright"]),
            ]
            line.append((f" hides {view.not_matching}", draw_style["dim"]))
        if view.moved:
            line.append(("  some moved in this window", draw_style["warning"]))
        return line

    def heading_right(self, width: int) -> Line:
        view, draw_style = self.view, self.draw_style
        line: Line = [("w", draw_style["key"]), (": ranges   ", draw_style["dim"])] if width >= 100 else []
        return [
            *line,
            ("sort: ", draw_style["dim"]),
            (f"{view.sort} {'▼' if view.descending else '▲'}", draw_style["text"]),
        ]

    def footing(self) -> Line:
        """Return what all rows add up to."""
        view, draw_style = self.view, self.draw_style
        if not view.rows:
            return []
        wss = "n/a" if view.wss_bytes is None else text.size(view.wss_bytes)
        return [("all: working set ", draw_style["dim"]), (wss, draw_style["bright"])]

    def footing_middle(self, width: int) -> Line:
        count = self.view.recent_windows
        if not self.view.rows or width < 100:
            return []
        return [(f"recent: the last {count} window{'s' * (count != 1)} up to this one", self.draw_style["dim"])]

    # The rows

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view = self.view
        if not view.rows:
            return self.message(view.note or "no tensors yet", width, height)
        columns = self._columns(width)
        spare = width - 1 - sum(cells for _, cells in columns)
        lines = [self._header(columns)]
        shown = view.rows[self.top : self.top + height - 1]
        symbol_cells = 2 if view.by == "kind" else 0  # cells of it, before the name
        names = text.in_column(
            view.rows, self.top, lambda row: "" if row.rest else row.name, [columns[-1][1] - symbol_cells] * len(shown)
        )
        for row, name in zip(shown, names, strict=True):
            line = self._row(row, columns, name)
            lines.append(
                cut(line, width) if spare < 0 else FullWidthLine([*line, (" " * spare, self.draw_style["text"])])
            )
        return lines

    def _columns(self, width: int) -> list[Column]:
        columns: list[Column] = [("touched", 11), ("of size", 11), ("share", 9)]
        if width >= 72:
            columns.append(("recent", 9))
        if width >= 92:
            columns.append(("bar", BAR + 2))
        if width >= 110:
            columns.append(("trend", TREND + 2))
        if width >= 130:
            columns.append(("touched last", 14))
        if self.view.by not in ("kind", "layer"):
            columns.append(("kind", 18))
        columns.append(("name", max(8, width - 2 - sum(cells for _, cells in columns))))
        return columns

    def _header(self, columns: list[Column]) -> Line:
        view, draw_style = self.view, self.draw_style
        line: Line = [(" ", draw_style["dim"])]
        for name, cells in columns:
            heading = {"bar": "", "name": "kind" if view.by == "kind" else "layer"}.get(name, name)
            if name in ("touched", "of size"):  # over the digits: behind them stands the unit
                heading = heading.rjust(cells - 6)
            elif name in ("share", "recent", "touched last"):
                heading = heading.rjust(cells - 2)
            sorted_by = {"of size": TensorSort.SIZE}.get(name, name) == view.sort
            line.append((text.fit(heading, cells), draw_style["text"] if sorted_by else draw_style["dim"]))
        return line

    def _row(self, row: TensorRow, columns: list[Column], called: str) -> Line:
        draw_style = self.draw_style
        chosen = row.key == self.selected
        base = draw_style["selected"] if chosen else draw_style["dim" if row.rest else "text"]
        dim = draw_style["selected_dim"] if chosen else draw_style["dim"]
        strong = draw_style["selected"] if chosen else draw_style["text" if row.rest else "bright"]
        line: Line = [(" ", base)]
        for name, cells in columns:
            match name:
                case "touched":
                    line.append((text.size_column(row.touched_bytes).rjust(9) + "  ", strong))
                case "of size":
                    size = "" if row.size_bytes is None else text.size_column(row.size_bytes)
                    line.append((size.rjust(9) + "  ", base))
                case "share":
                    line.append((_percent(_share(row)).rjust(cells - 2) + "  ", base))
                case "recent":
                    line.append((_percent(row.recent).rjust(cells - 2) + "  ", base))
                case "bar":
                    line += self._bar(row, cells, base)
                case "trend":
                    spark = (
                        raster.spark(row.trend, TREND, ascii_only=draw_style.ascii_only) if row.trend else " " * TREND
                    )
                    line.append((spark + "  ", dim if chosen else self._hue(row, base)))
                case "touched last":
                    line.append((_last(row).rjust(cells - 2) + "  ", dim))
                case "kind":
                    kind = CATEGORIES[row.kind] if row.kind is not None else ""
                    line.append((text.fit(kind, cells), base if chosen else self._hue(row, base)))
                case _:
                    line += self._named(row, called, cells, base)
        return line

    def _named(self, row: TensorRow, called: str, cells: int, base: Style) -> Line:
        """Return the name, with the letter or colour of the kind where rows are kinds; the rest is a sentence."""
        if row.rest:
            return [(text.sentence(row.name, cells), base)]
        if self.view.by != "kind" or row.kind is None:
            return [(text.fit(called, cells), base)]
        symbol = LETTERS[CATEGORIES[row.kind]] if by_letter(self.draw_style) else "■"
        return [(f"{symbol} ", base if row.key == self.selected else self._hue(row, base)),
                (called, base)]  # fmt: skip

    def _hue(self, row: TensorRow, base: Style) -> Style:
        return number_styles(self.draw_style)[row.kind] if row.kind is not None else base

    def _bar(self, row: TensorRow, cells: int, base: Style) -> Line:
        """Return a bar of the accessed share of a tensor."""
        share = _share(row)
        if share is None:
            return [(" " * cells, base)]
        bar = raster.gauge(share, cells - 2, ascii_only=self.draw_style.ascii_only)
        return [(bar, base if row.key == self.selected else self._hue(row, base)), ("  ", base)]


def _share(row: TensorRow) -> float | None:
    """Return the accessed share of a tensor, at most 1: whole pages can be more than the tensor."""
    if row.size_bytes is None or row.touched_bytes is None:
        return None
    return min(1.0, row.touched_bytes / max(row.size_bytes, 1))


def _percent(share: float | None) -> str:
    return "" if share is None else text.percent(share)


def _last(row: TensorRow) -> str:
    if row.rest or row.recent is None:
        return ""
    if row.last_s is None:
        return "not lately"
    return "now" if row.last_s <= 0 else f"{text.duration(row.last_s)} ago"
