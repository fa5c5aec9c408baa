"""The screen of ``memtui tune``: the runs of a grid, with the result and the output of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from memtui.training.tune.results import FAILED
from memtui.training.tune.text import COLUMNS, figures
from memtui.tui.base_app import TerminalApp
from memtui.tui.presenters.log_tail import OutputLog
from memtui.tui.screens.list_screen import ListScreen
from memtui.widgets import text
from memtui.widgets.label import TextLine
from memtui.widgets.output_pane import OutputPane
from memtui.widgets.table import Column, Listing, ListingView, Row
from memtui.widgets.views.tune import INTERRUPTED, RUNNING, WAITING, GridRow, GridView

REFRESH_S = 0.5
DETAIL_LINES = 3  # lines about the selected row
_FRAME = 3  # columns around the cells of a table
_JOINED = 44  # cells for the values of all axes in one column
_ROLES = {WAITING: "dim", INTERRUPTED: "dim", RUNNING: "live", FAILED: "warning"}
_MISSING = "{name} is not there: the run has not begun"
# Sort orders of rows: a name, the key (None comes last), and whether the largest is first.
_ORDERS: tuple[tuple[str, Callable[[GridRow], Any], bool], ...] = (
    ("grid", lambda row: row.run, False),
    ("accuracy", lambda row: row.accuracy, True),
    ("loss", lambda row: row.loss, False),
    ("peak", lambda row: row.peak_bytes, False),
    ("above", lambda row: row.peak_above_start_bytes, False),
    ("time", lambda row: row.seconds, False),
    ("state", lambda row: row.state, False),
)


class Source(Protocol):
    """Source of the views of a grid (``presenter``)."""

    def view(self) -> GridView:
        """Return the grid as it is now."""

    def files(self, run: int) -> tuple[Path, Path]:
        """Return the files of (standard output, standard error) of a run."""


class _Seen(Message):
    """A new view of the folder."""

    def __init__(self, view: GridView) -> None:
        super().__init__()
        self.view = view

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, _Seen)


class GridScreen(ListScreen):
    """Screen with the table of runs; its cursor follows the running run until it is moved; Enter shows the output."""

    HELP = "grid"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "what it printed"),
        Binding("tab", "other", "its output, or what it complained of"),
        Binding("s", "sort", "sort by the next column"),
        Binding("S", "reverse", "reverse the order"),
        Binding("home", "home", "first row"),
        Binding("end", "to_end", "the run that goes on"),
        Binding("c", "app.next_theme", "other colours"),
        Binding("escape", "back", "back, or leave"),
        Binding("q", "leave", "leave"),
    ]

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._view = GridView()
        self._follows = True
        self._order, self._reversed = 0, False
        self._log: OutputLog | None = None  # of the run that is open
        self._complaints = False  # which of its two files is shown
        self.head, self.bar = TextLine("title", id="header"), TextLine("live")
        self.rows = Listing(ListingView("runs", (), note="looking ..."), id="rows")
        self.output = OutputPane(id="output")
        self.output.back = "Esc"
        self.details = [TextLine("text") for _ in range(DETAIL_LINES)]
        self.foot = TextLine("dim", id="footer")

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.bar, self.rows, self.output, *self.details, self.foot

    @property
    def active(self) -> Listing:
        return self.rows

    def follow(self) -> None:
        while not self.ended.is_set():
            self.post_message(_Seen(self._source.view()))
            self.ended.wait(REFRESH_S)

    def on__seen(self, message: _Seen) -> None:
        self._view = message.view
        self.fill()

    def share_rows(self, height: int) -> None:
        self.rows.styles.height = self.output.styles.height = max(3, height - 3 - DETAIL_LINES)
        self.rows.display = not self.notice.display and self._log is None
        self.output.display = not self.notice.display and self._log is not None

    # What is shown

    def fill(self) -> None:
        view, width = self._view, self.app.size.width
        self.head.show(f" memtui tune  {view.path}   {len(view.rows)} runs")
        if view.trouble:
            self.bar.show(f" {view.trouble}", "warning")
        else:
            self.bar.show(f" {text.progress_bar(view.ended, len(view.rows), width - 44)} {_count(view)}")
        columns, joined = columns_of(view, width - _FRAME)
        by_run = {row.run: row for row in view.rows}
        running = next((row.run for row in view.rows if row.state == RUNNING), None)
        if self._follows and running is not None:
            self.rows.selected = running
        shown = tuple(_row(row, joined, len(columns)) for row in self._sorted())
        name = _ORDERS[self._order][0]
        order = f"sorted by {name} {'▲' if self._rising else '▼'}"
        self.rows.show(ListingView(f"runs, {order}", columns, shown, "looking ..."))
        self._show_details(by_run.get(self.rows.selected))
        self.foot.show(f" {text.fitting_ranked(_keys(view, self._log is not None), width - 2)}")
        self._show_output()

    @property
    def _rising(self) -> bool:
        return _ORDERS[self._order][2] == self._reversed

    def _sorted(self) -> list[GridRow]:
        value = _ORDERS[self._order][1]
        with_value = [row for row in self._view.rows if (key := value(row)) is not None and key == key]
        without_value = [row for row in self._view.rows if (key := value(row)) is None or key != key]
        return [*sorted(with_value, key=value, reverse=not self._rising), *without_value]

    def _show_details(self, row: GridRow | None) -> None:
        """Show the details of the selected row."""
        lines: list[str] = []
        if row is not None:
            accuracy, loss, peak, above, took = _figures(row)
            rounds = [(f"{row.iterations} iterations", 3)] if row.iterations is not None else []
            values = [(f"accuracy {accuracy}", 1), (f"loss {loss}", 1), (f"peak {peak}", 1)]
            values += [(f"above start {above}", 3), (took, 2), *rounds]
            numbers = text.fitting_ranked([(row.state, 1), *values], self.app.size.width - 2)
            lines = [row.label, row.state if row.state == WAITING else numbers, row.message or row.session]
        role = "warning" if row is not None and row.state == FAILED else "text"
        for widget, line in zip(self.details, [*lines, *[""] * DETAIL_LINES], strict=False):
            widget.show(f" {line}", role)

    def _show_output(self) -> None:
        if self._log is None:
            return
        self._log.resize(max(1, self.app.size.width - 2), max(1, self.app.size.height - 5 - DETAIL_LINES))
        self.output.show(self._log.view())

    # Keys

    def action_open(self) -> None:
        row = next((row for row in self._view.rows if row.run == self.rows.selected), None)
        if row is None or self._log is not None:
            return
        self._follows = False
        self._complaints = row.state in (FAILED, RUNNING, INTERRUPTED)
        self._open(row.run)

    def action_other(self) -> None:
        if self._log is not None:
            self._complaints = not self._complaints
            self._open(self.rows.selected)

    def _open(self, run: int) -> None:
        path = self._source.files(run)[self._complaints]
        self._log = OutputLog(path, _MISSING)
        self._log.shown = True
        self.output.title = "what it complained of, and how far it is" if self._complaints else "its output"
        self.share_rows(self.app.size.height)
        self.fill()

    def action_back(self) -> None:
        if self._log is None:
            self.action_leave()
            return
        self._log = None
        self.share_rows(self.app.size.height)
        self.fill()

    def action_leave(self) -> None:
        self.app.exit()

    def action_move(self, by: int) -> None:
        if self._log is not None:
            self._log.move(by)
            self._show_output()
            return
        super().action_move(by)
        self._moved()

    def action_page(self, by: int) -> None:
        if self._log is not None:
            self._log.page(by)
            self._show_output()
            return
        super().action_page(by)

    def action_home(self) -> None:
        if self._log is not None:
            self._log.home()
            self._show_output()
        else:
            self.action_move(-len(self._view.rows))

    def action_to_end(self) -> None:
        if self._log is not None:
            self._log.end()
            self._show_output()
            return
        self._follows = any(row.state == RUNNING for row in self._view.rows)
        if not self._follows:
            self.rows.move(len(self._view.rows))
        self.fill()

    def action_sort(self) -> None:
        self._order, self._reversed = (self._order + 1) % len(_ORDERS), False
        self.fill()

    def action_reverse(self) -> None:
        self._reversed = not self._reversed
        self.fill()

    def on_output_pane_scrolled(self, message: OutputPane.Scrolled) -> None:
        self.action_move(message.by)

    def on_listing_opened(self) -> None:
        self.action_open()

    def on_panel_chosen(self, message: Listing.Chosen) -> None:
        if message.panel is self.rows:
            self._moved()

    def _moved(self) -> None:
        """Stay on the row that the user has chosen."""
        self._follows = False
        self.fill()


class GridApp(TerminalApp[None]):
    """App of the grid's screen; leaving it does not end the runs, the caller does."""

    def __init__(
        self, source: Source, *, color: str = "256", ascii_only: bool = False, theme_name: str = "dark"
    ) -> None:
        super().__init__(color=color, ascii_only=ascii_only, theme_name=theme_name)
        self._source = source

    def get_default_screen(self) -> GridScreen:
        return GridScreen(self._source)


