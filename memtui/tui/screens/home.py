"""The home screen: processes worth attaching to, and sessions. Typing filters, Enter opens."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from memtui.core.text import program_first, without_folders
from memtui.tui.base_app import TerminalApp
from memtui.tui.screens.list_screen import ListScreen
from memtui.widgets import text
from memtui.widgets.label import TextLine
from memtui.widgets.row_panel import index_of
from memtui.widgets.table import Column, Listing, ListingView, Row
from memtui.widgets.views.home import HomeView, ProcessRow, SessionRow

ATTACH, REPLAY = "attach", "replay"
REFRESH_S = 1.8  # so that a new process is shown within 2 s; polling 500 processes takes 6 ms
_KEYS = "type to filter · ↑ ↓ choose · Tab other list · Enter opens · Esc leaves"
_PROCESSES = (
    Column("PID", 10, right=True),
    Column("user", 11, rank=3),
    Column("what", 16, rank=2),
    Column("RSS", 10, right=True),
    Column("runs for", 11, right=True, rank=4),
    Column("command", 0),
)
_FIGURES = 50  # cells of the other columns of a process, about
_SESSIONS = (
    Column("begun", 18),
    Column("length", 11, right=True, rank=2),
    Column("samples", 10, right=True, rank=5),
    Column("size", 10, right=True, rank=4),
    Column("state", 14, rank=3),
    Column("command", 0),
)


class HomeScreen(ListScreen):
    """Two lists; the first one has the cursor."""

    class Seen(Message):
        """A new view of processes and sessions."""

        def __init__(self, view: HomeView) -> None:
            super().__init__()
            self.view = view

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, HomeScreen.Seen)

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "other", "the other list"),
        Binding("enter", "open", "open"),
        Binding("escape", "leave", "leave, where no filter is typed"),
    ]

    def __init__(self, poll: Callable[[], HomeView], *, refresh_s: float = REFRESH_S) -> None:
        super().__init__()
        self._poll, self._refresh_s = poll, refresh_s
        self._view: HomeView | None = None
        self._typed = ""
        self._confirming: object = None  # the key of a row that opens with a second Enter
        self._foot_message = ("", "")  # text in place of the keys until another key is pressed, and its role
        self.head, self.foot = TextLine("title", id="header"), TextLine("dim", id="footer")
        self.processes = Listing(ListingView("running processes", _PROCESSES, note="looking ..."), id="processes")
        self.sessions = Listing(ListingView("sessions", _SESSIONS, note="looking ..."), id="sessions")
        self._lists = [self.processes, self.sessions]
        self._added: dict[Listing, set[Hashable]] = {listing: set() for listing in self._lists}

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.processes, self.sessions, self.foot

    @property
    def active(self) -> Listing:
        return next((listing for listing in self._lists if listing.chosen), self.processes)

    def follow(self) -> None:
        while not self.ended.is_set():
            self.post_message(self.Seen(self._poll()))
            self.ended.wait(self._refresh_s)

    def on_home_screen_seen(self, message: Seen) -> None:
        self._view = message.view
        self.fill(settled=True)

    def share_rows(self, height: int) -> None:
        upper = (height - 2) // 2
        self.processes.styles.height, self.sessions.styles.height = upper, height - 2 - upper

    # What is shown

    def fill(self, *, settled: bool = False) -> None:
        """Show the current view.

        Args:
            settled: no key was pressed: in the list with the cursor no row moves, new rows come at the end, and rows
                above the cursor stay when their process or session is gone.
        """
        view = self._view or HomeView()
        processes = [r for r in view.processes if self._matches(f"{r.pid} {r.user} {' '.join(r.kinds)} {r.command}")]
        sessions = [r for r in view.sessions if self._matches(f"{r.command} {r.state} {r.path}")]
        if self._view is not None:
            none = "no running process has that text" if self._typed else "no Python and no large process runs"
            rows = tuple(map(_process_row, processes, self._commands([row.command for row in processes])))
            note, hidden = f"{none}; memtui demo starts a small training", len(view.processes) - len(processes)
            self._show(self.processes, ListingView("running processes", _PROCESSES, rows, note, hidden), settled)
            none = "no session has that text" if self._typed else "no sessions yet; Enter on a process records one"
            rows, hidden = tuple(map(_session_row, sessions)), len(view.sessions) - len(sessions)
            self._show(self.sessions, ListingView("sessions", _SESSIONS, rows, none, hidden), settled)
        self.head.show(f" memtui  {view.host}" + (f"  ({view.note})" if view.note else ""))
        self._show_foot()

    def _commands(self, commands: list[str]) -> list[str]:
        """Return command lines for a column: without folders where they have no room, and still tell rows apart."""
        whole = [program_first(command) for command in commands]
        short = [without_folders(command) for command in commands]
        is_long = max(map(text.width, whole), default=0) > self.app.size.width - _FIGURES
        return short if is_long and len(set(short)) == len(set(whole)) else whole

    def _show(self, listing: Listing, view: ListingView, settled: bool) -> None:
        before, added = listing.view.rows, self._added[listing]
        if not (settled and listing.chosen and before):
            added.clear()
            listing.show(view)
            return
        fresh = {row.key: row for row in view.rows}
        index = index_of(before, listing.selected) or 0
        gone = _ended if listing is self.processes else _deleted
        ordered = [fresh.pop(row.key) if row.key in fresh else gone(row) for row in before[: index + 1]]
        ordered += [fresh.pop(row.key) for row in before[index + 1 :] if row.key in fresh]
        added.update(fresh)
        rows = (*ordered, *fresh.values())
        listing.show(replace(view, rows=rows, added=sum(row.key in added for row in rows)))

    def _show_foot(self) -> None:
        message, role = self._foot_message
        if message:
            self.foot.show(f" {message}", role)
        else:
            self.foot.show(f" filter: {self._typed}▏  Esc forgets it" if self._typed else f" {_KEYS}")

    def _show_message(self, message: str, role: str = "dim") -> None:
        self._foot_message = message, role
        self._show_foot()

    def _clear_message(self) -> None:
        """Clear message and confirmation: another key than Enter was pressed."""
        self._confirming, self._foot_message = None, ("", "")
        self._show_foot()

    def _matches(self, row_text: str) -> bool:
        row_text = row_text.lower()
        return all(part in row_text for part in self._typed.lower().split())

    # Keys

    def _activate(self, listing: Listing) -> None:
        for other in self._lists:
            other.choose(other is listing)

    def on_key(self, event: events.Key) -> None:
        """Change the filter here and not in bindings: those run after letters that were typed later."""
        changes = {"backspace": self._typed[:-1], "ctrl+u": ""} | ({"escape": ""} if self._typed else {})
        if event.is_printable and event.character:
            changes[event.key] = self._typed + event.character
        if event.key in changes:
            event.stop()
            self._filter(changes[event.key])

    def _filter(self, typed: str) -> None:
        self._typed = typed
        self._clear_message()
        self.fill()

    def action_leave(self) -> None:
        self.app.exit()

    def action_move(self, by: int) -> None:
        super().action_move(by)
        self._clear_message()

    def action_other(self) -> None:
        self._activate(self.sessions if self.processes.chosen else self.processes)
        self._clear_message()

    def on_panel_chosen(self, message: Listing.Chosen) -> None:
        if isinstance(message.panel, Listing) and not message.panel.chosen:
            self._activate(message.panel)
            self._clear_message()

    def on_listing_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Leave with the choice, which the caller opens."""
        row = self.active.selected_row
        if row is None:
            return
        view = self._view or HomeView()
        process = next((r for r in view.processes if row.key == (ATTACH, str(r.pid))), None)
        session = next((r for r in view.sessions if row.key == (REPLAY, r.path)), None)
        if process is None and session is None:
            what = "the process has ended" if self.active is self.processes else "the file of the session was deleted"
            self._show_message(f"{what}; choose another row")
        elif session is not None and session.trouble:
            self._show_message(f"it cannot be opened: {session.trouble}")
        elif process is not None and not _is_own(process, view) and self._confirming != row.key:
            self._confirming = row.key
            self._show_message(
                f"process {process.pid} belongs to {process.user}: Enter once more watches it", "warning"
            )
        elif session is not None and session.pid is not None:
            self.app.exit((ATTACH, str(session.pid)))
        else:
            self.app.exit(row.key if session is None else (REPLAY, session.path))


