"""The screen of ``memtui bench``: the present measurement, and the finished configurations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from memtui.bench.sweep_task import FinishedRow, SweepMessage
from memtui.bench.text import window
from memtui.core.processes import WorkEnded, WorkFailed
from memtui.tui.base_app import TerminalApp
from memtui.tui.screens.list_screen import ListScreen
from memtui.widgets import text
from memtui.widgets.label import TextLine
from memtui.widgets.power_strip import PowerStrip
from memtui.widgets.table import Column, Listing, ListingView, Row
from memtui.widgets.views.bench import BenchRow, BenchView, PowerSample

REFRESH_S = 0.5
KEEP_DRAWN = 400  # readings of the power, two a second
NAME = 32  # cells of a configuration, for which figures give way where there is little room
DETAIL_LINES = 3  # lines about the selected row
PHASES = ("idle", "data", "warm-up", "window")
_KEYS = (
    ("↑ ↓ choose a row", 3),
    ("End the newest", 4),
    ("? help", 1),
    ("q ends (finished rows stay, and the same command goes on later)", 1),
)
_NAMES = (
    "phase", "number", "of", "skipped", "window", "windows", "visit", "visits", "left_s", "power_w", "source", "sensor",
    "configuration",
)  # fmt: skip
_NONE = "no configuration is finished yet"
Receive = Callable[[float], Sequence[SweepMessage]]


def columns(names: Sequence[tuple[str, int]], heading: str = "configuration") -> tuple[Column, ...]:
    """Return the columns of figures, then the configuration. Time and energy stay where there is little room."""
    ranks = {"time": 1, "J/call": 1, "+-": 2, "watts": 3, "TFLOP/s": 4, "GB/s": 4, "IQR": 5}
    figures = (Column(name, width + 2, right=True, rank=ranks.get(name, 6)) for name, width in names)
    return (*figures, Column(heading, NAME))


class _Received(Message):
    """Messages of the sweep."""

    def __init__(self, messages: list[SweepMessage]) -> None:
        super().__init__()
        self.messages = messages


def updated(view: BenchView, message: SweepMessage) -> BenchView:
    """Return the view after a message of the sweep."""
    if isinstance(message, WorkFailed):
        return replace(view, phase="over", notices=(*view.notices, message.text))
    if isinstance(message, WorkEnded):
        return replace(view, phase="over", left_s=None, window=0, notices=(*view.notices, *message.lines))
    rows, notices, drawn = view.rows, view.notices, view.drawn
    if message.row is not None:
        rows = (*rows, _view_of(message.row))
    if message.notice:
        notices = (*notices, message.notice)
    if message.t_ns > (drawn[-1].t_ns if drawn else 0):
        inside = message.phase == "window" and message.window > 0
        drawn = (*drawn[1 - KEEP_DRAWN :], PowerSample(message.t_ns, message.power_w, message.sensor_w, inside))
    return replace(view, rows=rows, notices=notices, drawn=drawn, **{name: getattr(message, name) for name in _NAMES})


def _view_of(row: FinishedRow) -> BenchRow:
    return BenchRow(row.line.cells, row.label, row.notes, row.ok, row.line.reference, row.name)


class BenchScreen(ListScreen):
    """Screen with the finished rows; the cursor follows the newest row until it is moved."""

    HELP = "bench"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("end", "newest", "the newest row"),
        Binding("q,escape", "leave", "end"),
    ]

    def __init__(
        self, title: str, receive: Receive, figures: Sequence[tuple[str, int]], heading: str = "configuration"
    ) -> None:
        super().__init__()
        self._title, self._receive, self._columns = title, receive, columns(figures, heading)
        self._view = BenchView()
        self._follows = True
        self.head, self.now, self.bar = TextLine("title", id="header"), TextLine("text"), TextLine("live")
        self.power = PowerStrip(())
        self.rows = Listing(ListingView("finished", self._columns, note=_NONE), id="rows")
        self.details = [TextLine("text") for _ in range(DETAIL_LINES)]
        self.notice_line, self.foot = TextLine("dim"), TextLine("dim", id="footer")

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.now, self.bar, self.power, self.rows, *self.details, self.notice_line, self.foot

    @property
    def active(self) -> Listing:
        return self.rows

    def follow(self) -> None:
        """Post the messages of half a second together."""
        while not self.ended.is_set():
            messages: list[SweepMessage] = []
            end = time.monotonic() + REFRESH_S
            while (left := end - time.monotonic()) > 0 and not self.ended.is_set():
                received = self._receive(left)
                messages += received
                if any(isinstance(message, WorkEnded | WorkFailed) for message in received):
                    self.post_message(_Received(messages))
                    return
            if messages:
                self.post_message(_Received(messages))

    def on__received(self, received: _Received) -> None:
        for message in received.messages:
            self._view = updated(self._view, message)
        self.fill()

    def share_rows(self, height: int) -> None:
        # Without a sensor the first line says so, and no room is needed for a picture.
        strip = (8 if height >= 30 else 5 if height >= 22 else 0) if self._view.drawn else 0
        self.power.styles.height = strip
        self.rows.styles.height = max(3, height - 5 - DETAIL_LINES - strip)

    def fill(self) -> None:
        view, width = self._view, self.app.size.width
        head = f" memtui bench  {self._title}   "
        self.head.show(head + _power(view, width - text.width(head)))
        phases = _phases(view)
        names = [*(row.label for row in view.rows[-text.COMPARED :]), view.configuration]
        self.now.show(f" {phases}   {text.shortened(names, width - text.width(phases) - 4)[-1]}")
        self.bar.show(f" {text.progress_bar(view.number, view.of, width - 40)} {_count(view)}")
        if self._view.drawn and not self.power.view:
            self.share_rows(self.app.size.height)
        self.power.show(view.drawn)
        rows = tuple(_row(index, row) for index, row in enumerate(view.rows))
        if self._follows and rows:
            self.rows.selected = rows[-1].key
        self.rows.show(ListingView("finished", self._columns, rows, _NONE))
        details = self._show_details()
        notice = view.notices[-1] if view.notices else ""
        self.notice_line.show(f" {notice}" if notice not in details else "")
        over = "it is over: q leaves and prints the rows"
        self.foot.show(f" {text.fitting_ranked(_KEYS, width - 2) if view.phase != 'over' else over}")

    def _show_details(self) -> list[str]:
        """Show the details of the selected row, and return them."""
        selected = self.rows.selected_row
        row = self._view.rows[int(selected.key)] if selected is not None else None  # type: ignore[call-overload]
        lines = [row.label, *row.sentences] if row is not None else []
        for widget, line in zip(self.details, [*lines, *[""] * DETAIL_LINES], strict=False):
            widget.show(f" {line}", "text" if row is None or row.ok else "warning")
        return lines

    def action_move(self, by: int) -> None:
        super().action_move(by)
        self._moved()

    def action_newest(self) -> None:
        self._follows = True
        self.fill()

    def action_leave(self) -> None:
        self.app.exit()

    def on_panel_chosen(self, message: Listing.Chosen) -> None:
        self._moved()

    def _moved(self) -> None:
        selected = self.rows.selected_row
        self._follows = selected is not None and selected.key == len(self._view.rows) - 1
        self._show_details()


class BenchApp(TerminalApp[None]):
    """App of the bench screen; leaving it does not end the sweep, the caller does."""

    def __init__(
        self,
        title: str,
        receive: Receive,
        figures: Sequence[tuple[str, int]],
        heading: str = "configuration",
        *,
        color: str = "256",
        ascii_only: bool = False,
        theme_name: str = "dark",
    ) -> None:
        super().__init__(color=color, ascii_only=ascii_only, theme_name=theme_name)
        self._parts = title, receive, figures, heading

    def get_default_screen(self) -> BenchScreen:
        return BenchScreen(*self._parts)


def _row(index: int, row: BenchRow) -> Row:
    name = row.name or row.label
    label = f"{name}  (ref)" if row.reference else name
    return Row(index, (*row.cells, label), "dim" if row.reference else "text" if row.ok else "warning")


def _power(view: BenchView, room: int) -> str:
    """Return the power now, or why it is not known: without what explains the reason, where ``room`` is short."""
    if view.power_w is not None:
        last = view.drawn[-1].sensor_w if view.drawn else None
        sensor = f"{text.power(last)} {view.sensor} · " if last is not None else ""
        return f"{sensor}{text.power(view.power_w)} over 1 s ({view.source})"
    reasons = (view.source, view.source.partition(": ")[0]) if view.source else ()
    whole = [f"power n/a: {reason}" for reason in reasons]
    return next((line for line in whole if text.width(line) <= room), "power n/a")


def _phases(view: BenchView) -> str:
    """Return the phases of a configuration, with the present phase in brackets."""
    if view.phase == "over":
        return "finished"
    names = []
    for phase in PHASES[1:] if view.phase != "idle" else PHASES:
        numbered = phase == "window" and view.window
        name = f"window {window(view.window, view.windows)}" if numbered else phase
        names.append(f"[{name}]" if phase == view.phase else name)
    visit = f"visit {view.visit} of {view.visits}: " if view.visit else ""
    return visit + " > ".join(names)


def _count(view: BenchView) -> str:
    left = "" if view.left_s is None else f", {text.span(round(view.left_s))} left"
    skipped = f", {view.skipped} before" if view.skipped else ""
    return f"{view.number} of {view.of}{skipped}{left}"
