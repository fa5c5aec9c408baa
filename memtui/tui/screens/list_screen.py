"""The base of screens of lists: a thread that updates them, a cursor."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from memtui.tui.screens.parts_screen import FollowingScreen
from memtui.widgets.row_panel import CursorPanel, RowPanel


class ListScreen(FollowingScreen):
    """A screen of lists."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", "next"),
        Binding("up", "move(-1)", "previous"),
        Binding("pagedown", "page(1)", "next page"),
        Binding("pageup", "page(-1)", "previous page"),
        Binding("question_mark,f1", "help", "help"),
    ]

    @property
    def active(self) -> RowPanel | CursorPanel:
        """Return the panel that has the cursor."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.active.choose(True)

    def action_move(self, by: int) -> None:
        self.active.move(by)

    def action_page(self, by: int) -> None:
        self.action_move(by * self.active.in_sight)
