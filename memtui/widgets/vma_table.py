"""The address ranges: their working set, size and trend."""

from __future__ import annotations

from collections.abc import Iterable

from rich.style import Style
from textual import events
from textual.message import Message

from memtui.core.units import size
from memtui.widgets import raster, text
from memtui.widgets.panel import FullWidthLine, cut
from memtui.widgets.raster import Line
from memtui.widgets.row_panel import RowPanel
from memtui.widgets.views.memory import TREND, RangeRow, Sort, TableView

Column = tuple[str, int, Sort | None]  # name, cells, what a click on it sorts by
ADDRESS_CELLS = 150  # inside the border; with less there is no column of addresses


class VmaTable(RowPanel):
    """A table on the line API: only the rows in sight are painted, only those that changed are written."""

    view: TableView

    class SortClicked(Message):
        """A header was clicked."""

        def __init__(self, sort: Sort) -> None:
            super().__init__()
            self.sort = sort

    # Texts on the border

    def heading(self) -> Line:
        view, draw_style = self.view, self.draw_style
        line: Line = [("address ranges", draw_style["title"])]
        if view.only is not None:
            line.append((f" of pid {view.only}", draw_style["focus"]))
        line.append((f"  {len(view.rows)} shown", draw_style["dim"]))
        if view.filters_on:
            line += [
                (f", {view.left_out} left out by filters (", draw_style["dim"]),
                ("f", draw_style["key"]),
                (")", draw_style["dim"]),
            ]
        else:
            line += [(", filters off (", draw_style["dim"]), ("f", draw_style["key"]), (")", draw_style["dim"])]
        if view.filter_text:
            line += [
                ("  / ", draw_style["key"]),
                (text.fit(text.clean(view.filter_text), 20).rstrip(), draw_style["bright"]),
            ]
            if view.not_matching:
                line += [(f" hides {view.not_matching}", draw_style["dim"])]
        return line

    def heading_right(self, width: int) -> Line:
        view, draw_style = self.view, self.draw_style
        line: Line = [("p", draw_style["key"]), (": processes   ", draw_style["dim"])] if width >= 100 else []
        return [
            *line,
            ("sort: ", draw_style["dim"]),
            (f"{view.sort} ", draw_style["text"]),
            (self._arrow(), draw_style["text"]),
        ]

    def _arrow(self) -> str:
        return "▼" if self.view.descending else "▲"

    def footing(self) -> Line:
        """Return the part of the working set that is not in the rows.

        The address of the chosen row stands before it where there is no column of addresses; it gives way to figures.
        """
        row = next((r for r in self.view.rows if r.key == self.selected), None)
        addresses = [""]
        if row is not None and self.size.width - 2 < ADDRESS_CELLS:
            addresses = [f"{row.start:012x}-{row.end:012x}  ", f"at {row.start:012x}  ", ""]
        room, forms = self.size.width - 6, rests_of(self.view)
        ways = [(address, form) for address in addresses for form in forms]
        address, rest = next((way for way in ways if sum(map(text.width, way)) <= room), ways[-1])
        return [(address, self.draw_style["text"]), (rest, self.draw_style["dim"])] if address or rest else []

    # The rows

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view = self.view
        if not view.rows:
            reason = view.note
            if not reason and (view.left_out or view.not_matching):
                reason = (
                    "no range has that text (Esc shows all)" if view.not_matching else "all are filtered (f shows them)"
                )
            return self.message(reason or "no address ranges yet", width, height)
        columns = self._columns(width, any(row.pid is not None for row in view.rows))
        spare = width - 1 - sum(cells for _, cells, _ in columns)
        lines = [self._header(columns)]
        for row, name, note in self._named(columns[-1][1], view.rows[self.top : self.top + height - 1]):
            line = self._row(row, columns, name, note)
            # Every column has a fixed width: a row is not measured where all columns fit.
            lines.append(
                cut(line, width) if spare < 0 else FullWidthLine([*line, (" " * spare, self.draw_style["text"])])
            )
        return lines

    def _named(self, cells: int, shown: tuple[RangeRow, ...]) -> Iterable[tuple[RangeRow, str, str]]:
        """Return rows in sight with their names and, where there is room, the filter that would hide them."""
        notes = [f" ({text.clean(row.left_out)})" if row.left_out else "" for row in shown]
        notes = [note if text.width(note) + 8 <= cells else "" for note in notes]
        room = [cells - text.width(note) for note in notes]
        return zip(shown, text.in_column(self.view.rows, self.top, lambda row: row.name, room), notes, strict=True)

    def _columns(self, width: int, pids: bool) -> list[Column]:
        columns: list[Column] = [("WSS", 10, Sort.WSS), ("RSS", 11, Sort.RSS)]
        if pids and width >= 100:
            columns.insert(1, ("shared", 10, None))
        if width >= 60:
            columns.append(("of WSS", 8, Sort.WSS))
        if width >= 72:
            columns.append(("trend", TREND + 1, None))
        columns.append(("perms", 6, Sort.PERMS))
        if pids:
            columns.append(("pid", 8, None))
        if width >= ADDRESS_CELLS:
            columns.append(("address", 28, Sort.ADDRESS))
        columns.append(("name", max(8, width - 2 - sum(c[1] for c in columns)), Sort.NAME))
        return columns

    def _header(self, columns: list[Column]) -> Line:
        draw_style, line = self.draw_style, []
        line.append((" ", draw_style["dim"]))
        for name, cells, sort in columns:
            right = name in ("of WSS", "pid")
            # Columns of sizes end in the unit: their heading stands over the digits.
            heading = name.rjust(cells - 6).ljust(cells) if name in ("WSS", "RSS") else name
            heading = name.rjust(cells - 2).ljust(cells) if name == "shared" else heading
            heading = name.rjust(cells - 1) + " " if right else heading
            style = draw_style["text"] if sort == self.view.sort and name == sort else draw_style["dim"]
            line.append((text.fit(heading, cells), style))
        return line

    def _row(self, row: RangeRow, columns: list[Column], called: str, note: str) -> Line:
        draw_style = self.draw_style
        grey, chosen = bool(row.left_out), row.key == self.selected
        base = draw_style["selected"] if chosen else draw_style["dim" if grey else "text"]
        dim = draw_style["selected_dim"] if chosen else draw_style["faint" if grey else "dim"]
        strong = draw_style["selected"] if chosen else draw_style["dim" if grey else "bright"]
        line: Line = [(" ", base)]
        for name, cells, _ in columns:
            match name:
                case "WSS":
                    line.append((text.size_column(row.wss_bytes).rjust(8) + "  ", strong if row.wss_bytes else dim))
                case "RSS":
                    line.append((("≥" * row.rss_at_least + text.size_column(row.rss_bytes)).rjust(9) + "  ", base))
                case "shared":
                    shared = text.size_column(row.shared_bytes).rjust(8)
                    line.append((shared + "  ", base if row.shared_bytes else dim))
                case "of WSS":
                    share = text.percent(row.share) if row.share is not None else "–"
                    line.append((share.rjust(cells - 1) + " ", base))
                case "trend":
                    line.append(
                        (raster.spark(row.trend, TREND, ascii_only=draw_style.ascii_only) + " ", self._warm(row, base))
                    )
                case "perms":
                    line.append((text.fit(text.clean(row.perms), cells), dim))
                case "pid":
                    who = row.who if 0 < len(row.who) < cells else str(row.pid or "")
                    line.append((who.rjust(cells - 1) + " ", base))
                case "address":
                    line.append((text.fit(f"{row.start:012x}-{row.end:012x}", cells), dim))
                case _:
                    line += [(called, base), (note, dim)]
        return line

    def _warm(self, row: RangeRow, base: Style) -> Style:
        """Return the colour of a trend by the row's share of the working set: small rows are not bright."""
        if row.key == self.selected or row.left_out:
            return base
        share = row.share or 0.0
        return self.draw_style.heat[4 + sum(share >= limit for limit in (0.01, 0.05, 0.2, 0.5))]

    def on_click(self, event: events.Click) -> None:
        if self.view is not None and self.view.rows and event.y == 1:
            start = 2
            for _, cells, sort in self._columns(self.size.width - 2, any(r.pid is not None for r in self.view.rows)):
                if start <= event.x < start + cells and sort is not None:
                    self.post_message(self.SortClicked(sort))
                start += cells


