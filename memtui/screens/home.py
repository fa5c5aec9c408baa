"""The home screen: processes worth attaching to, and sessions. Typing filters, Enter opens."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from memtui.foreign import program_first
from memtui.screens.arrange import too_small
from memtui.screens.terminal_app import TerminalApp
from memtui.views_home import HomeView, ProcessRow, SessionRow
from memtui.widgets import text
from memtui.widgets.listing import Column, Listing, ListingView, Row
from memtui.widgets.notice import Notice, Words

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


class HomeScreen(Screen[None]):
    """Two lists; the first one has the cursor."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", "next"),
        Binding("up", "move(-1)", "previous"),
        Binding("pagedown", "page(1)", "next page"),
        Binding("pageup", "page(-1)", "previous page"),
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
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="home", daemon=True)
        self.head, self.foot = Words("title", id="header"), Words("dim", id="footer")
        self.processes = Listing(ListingView("running processes", _PROCESSES, note="looking ..."), id="processes")
        self.sessions = Listing(ListingView("sessions", _SESSIONS, note="looking ..."), id="sessions")
        self.notice = Notice(id="notice")
        self._lists = [self.processes, self.sessions]

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.processes
        yield self.sessions
        yield self.foot
        yield self.notice

    def on_mount(self) -> None:
        self.processes.choose(True)
        self._arrange()
        self._fill()
        self._thread.start()

    def on_unmount(self) -> None:
        self._ended.set()
        self._thread.join(2.0)

    def _follow(self) -> None:
        while not self._ended.is_set():
            self.post_message(_Seen(self._look()))
            self._ended.wait(self._refresh_s)

    def on__seen(self, message: _Seen) -> None:
        self._view = message.view
        self._fill()

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def _arrange(self) -> None:
        width, height = self.app.size
        words = too_small(width, height)
        tiny = bool(words)
        self.notice.show(words)
        self.notice.display = tiny
        for widget in (self.head, self.processes, self.sessions, self.foot):
            widget.display = not tiny
        upper = (height - 2) // 2
        self.processes.styles.height, self.sessions.styles.height = upper, height - 2 - upper

    # What is shown

    def _fill(self) -> None:
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
        self.head.show(f" memtui  {view.host}" + (f"  ({view.note})" if view.note else ""))
        self.foot.show(f" filter: {self._words}▏  Esc forgets it" if self._words else f" {_KEYS}")

    def _matches(self, words: str) -> bool:
        words = words.lower()
        return all(part in words for part in self._words.lower().split())

    # Keys

    @property
    def _active(self) -> Listing:
        return next(one for one in self._lists if one.chosen)

    def _activate(self, listing: Listing) -> None:
        for one in self._lists:
            one.choose(one is listing)

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character:
            event.stop()
            self._words += event.character
            self._fill()

    def action_rub_out(self) -> None:
        self._words = self._words[:-1]
        self._fill()

    def action_clear(self) -> None:
        self._words = ""
        self._fill()

    def action_leave(self) -> None:
        if self._words:
            self.action_clear()
        else:
            self.app.exit()

    def action_move(self, by: int) -> None:
        self._active.move(by)

    def action_page(self, by: int) -> None:
        self._active.move(by * self._active.in_sight)

    def action_other(self) -> None:
        self._activate(self.sessions if self.processes.chosen else self.processes)

    def on_panel_chosen(self, message: Listing.Chosen) -> None:
        if isinstance(message.panel, Listing):
            self._activate(message.panel)

    def on_listing_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Leave with what was chosen: the caller opens it."""
        row = self._active.selected_row
        if row is None:
            return
        trouble = next((r.trouble for r in (self._view or HomeView()).sessions if row.key == (REPLAY, r.path)), "")
        if trouble:
            self.foot.show(f" it cannot be opened: {trouble}")
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