def columns_of(view: GridView, width: int) -> tuple[tuple[Column, ...], bool]:
    """Return the columns for a width in cells, and whether all axes share a column for lack of room."""
    numbers = {"accuracy": 1, "peak": 2, "above": 3, "time": 4, "loss": 5}
    first = (Column("#", len(str(len(view.rows))) + 2, right=True, rank=2), Column("state", 15))
    last = tuple(Column(name, cells + 2, right=True, rank=numbers[name]) for name, cells in COLUMNS)
    message = Column("", 0, rank=6)
    axes = tuple(
        Column(text.clean(name), _cells((name, *(row.values[index] for row in view.rows))) + 2)
        for index, name in enumerate(view.axes)
    )
    if sum(column.cells for column in (*first, *axes, *last)) <= width:
        return (*first, *axes, *last, message), False
    run_column = replace(
        message,
        name="run",
        cells=min(_JOINED, _cells([" ".join(row.values) for row in view.rows]) + 2),
        rank=1,
    )
    return (*first, run_column, *last, message), True


def _cells(texts: Sequence[str]) -> int:
    """Return the width in cells of the widest text."""
    return max((text.width(text.clean(word)) for word in texts), default=0)


def _row(row: GridRow, joined: bool, count: int) -> Row:
    values = (" ".join(row.values),) if joined else row.values
    cells = (str(row.run + 1), row.state, *values, *_figures(row), row.message)
    return Row(row.run, cells[:count], _ROLES.get(row.state, "text"))


def _figures(row: GridRow) -> tuple[str, ...]:
    return figures(row.accuracy, row.loss, row.peak_bytes, row.peak_above_start_bytes, row.seconds)


def _count(view: GridView) -> str:
    left = "" if view.left_s is None or view.ended == len(view.rows) else f", {text.span(view.left_s)} left"
    failed = f", {view.failed} failed" if view.failed else ""
    return f"{view.ended} of {len(view.rows)}{failed}{left}"


def _keys(view: GridView, opened: bool) -> list[tuple[str, int]]:
    """Return the keys of the footer, with their ranks; q comes first, which a user in doubt looks for."""
    if opened:
        return [
            ("Esc back to the table", 1),
            ("Tab its other file", 2),
            ("↑ ↓ PgUp PgDn scroll", 3),
            ("? help", 1),
            ("q leaves", 1),
        ]
    if view.own:
        leave = "q ends the run (the same command goes on later)"
    elif view.holder:
        leave = f"q leaves (process {view.holder} goes on)"
    else:
        leave = "q leaves"
    return [(leave, 1), ("Enter output", 2), ("s S sort", 3), ("? help", 1), ("End the run that goes on", 4)]
