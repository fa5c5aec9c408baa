"""What the screens of lists share: a thread that keeps them up to date, a cursor, a sentence where there is no room."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from memtui.screens.arrange import too_small
from memtui.widgets.cursor_panel import CursorPanel
from memtui.widgets.notice import Notice
from memtui.widgets.rows import RowPanel


class ListScreen(Screen[None]):
    """``follow`` runs in the thread until ``ended`` is set, and posts what it sees."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", "next"),
        Binding("up", "move(-1)", "previous"),
        Binding("pagedown", "page(1)", "next page"),
        Binding("pageup", "page(-1)", "previous page"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self.follow, name=type(self).__name__, daemon=True)
        self.notice = Notice(id="notice")

    @property
    def parts(self) -> Sequence[Widget]:
        """All that is shown, but for the sentence in its place."""
        raise NotImplementedError

    @property
    def active(self) -> RowPanel | CursorPanel:
        """The panel that has the cursor."""
        raise NotImplementedError

    def follow(self) -> None:
        """See what there is to show, again and again."""
        raise NotImplementedError

    def share_rows(self, height: int) -> None:
        """Share out the rows of the screen."""
        raise NotImplementedError

    def fill(self) -> None:
        """Show what is known."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.active.choose(True)
        self.on_resize()
        self._thread.start()

    def on_unmount(self) -> None:
        self.ended.set()
        self._thread.join(2.0)

    def on_resize(self) -> None:
        words = too_small(*self.app.size)
        self.notice.show(words)
        self.notice.display = bool(words)
        for part in self.parts:
            part.display = not words
        self.share_rows(self.app.size.height)
        self.fill()

    def action_move(self, by: int) -> None:
        self.active.move(by)

    def action_page(self, by: int) -> None:
        self.action_move(by * self.active.in_sight)