def rest_of(view: TableView) -> str:
    """Return the difference between the sum of the rows and the working set of the window, in words."""
    return rests_of(view)[0]


def rests_of(view: TableView) -> tuple[str, ...]:
    """Return what ``rest_of`` does in forms of falling length; each has all sizes."""
    several, whole = " that several processes touched", " = WSS "
    return (
        _rest(view, "hidden range", "range", " (f)", " without the text", several + whole),
        _rest(view, "hidden range", "range", " (f)", " without the text", " shared" + whole),
        _rest(view, "", "", " hidden (f)", " without the text", " shared" + whole),
        _rest(view, "", "", " hidden", " not matching", " shared = "),
    )


def _rest(view: TableView, hidden: str, other: str, by_filter: str, by_text: str, several: str) -> str:
    """Return the difference in the given words; without a word for ranges, their number gives way to their size."""
    parts = []
    for count, touched, ranges, why in (
        (view.left_out, view.left_out_bytes, hidden, by_filter),
        (view.not_matching, view.not_matching_bytes, other, by_text),
    ):
        if count:
            number = f"{count} {ranges}{'s' * (count > 1)}" if ranges else f"{count}"
            within = number if touched is None else f"{size(touched)} in {number}" if ranges else size(touched)
            parts.append(within + why)
    sentence = f"and {', '.join(parts)}" if parts else ""
    if view.wss_bytes is None or view.ranges_bytes is None:
        return sentence
    rest = view.ranges_bytes - view.wss_bytes
    if rest < 0:
        sentence += f"{', ' if sentence else 'and '}{size(-rest)} in no range"
    elif rest:
        sentence += f"{', ' * bool(sentence)}less {size(rest)}{several}{size(view.wss_bytes)}"
    return sentence
