"""The processes of the tree: their role in the training, their working set and their size."""

from __future__ import annotations

from collections.abc import Iterator

from memtui.core.text import program_first
from memtui.core.units import births_text
from memtui.widgets import text
from memtui.widgets.panel import cut, line_width
from memtui.widgets.raster import Line
from memtui.widgets.row_panel import RowPanel
from memtui.widgets.views.memory import ProcessesView, ProcessRow

SIZES = ("WSS", "private", "shared", "RSS", "PSS", "USS", "swap", "GPU mem")
COLUMNS = (
    *(("pid", 10), ("role", 8), ("rank", 6), ("local", 7)),
    *((name, 10) for name in SIZES),
    ("GPU %", 9),
    *(("of WSS", 9), ("CPU", 9)),
)
OPTIONAL = ("rank", "local", "PSS", "USS", "swap")
SHORT_COMMAND = 20  # cells: with fewer, an empty column gives way to the command
FIRST_TO_GO = ("USS", "CPU", "of WSS", "local", "role", "GPU mem", "rank", "swap", "private", "PSS")


class ProcessTable(RowPanel):
    """A row for each process; all panels are about the chosen one."""

    view: ProcessesView
    _needed: frozenset[str] = frozenset()  # columns that one of the windows shown so far had something for

    def heading(self) -> Line:
        draw_style = self.draw_style
        line: Line = [("processes", draw_style["title"]), (f"  {self._count}", draw_style["dim"])]
        if self.view.only is not None:
            line += [(f"  all panels show pid {self.view.only} (", draw_style["focus"]), ("Esc", draw_style["key"])]
            line += [(" all)", draw_style["focus"])]
        return line

    def heading_right(self, width: int) -> Line:
        return [("p", self.draw_style["key"]), (": address ranges", self.draw_style["dim"])]

    def footing(self) -> Line:
        """Return why working sets are not exact, and why GPU memory is not known, as far as there is room."""
        line: Line = []
        number = line_width(self.footing_right(self.size.width))
        for whose, reason in self._reasons():
            gap = "  " * bool(line)
            room = self.size.width - (8 + number if number else 6) - line_width(line) - len(gap + whose)
            if not line or room >= text.width(reason):
                reason = text.sentence(reason, min(room, text.width(reason)))
                line += [(gap + whose, self.draw_style["warning"]), (reason, self.draw_style["dim"])]
        return line

    def _reasons(self) -> Iterator[tuple[str, str]]:
        """Yield of what a reason is, and the reason; the most important one first."""
        view = self.view
        if view.tree is not None and view.tree.reason:
            yield "all: ", text.clean(view.tree.reason)
        elif view.pss_note:
            yield "all: ", text.clean(view.pss_note)
        cells = self._columns(self.size.width - 2)[-1][1]
        for row in view.rows:
            if row.reason and not self._note(row, cells):
                yield f"pid {row.key}: ", text.clean(row.reason)
        without = [row for row in view.rows if row.gpu_bytes is None]
        if without and without[0].gpu_reason:
            everybody = len(without) == len(view.rows) and len({row.gpu_reason for row in without}) == 1
            whose = "" if everybody else f" of pid {without[0].key}"
            yield f"GPU memory n/a{whose}: ", text.clean(without[0].gpu_reason)
        unused = [row for row in view.rows if row.gpus_used is None and row.gpu_bytes is not None]
        if unused and unused[0].gpus_used_reason:
            yield f"GPU use n/a of pid {unused[0].key}: ", text.clean(unused[0].gpus_used_reason)

    @property
    def _count(self) -> str:
        """Return how many processes there are, and that others had a part of the window."""
        count, gaps = len(self.view.rows), self.view.gaps
        if not gaps or self.view.only is not None:  # the heading says other things then
            return f"{count}"
        return f"{count} at its end, {births_text(gaps)}"

    def paint_inside(self, width: int, height: int) -> list[Line]:
        if not self.view.rows:
            return self.message("no process in this window", width, height)
        columns = self._columns(width)
        header: Line = [(" ", self.draw_style["dim"])]
        for name, cells in columns:
            heading = name if name in ("role", "command") else name.rjust(cells - 2)
            heading = name.rjust(4) if name in SIZES else heading
            header.append((text.fit(heading, cells), self.draw_style["dim"]))
        shown, cells = self.view.rows[self.top : self.top + self.in_sight], columns[-1][1]
        notes = [self._note(row, cells) for row in shown]
        room = [cells - text.width(note) for note in notes]
        commands = text.in_column(self.view.rows, self.top, lambda row: program_first(row.command), room)
        rows = [self._row(row, width, columns, *texts) for row, *texts in zip(shown, commands, notes, strict=True)]
        tree = self.view.tree
        return [header, *rows, *([self._row(tree, width, columns, text.fit(tree.command, cells), "")] if tree else [])]

    @staticmethod
    def _note(row: ProcessRow, cells: int) -> str:
        """Return why a working set is missing or not exact; empty where only part of it has room beside the command."""
        note = f"  ({text.clean(row.reason)})" if row.reason else ""
        spare = cells - min(text.width(program_first(row.command)), SHORT_COMMAND)
        return note if text.width(note) <= max(spare, cells // 2) else ""

    @property
    def in_sight(self) -> int:
        """Return the number of rows that have room above the row of all processes."""
        return max(1, super().in_sight - (self.view is not None and self.view.tree is not None))

    def _columns(self, width: int) -> list[tuple[str, int]]:
        """Return the columns that have room, without those that nothing was shown in so far: a column stays."""
        rows = self.view.rows
        if any(row.rank is not None or row.local_rank is not None for row in rows):
            self._needed |= {"rank", "local"}
        if any(row.pss_bytes is not None for row in rows):  # not of a single process
            self._needed |= {"PSS", "USS"}
        if any(row.swap_bytes for row in rows):
            self._needed |= {"swap"}
        columns = [column for column in COLUMNS if column[0] not in OPTIONAL or column[0] in self._needed]
        columns = self._with_room_for_use(columns, width)
        for name in FIRST_TO_GO:
            if sum(cells for _, cells in columns) + 10 <= width:
                break
            columns = [column for column in columns if column[0] != name]
        if self._room(columns, width) < SHORT_COMMAND and self._gpu_is_a_footing:
            columns = [column for column in columns if column[0] != "GPU mem"]
        return [*columns, ("command", self._room(columns, width))]

    def _with_room_for_use(self, columns: list[tuple[str, int]], width: int) -> list[tuple[str, int]]:
        """Leave out the use of GPUs where none was known so far, and where it would take the room of anything else."""
        if any(row.gpus_used is not None for row in self.view.rows):
            self._needed |= {"GPU %"}
        if "GPU %" in self._needed and sum(cells for _, cells in columns) + 2 + SHORT_COMMAND <= width:
            return columns
        return [column for column in columns if column[0] != "GPU %"]

    @staticmethod
    def _room(columns: list[tuple[str, int]], width: int) -> int:
        """Return the cells that are left for the command."""
        return max(8, width - 2 - sum(cells for _, cells in columns))

    @property
    def _gpu_is_a_footing(self) -> bool:
        """Return whether the footing explains why the GPU memory of all rows is not known."""
        rows = self.view.rows
        return (
            self.view.tree is None
            and not self.view.pss_note
            and all(r.gpu_bytes is None and r.gpu_reason for r in rows)
        )

    def _row(self, row: ProcessRow, width: int, columns: list[tuple[str, int]], command: str, note: str) -> Line:
        draw_style, chosen = self.draw_style, row.key == self.selected
        base = draw_style["selected"] if chosen else draw_style["text"]
        dim = draw_style["selected_dim"] if chosen else draw_style["dim"]
        tree = row is self.view.tree
        absent = "" if tree else "-"
        figures = {
            "pid": "all" if tree else str(row.key),
            "rank": absent if row.rank is None else str(row.rank),
            "local": absent if row.local_rank is None else str(row.local_rank),
            "of WSS": "" if tree else text.percent(row.share),
            "CPU": text.percent(row.cpu),
            "GPU %": text.percent(row.gpus_used),
        }
        sizes = {"WSS": row.wss_bytes, "shared": row.shared_bytes, "RSS": row.rss_bytes, "GPU mem": row.gpu_bytes}
        sizes |= {"PSS": row.pss_bytes, "USS": row.uss_bytes, "swap": row.swap_bytes}
        complete = row.wss_bytes is not None and row.shared_bytes is not None
        sizes["private"] = max((row.wss_bytes or 0) - (row.shared_bytes or 0), 0) if complete else None
        line: Line = [(" ", base)]
        for name, cells in columns:
            if name in figures:
                line.append((figures[name].rjust(cells - 2) + "  ", base))
            elif name in sizes:
                size = sizes[name]
                figure = " n/a    " if size is None else text.size_column(size)
                line.append((figure.rjust(8) + "  ", dim if size is None else base))
            elif name == "role":
                line.append((text.fit(text.clean(row.role), cells), dim))
            else:
                line += [(command, base), (note, draw_style["warning"])]
        return cut(line, width)
