"""The home screen: processes worth attaching to, and sessions. Typing filters, Enter opens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from memtui.foreign import program_first
from memtui.screens.lists import ListScreen
from memtui.screens.terminal_app import TerminalApp
from memtui.views_home import HomeView, ProcessRow, SessionRow
from memtui.widgets import text
from memtui.widgets.listing import Column, Listing, ListingView, Row
from memtui.widgets.notice import Words

ATTACH, REPLAY = "attach", "replay"
REFRESH_S = 10.0  # a look at all processes takes some 20 ms
_KEYS = "type to filter · ↑ ↓ choose · Tab other list · Enter opens · Esc leaves"
_PROCESSES = (
    Column("PID", 10, right=True),
    Column("user", 11, rank=3),
    Column("what", 16, rank=2),
    Column("RSS", 10, right=True),
    Column("runs for", 11, right=True, rank=4),
    Column("command", 0),
)
_SESSIONS = (
    Column("begun", 18),
    Column("length", 11, right=True, rank=2),
    Column("samples", 10, right=True, rank=5),
    Column("size", 10, right=True, rank=4),
    Column("state", 14, rank=3),
    Column("command", 0),
)


class _Seen(Message):
    """A new look at everything."""

    def __init__(self, view: HomeView) -> None:
        super().__init__()
        self.view = view

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, _Seen)


class HomeScreen(ListScreen):
    """Two lists; the first one has the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "other", "the other list"),
        Binding("enter", "open", "open"),
        Binding("backspace", "rub_out", "take back a letter"),
        Binding("ctrl+u", "clear", "forget the filter"),
        Binding("escape", "leave", "forget the filter, or leave"),
    ]

    def __init__(self, look: Callable[[], HomeView], *, refresh_s: float = REFRESH_S) -> None:
        super().__init__()
        self._look, self._refresh_s = look, refresh_s
        self._view: HomeView | None = None
        self._words = ""
        self._asked: object = None  # the row that Enter was pressed on, and is to be pressed on once more
        self.head, self.foot = Words("title", id="header"), Words("dim", id="footer")
        self.processes = Listing(ListingView("running processes", _PROCESSES, note="looking ..."), id="processes")
        self.sessions = Listing(ListingView("sessions", _SESSIONS, note="looking ..."), id="sessions")
        self._lists = [self.processes, self.sessions]

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.processes, self.sessions, self.foot

    @property
    def active(self) -> Listing:
        return next((one for one in self._lists if one.chosen), self.processes)

    def compose(self) -> ComposeResult:
        yield from self.parts
        yield self.notice

    def follow(self) -> None:
        while not self.ended.is_set():
            self.post_message(_Seen(self._look()))
            self.ended.wait(self._refresh_s)

    def on__seen(self, message: _Seen) -> None:
        self._view = message.view
        self.fill()

    def share_rows(self, height: int) -> None:
        upper = (height - 2) // 2
        self.processes.styles.height, self.sessions.styles.height = upper, height - 2 - upper

    # What is shown

    def fill(self) -> None:
        view = self._view or HomeView()
        processes = [r for r in view.processes if self._matches(f"{r.pid} {r.user} {' '.join(r.kinds)} {r.command}")]
        sessions = [r for r in view.sessions if self._matches(f"{r.command} {r.state} {r.path}")]
        if self._view is not None:
            none = "no running process has that text" if self._words else "no Python and no large process runs"
            self.processes.show(
                ListingView(
                    "running processes",
                    _PROCESSES,
                    tuple(map(_process_row, processes)),
                    f"{none}; memtui demo starts a small training",
                    len(view.processes) - len(processes),
                )
            )
            none = "no session has that text" if self._words else "no sessions yet; Enter on a process records one"
            self.sessions.show(
                ListingView(
                    "sessions",
                    _SESSIONS,
                    tuple(map(_session_row, sessions)),
                    none,
                    len(view.sessions) - len(sessions),
                )
            )
        self._asked = None
        self.head.show(f" memtui  {view.host}" + (f"  ({view.note})" if view.note else ""))
        self.foot.show(f" filter: {self._words}▏  Esc forgets it" if self._words else f" {_KEYS}")

    def _matches(self, words: str) -> bool:
        words = words.lower()
        return all(part in words for part in self._words.lower().split())

    # Keys

    def _activate(self, listing: Listing) -> None:
        for one in self._lists:
            one.choose(one is listing)

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character:
            event.stop()
            self._words += event.character
            self.fill()

    def action_rub_out(self) -> None:
        self._words = self._words[:-1]
        self.fill()

    def action_clear(self) -> None:
        self._words = ""
        self.fill()

    def action_leave(self) -> None:
        if self._words:
            self.action_clear()
        else:
            self.app.exit()

    def action_move(self, by: int) -> None:
        super().action_move(by)
        if self._asked is not None:
            self.fill()

    def action_other(self) -> None:
        self._activate(self.sessions if self.processes.chosen else self.processes)

    def on_panel_chosen(self, message: Listing.Chosen) -> None:
        if isinstance(message.panel, Listing):
            self._activate(message.panel)

    def on_listing_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Leave with what was chosen: the caller opens it."""
        row = self.active.selected_row
        if row is None:
            return
        view = self._view or HomeView()
        trouble = next((r.trouble for r in view.sessions if row.key == (REPLAY, r.path)), "")
        other = next((r for r in view.processes if row.key == (ATTACH, str(r.pid)) and not _is_own(r, view)), None)
        if trouble:
            self.foot.show(f" it cannot be opened: {trouble}")
        elif other is not None and self._asked != row.key:
            self._asked = row.key
            self.foot.show(f" process {other.pid} belongs to {other.user}: Enter once more watches it", "warning")
        else:
            self.app.exit(row.key)


class HomeApp(TerminalApp[tuple[str, str]]):
    """Ends with (command, its argument), or None when nothing was chosen."""

    def __init__(
        self, look: Callable[[], HomeView], *, color: str = "256", ascii_only: bool = False, theme_name: str = "dark"
    ) -> None:
        super().__init__(color=color, ascii_only=ascii_only, theme_name=theme_name)
        self._home_look = look

    def get_default_screen(self) -> HomeScreen:
        return HomeScreen(self._home_look)


def _is_own(row: ProcessRow, view: HomeView) -> bool:
    """Whether watching it disturbs nobody else, or nobody more than now."""
    return row.user == view.user or bool(row.recording)


def _process_row(row: ProcessRow) -> Row:
    what = f"recorded {row.recording}" if row.recording else " ".join(row.kinds)
    cells = (
        str(row.pid),
        row.user,
        what,
        text.size(row.rss_bytes),
        text.span(row.age_s),
        program_first(row.command),
    )
    return Row((ATTACH, str(row.pid)), cells, "live" if row.recording else "text")


def _session_row(row: SessionRow) -> Row:
    begun = datetime.fromtimestamp(row.began_s)
    near = time.time() - row.began_s < 180 * 86_400
    cells = (
        f"{begun:%b %d %H:%M:%S}" if near else f"{begun:%Y-%m-%d}",
        text.clock(row.duration_s) if row.duration_s is not None else "n/a",
        str(row.samples) if row.samples is not None else "n/a",
        text.size(row.size_bytes),
        row.state,
        f"{os.path.basename(row.path)}: {row.trouble}" if row.trouble else program_first(row.command),
    )
    if row.pid is not None:
        return Row((ATTACH, str(row.pid)), cells, "live")
    return Row((REPLAY, row.path), cells, "dim" if row.trouble else "text")
