"""The base of screens of lists: a thread that updates them, a cursor, help, a notice on a small terminal."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from memtui.tui.screens.layout import too_small
from memtui.widgets.label import Notice
from memtui.widgets.row_panel import CursorPanel, RowPanel


class ListScreen(Screen[None]):
    """A screen of lists. ``follow`` runs in the thread until ``ended`` is set, and posts messages.

    ``HELP``: name of the help of the screen in ``screens.help``; without one ? is a key like others.
    """

    HELP: ClassVar[str] = ""
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", "next"),
        Binding("up", "move(-1)", "previous"),
        Binding("pagedown", "page(1)", "next page"),
        Binding("pageup", "page(-1)", "previous page"),
        Binding("question_mark,f1", "help", "help"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self.follow, name=type(self).__name__, daemon=True)
        self.notice = Notice(id="notice")

    @property
    def parts(self) -> Sequence[Widget]:
        """Return all widgets but the notice."""
        raise NotImplementedError

    @property
    def active(self) -> RowPanel | CursorPanel:
        """Return the panel that has the cursor."""
        raise NotImplementedError

    def follow(self) -> None:
        """Poll the data and post it as messages, in the thread."""
        raise NotImplementedError

    def share_rows(self, height: int) -> None:
        """Share out the rows of the screen."""
        raise NotImplementedError

    def fill(self) -> None:
        """Show the current data."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.active.choose(True)
        self.on_resize()
        self._thread.start()

    def on_unmount(self) -> None:
        self.ended.set()
        self._thread.join(2.0)

    def on_resize(self) -> None:
        notice = too_small(*self.app.size)
        self.notice.show(notice)
        self.notice.display = bool(notice)
        for part in self.parts:
            part.display = not notice
        self.share_rows(self.app.size.height)
        self.fill()

    def action_move(self, by: int) -> None:
        self.active.move(by)

    def action_page(self, by: int) -> None:
        self.action_move(by * self.active.in_sight)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return bool(self.HELP) if action == "help" else super().check_action(action, parameters)

    def action_help(self) -> None:
        from memtui.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.HELP))
