"""Starts the screen. Importing this module imports no Textual: its environment has to be set first."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from memtui.core.errors import silence
from memtui.tui import terminal

if TYPE_CHECKING:
    from textual.app import App

    from memtui.reports.comparison.model import CommonWindows, ComparedSession
    from memtui.session.session import Session
    from memtui.tui.screens.memory.recording_requests import Send
    from memtui.tui.session_app import MemtuiApp as MemtuiApp
    from memtui.widgets.views.home import HomeView

Shown = TypeVar("Shown", bound="App[Any]")
PATIENCE_S = 5.0  # how long a recorder may take to write the head of its session


def __getattr__(name: str) -> Any:
    if name == "MemtuiApp":
        from memtui.tui.session_app import MemtuiApp

        return MemtuiApp
    raise AttributeError(name)


def open_session(path: Path, *, patience_s: float = 0.0) -> Session:
    """Open a session for the screen, waiting up to ``patience_s`` for a recorder to create it.

    Raises:
        SessionError: with the problem of the file, in one line.
    """
    from memtui.session.file_format import SessionError
    from memtui.session.session import Session

    deadline = time.monotonic() + patience_s
    while True:
        try:
            return Session(path, glance=True)
        except SessionError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)


def run_viewer(
    path: Path,
    *,
    live: bool,
    on_quit: Callable[[str], object] | None = None,
    stopped: Callable[[], bool] | None = None,
    order: Send | None = None,
    owns_recording: bool = True,
    refresh_s: float = 1.0,
    first: str = "",
    process: int | None = None,
    message: str = "",
    verb: str = "replay",
) -> int:
    """Show a session until the user leaves; returns the exit code (143 or 129 after SIGTERM, SIGHUP or a lost tty).

    ``terminal.prepare`` says how to draw and must have run before anything imports Textual; it runs here with its
    defaults when it did not.

    Args:
        path: the session file; it may still be growing.
        live: follow the newest sample; otherwise open at the end, paused, with all of it in sight.
        on_quit: called once the terminal is restored, whatever ended the screen, with the way in which the screen was
            left, a constant of ``memtui.tui.terminal``.
        stopped: called about once a second: whether the recording was ended from elsewhere; the screen then closes.
        order: sends a request of the user to the recording, a command of ``memtui.recording.control``.
        owns_recording: leaving the screen ends the recording; the footer shows that.
        refresh_s: how often a growing session is read.
        first: "training": tensors over time lie on top in the beginning.
        process: PID of the one that all panels are about in the beginning.
        message: a line about the request, shown for a moment.
        verb: the command, for the line about opening a session that takes long.

    Raises:
        UserError: there is no terminal to draw on.
        SessionError: the file is not a readable session.
    """
    how_left = terminal.LOST
    try:
        with _ready():
            from memtui.core.malloc import give_back_large_blocks
            from memtui.core.progress_line import ProgressLine

            if live:  # for hours, perhaps
                give_back_large_blocks()
            with ProgressLine(verb, f"opening {path}"):
                reader = open_session(path, patience_s=PATIENCE_S if live else 0.0)
                imported = reader.imported() is not None
                reader.release()  # the thread that reads opens its own connection
            from memtui.tui.session_app import MemtuiApp

            app = _shown(
                partial(
                    MemtuiApp,
                    lambda: reader,
                    live=live,
                    refresh_s=refresh_s,
                    stopped=stopped,
                    order=order,
                    owns_recording=owns_recording,
                    imported=imported,
                    first=first,
                    process=process,
                    message=message,
                )
            )
            if not app.return_code:
                how_left = app.how_left
        return app.return_code or 0
    finally:
        if on_quit is not None:
            on_quit(how_left)


def run_home(poll: Callable[[], HomeView]) -> tuple[int, tuple[str, str] | None]:
    """Show the home screen. Returns the exit code and the choice: a command and its argument.

    Raises UserError: there is no terminal to draw on.
    """
    with _ready():
        from memtui.tui.screens.home import HomeApp

        app = _shown(partial(HomeApp, poll))
    return app.return_code or 0, app.return_value


def run_app(load: Callable[[], Callable[..., App[Any]]]) -> int:
    """Show an app until it is left. Returns the exit code.

    Args:
        load: imports the app and returns what makes it from ``color``, ``ascii_only`` and ``theme_name``. It is called
            once the terminal is ready, since no module may import Textual before.

    Raises UserError: there is no terminal to draw on.
    """
    with _ready():
        return _shown(load()).return_code or 0


def run_comparison(sessions: Sequence[ComparedSession], derive: Callable[[], CommonWindows] | None) -> int:
    """Show a comparison of sessions; returns the exit code. Raises UserError: there is no terminal to draw on.

    ``derive``: merges the windows of all sessions to one length, in a thread; None where lengths are equal.
    """
    with _ready():
        from memtui.tui.screens.comparison import ComparisonApp

        return _shown(partial(ComparisonApp, sessions, derive)).return_code or 0


def _shown(make: Callable[..., Shown]) -> Shown:
    """Create and run an app with ``terminal.settings``; return the app once it was left."""
    how = terminal.settings()
    app = make(color=how.color, ascii_only=how.ascii_only, theme_name=how.theme)
    app.run(mouse=how.mouse)
    return app


@contextmanager
def _ready() -> Iterator[None]:
    """Prepare the terminal and a fast start for a screen; end without an error on a lost terminal."""
    try:
        terminal.require_terminal()
        # Garbage collection of the objects of imports and style sheets, which all stay, took a sixth of the start.
        gc.disable()
        # The screen multiplies no matrices; the threads numpy would start for it cost 40 ms of CPU. Nothing is started
        # from here on that could inherit this.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with terminal.quiet():
            if "TEXTUAL_COLOR_SYSTEM" not in os.environ:
                terminal.prepare()
            yield
    finally:
        gc.enable()
        if terminal.hung_up():
            silence(sys.__stderr__ or sys.stderr)
            silence(sys.stdout)