class HomeApp(TerminalApp[tuple[str, str]]):
    """The app of the home screen. Its result is (command, argument), or None without a choice."""

    def __init__(
        self, poll: Callable[[], HomeView], *, color: str = "256", ascii_only: bool = False, theme_name: str = "dark"
    ) -> None:
        super().__init__(color=color, ascii_only=ascii_only, theme_name=theme_name)
        self._poll_home = poll

    def get_default_screen(self) -> HomeScreen:
        return HomeScreen(self._poll_home)


def _is_own(row: ProcessRow, view: HomeView) -> bool:
    """Return whether a process is of the user or recorded already: attaching needs no confirmation."""
    return row.user == view.user or bool(row.recording)


def _process_row(row: ProcessRow, command: str) -> Row:
    what = f"recorded {row.recording}" if row.recording else " ".join(row.kinds)
    cells = (
        str(row.pid),
        row.user,
        what,
        text.size(row.rss_bytes),
        text.span(row.age_s),
        command,
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
        f"{Path(row.path).name}: {row.trouble}" if row.trouble else program_first(row.command),
    )
    role = "live" if row.pid is not None else "dim" if row.trouble else "text"
    return Row((REPLAY, row.path), cells, role)  # the key stays the same in every state of the session


def _ended(row: Row) -> Row:
    """Return the row of a process that has ended."""
    return _with(row, _PROCESSES, what="ended", RSS="n/a")


def _deleted(row: Row) -> Row:
    """Return the row of a session whose file was deleted."""
    return _with(row, _SESSIONS, state="deleted")


def _with(row: Row, columns: Sequence[Column], **cells: str) -> Row:
    named = zip((column.name for column in columns), row.cells, strict=True)
    return replace(row, cells=tuple(cells.get(name, cell) for name, cell in named), role="dim")
