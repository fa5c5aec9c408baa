"""Base of all apps of memtui: colours, signals, and a terminal that is left as it was before."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rich import cells
from rich.control import Control
from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver

from memtui.core.malloc import give_back_free_pages
from memtui.tui import terminal
from memtui.widgets.panel import CachedWidget
from memtui.widgets.style import draw_style
from memtui.widgets.themes import THEMES

T = TypeVar("T")
# Where the terminal was resized, tmux folds the lines of a screen that is left and puts them above the prompt.
CLEAR = "\x1b[2J"
FORGET_S = 60.0

# Textual asks Rich for these few escape codes again for every line it writes, and Rich makes each in five steps: a
# tenth of what the screen took.
Control.move_to = staticmethod(lru_cache(1 << 11)(Control.move_to))  # type: ignore[method-assign]


class TerminalApp(App[T]):
    """An application on a terminal that may go away.

    Args:
        color: "256", "16" or "none", see ``terminal.prepare``.
        ascii_only: draw with ASCII characters.
        theme_name: "dark", "light" or "high-contrast".
    """

    TITLE = "memtui"
    CSS_PATH = Path(__file__).with_name("memtui.tcss")
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False  # dragging would mark cells; the terminal's own selection (Shift) copies text
    BINDINGS: ClassVar[list[BindingType]] = [
        # Ctrl+C arrives as a key; what everyone expects of it is to end the program.
        Binding("ctrl+c", "quit", "quit", priority=True, show=False),
        Binding("ctrl+q", "quit", "quit", priority=True, show=False),
    ]

    def __init__(self, *, color: str = "256", ascii_only: bool = False, theme_name: str = "dark") -> None:
        # Our colours are palette indices: let them through as they are.
        super().__init__(ansi_color=True)
        self.draw_style = draw_style(color, ascii_only, theme_name)

    def get_driver_class(self) -> type[Driver]:
        """Return the usual driver, extended to leave the terminal clean."""
        return _tidy(super().get_driver_class())

    def on_mount(self) -> None:
        self.set_class(self.draw_style.color != "256", "few-colours")
        self.set_class(self.draw_style.ascii_only, "ascii-only")
        self._dress()
        self.call_after_refresh(_settle)
        if not self.is_headless:
            terminal.watch_signals(asyncio.get_running_loop(), lambda code: self.exit(None, code))
            self.set_interval(1.0, self.check_terminal)
            self.set_interval(FORGET_S, forget_widths)
            self.set_interval(FORGET_S, give_back_free_pages)

    def action_next_theme(self) -> None:
        """Show the same screen in other colours."""
        names = list(THEMES)
        after = names[(names.index(self.draw_style.theme) + 1) % len(names)]
        self.draw_style = draw_style(self.draw_style.color, self.draw_style.ascii_only, after)
        self._dress()
        for screen in self.screen_stack:
            for widget in screen.query(CachedWidget):
                widget.recolour()

    def _dress(self) -> None:
        """Set the classes of the theme for the style sheet: background and input."""
        for name in THEMES:
            self.set_class(name == self.draw_style.theme, f"theme-{name}")

    def on_unmount(self) -> None:
        if not self.is_headless:
            terminal.unwatch_signals(asyncio.get_running_loop())

    def check_terminal(self) -> None:
        """End when the terminal went away without a signal, which would leave the input thread spinning."""
        if terminal.hung_up():
            self.exit(None, 129)

    def export_svg(self) -> str:
        """Return the screen as an SVG picture."""
        return self.export_screenshot(title="memtui")


def forget_widths() -> None:
    """Drop the widths that Rich has measured: it keeps those of 4,096 texts, and a graph makes new ones every second.

    Within half an hour that were some MiB of texts which nobody shows again.
    """
    cells.cached_cell_len.cache_clear()


class _TidyDriver(Driver):
    """A driver that clears the alternate screen before leaving it, and survives signals at any moment.

    Comes before a driver of terminals among the bases of a class, see ``_tidy``.
    """

    attrs_before: list[Any] | None
    _must_signal_resume: bool
    _changes_mode = False

    def start_application_mode(self) -> None:
        self._changes_mode = True
        modes: list[Any] | None = None
        if self._reads_keys():
            modes = self.attrs_before
            self.disable_input()
            self.close()
        super().start_application_mode()  # type: ignore[safe-super]
        if modes is not None:
            self.attrs_before = modes
        self._changes_mode = False

    def stop_application_mode(self) -> None:
        self._changes_mode = True
        self.write(CLEAR)
        super().stop_application_mode()  # type: ignore[safe-super]
        self._changes_mode = False

    # A signal handler of Python runs between any two steps of the main thread, also where that holds the lock of the
    # queue of output. Handlers that write would wait for this lock for ever, so the event loop calls them.
    def _sigtstp_application(self, *_: object) -> None:
        _call_soon(self._loop, self._stop)

    def _sigcont_application(self, *_: object) -> None:
        _call_soon(self._loop, self._resume)

    def _stop(self) -> None:
        super()._sigtstp_application()  # type: ignore[misc]  # returns when the process goes on
        self._resume()  # at once: until then nobody writes what is drawn, and the queue has room for 30 texts

    def _resume(self) -> None:
        # SIGTSTP ends the application mode, SIGSTOP does not: without this a second thread would read the keys, one of
        # the two would never end, and the terminal would keep the modes of the app when the app is left. An application
        # mode that is starting, ending or has ended is left alone.
        if not self._changes_mode and (self._must_signal_resume or self._reads_keys()):
            super()._sigcont_application()  # type: ignore[misc]

    def _reads_keys(self) -> bool:
        thread = getattr(self, "_key_thread", None)
        return thread is not None and thread.is_alive()


@cache
def _tidy(usual: type[Driver]) -> type[Driver]:
    """Return a usual driver of terminals with what ``_TidyDriver`` adds."""
    return type("TidyDriver", (_TidyDriver, usual), {})


def _call_soon(loop: asyncio.AbstractEventLoop, handler: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nothing is drawn any more
        loop.call_soon_threadsafe(handler)


def _settle() -> None:
    """Collect garbage from now on, but not among the objects of the start (see ``app.run_viewer``)."""
    gc.freeze()
    gc.enable()
