"""The bases of screens that are made of parts: a notice on a small terminal, a thread, the cursor of a session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from memtui.tui.screens.layout import too_small
from memtui.tui.screens.presenter_thread import Action
from memtui.widgets.label import Notice, TextLine
from memtui.widgets.table import Listing


class PartsScreen(Screen[None]):
    """A screen of parts, in whose place a notice stands where the terminal is too small.

    ``HELP``: name of the help of the screen in ``screens.help``; without one ? is a key like others.
    """

    HELP: ClassVar[str] = ""
    AUTO_FOCUS = ""

    def __init__(self) -> None:
        super().__init__()
        self.notice = Notice(id="notice")

    @property
    def parts(self) -> Sequence[Widget]:
        """Return all widgets but the notice."""
        raise NotImplementedError

    def share_rows(self, height: int) -> None:
        """Share out the rows of the screen, and hide parts that are out of sight for now."""
        raise NotImplementedError

    def fill(self) -> None:
        """Show the current data."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield from self.parts
        yield self.notice

    def on_resize(self) -> None:
        notice = too_small(*self.app.size)
        self.notice.show(notice)
        self.notice.display = bool(notice)
        for part in self.parts:
            part.display = not notice
        self.share_rows(self.app.size.height)
        self.fill()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return bool(self.HELP) if action == "help" else super().check_action(action, parameters)

    def action_help(self) -> None:
        from memtui.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.HELP))


class FollowingScreen(PartsScreen):
    """A screen that a thread updates. ``follow`` runs in it until ``ended`` is set, and posts messages."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self.follow, name=type(self).__name__, daemon=True)

    def follow(self) -> None:
        """Poll the data and post it as messages, in the thread."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.on_resize()
        self._thread.start()

    def on_unmount(self) -> None:
        self.ended.set()
        self._thread.join(2.0)


class CursorScreen(PartsScreen):
    """A screen with a list between two lines, and with the time axis and the cursor of the memory screen."""

    REFRESH_S: ClassVar[float] = 1.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "head('toggle_pause')", "pause or play"),
        Binding("t,right", "head('step', 1)", "next sample"),
        Binding("T,left", "head('step', -1)", "previous sample"),
        Binding("shift+right", "head('step', 10)", "ten samples on"),
        Binding("shift+left", "head('step', -10)", "ten samples back"),
        Binding("home", "head('home')", "first sample"),
        Binding("end,l", "head('to_end')", "live, or the end"),
        Binding("down", "move(1)", "next row"),
        Binding("up", "move(-1)", "previous row"),
        Binding("pagedown", "page(1)", "next page"),
        Binding("pageup", "page(-1)", "previous page"),
        Binding("question_mark,f1", "help", "help"),
    ]

    def __init__(self, submit: Callable[[Action], object], rows: Listing) -> None:
        """Take ``submit``, which runs an action in the thread of the presenter, and the list."""
        super().__init__()
        self._submit, self.rows = submit, rows
        self.head, self.foot = TextLine("title", id="header"), TextLine("dim", id="footer")

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.rows, self.foot

    def share_rows(self, height: int) -> None:
        self.rows.styles.height = max(3, height - 2)

    def find(self) -> None:
        """Have the thread of the presenter find the data of the cursor, and post it as a message."""
        raise NotImplementedError

    def update_view(self) -> None:
        if self.app.screen is self:  # and no other one lies on top
            self.find()

    def on_mount(self) -> None:
        self.rows.choose(True)
        self.on_resize()
        self.set_interval(self.REFRESH_S, self.update_view)
        self.update_view()

    def action_head(self, what: str, *by: int) -> None:
        self._submit(lambda presenter: getattr(presenter.playhead, what)(*by))
        self.update_view()

    def action_move(self, by: int) -> None:
        self.rows.move(by)

    def action_page(self, by: int) -> None:
        self.rows.move(by * self.rows.in_sight)
