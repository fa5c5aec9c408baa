"""The Textual application: screens, colours, and leaving a terminal as it was found."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType

from memtui import terminal
from memtui.present import SessionLike
from memtui.screens.memory import MemoryScreen
from memtui.widgets.look import look
from memtui.widgets.panel import Painted
from memtui.widgets.themes import THEMES


class MemtuiApp(App[int]):
    """The viewer of one session.

    Args:
        open_session: gives the session; called once, in the thread that reads it.
        live: follow the newest sample; otherwise open on the whole picture.
        refresh_s: how often a growing session is looked at.
        color: "256", "16" or "none", see ``terminal.prepare``.
        ascii_only: draw with ASCII characters.
        theme_name: "dark", "light" or "high-contrast".
    """

    TITLE = "memtui"
    CSS_PATH = "../memtui.tcss"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False  # dragging would mark cells; the terminal's own selection (Shift) copies text
    BINDINGS: ClassVar[list[BindingType]] = [
        # Ctrl+C arrives as a key; what everyone expects of it is to end the program.
        Binding("ctrl+c", "quit", "quit", priority=True, show=False),
        Binding("ctrl+q", "quit", "quit", priority=True, show=False),
    ]

    def __init__(
        self,
        open_session: Callable[[], SessionLike],
        *,
        live: bool,
        refresh_s: float = 1.0,
        color: str = "256",
        ascii_only: bool = False,
        theme_name: str = "dark",
    ) -> None:
        # Our colours are palette indices: let them through as they are.
        super().__init__(ansi_color=True)
        self.look = look(color, ascii_only, theme_name)
        self._open_session, self._live, self._refresh_s = open_session, live, refresh_s

    def get_default_screen(self) -> MemoryScreen:
        """The first screen. Pushed on top of an empty one it would cost a second style sheet and layout."""
        return MemoryScreen(self._open_session, live=self._live, refresh_s=self._refresh_s)

    def on_mount(self) -> None:
        self.set_class(self.look.color != "256", "few-colours")
        self.set_class(self.look.ascii_only, "ascii-only")
        self._dress()
        self.call_after_refresh(_settle)
        if not self.is_headless:
            terminal.watch_signals(asyncio.get_running_loop(), lambda code: self.exit(None, code))
            self.set_interval(1.0, self._check_terminal)

    async def on_key(self, event: events.Key) -> None:
        """Keys typed faster than an input gets the focus belong to it: they must not press other keys."""
        take = getattr(self.screen, "take_key", None)
        if take is not None and await take(event):
            event.prevent_default()

    def action_next_theme(self) -> None:
        """The same screen in other colours."""
        names = list(THEMES)
        after = names[(names.index(self.look.theme) + 1) % len(names)]
        self.look = look(self.look.color, self.look.ascii_only, after)
        self._dress()
        for screen in self.screen_stack:
            for widget in screen.query(Painted):
                widget.recolour()

    def _dress(self) -> None:
        """What the style sheet paints: the ground and what is typed into."""
        for name in THEMES:
            self.set_class(name == self.look.theme, f"theme-{name}")

    def on_unmount(self) -> None:
        if not self.is_headless:
            terminal.unwatch_signals(asyncio.get_running_loop())

    def _check_terminal(self) -> None:
        """A terminal that went away without a word would leave the input thread spinning."""
        if terminal.hung_up():
            self.exit(None, 129)

    def export_svg(self) -> str:
        """The screen as an SVG picture."""
        return self.export_screenshot(title="memtui")


def _settle() -> None:
    """Collect garbage from now on, but not among what the start left behind (see ``app.run_viewer``)."""
    gc.freeze()
    gc.enable()
