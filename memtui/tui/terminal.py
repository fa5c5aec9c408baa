"""The terminal around the app: whether there is one, what a terminal can show, and what to do when it goes away.

Nothing here imports Textual: Textual reads its environment at import, so ``prepare`` must run before.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memtui.core.errors import UserError
from memtui.core.options import THEMES

if TYPE_CHECKING:
    import asyncio

STDIN, STDERR = 0, 2
# How a screen was left: by q, by d, because the recording was ended from elsewhere, or because the terminal was lost.
QUIT, DETACHED, STOPPED, LOST = "quit", "detached", "stopped", "lost"


RECORD = "use `memtui record` to measure without a screen"


def problem(environ: Mapping[str, str] = os.environ, instead: str = RECORD) -> str:
    """Return why no screen can be shown here, in one line; empty on a usable terminal.

    Textual draws on stderr and reads stdin. ``instead``: what can be done without a screen.
    """
    if not (_is_tty(STDIN) and _is_tty(STDERR)):
        missing = "stdin" if not _is_tty(STDIN) else "stderr"
        return f"the screen needs a terminal, but {missing} is not a terminal: {instead}"
    if environ.get("TERM", "") in ("", "dumb"):
        return f"the terminal cannot draw a screen (TERM is empty or 'dumb'): set TERM, or {instead}"
    return ""


def require_terminal(environ: Mapping[str, str] = os.environ, instead: str = RECORD) -> None:
    """Raise an error where no screen can be shown, with what can be done ``instead``.

    Raises:
        UserError: with exit code 2.
    """
    why = problem(environ, instead)
    if why:
        raise UserError(why)


def _is_tty(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def color_mode(requested: str = "auto", environ: Mapping[str, str] = os.environ) -> str:
    """Return for how many colours the screen is drawn: "256", "16" or "none"."""
    if requested in ("16", "none"):
        return requested
    if requested in ("256", "truecolor"):
        return "256"
    if environ.get("NO_COLOR"):
        return "none"
    term = environ.get("TERM", "")
    if term in ("linux", "vt220", "vt100", "ansi", "cygwin"):
        return "16" if term in ("linux", "ansi", "cygwin") else "none"
    return "256"


def ascii_needed(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the locale, or the terminal's own font, cannot show block and braille characters."""
    if environ.get("TERM", "") == "linux":
        return True  # the console's font has 256 or 512 glyphs, none of them braille
    if environ.get("LC_ALL") in ("C", "POSIX"):
        return True  # set on purpose only
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    # No locale at all is common over ssh and in containers; their terminals speak UTF-8 all the same.
    return bool(locale) and locale not in ("C", "POSIX") and "utf" not in locale.lower()


@dataclass(frozen=True, slots=True)
class Settings:
    """How the screen is drawn. ``color`` is "256", "16" or "none", ``theme`` one of ``THEMES``."""

    color: str = "256"
    ascii_only: bool = False
    mouse: bool = True
    theme: str = THEMES[0]


_settings = Settings()


def settings() -> Settings:
    """Return the settings of ``prepare``."""
    return _settings


def prepare(
    *,
    color: str = "auto",
    ascii_only: bool = False,
    mouse: bool = True,
    theme: str = THEMES[0],
    environ: MutableMapping[str, str] = os.environ,
) -> Settings:
    """Set the environment that Textual reads at import, and store how to draw.

    The palette has the 256 colours that every terminal has in the same place, so more would only cost bytes.
    """
    global _settings
    mode = color_mode(color, environ)
    system = {"256": "truecolor" if color == "truecolor" else "256", "16": "standard", "none": "standard"}[mode]
    environ["TEXTUAL_COLOR_SYSTEM"] = system
    environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    # The longest wait of Textual before drawing; ``PresenterThread`` decides how often there is something to draw.
    environ.setdefault("TEXTUAL_FPS", "120")
    environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    # Textual would turn everything grey; our own "none" draws without any colour.
    environ.pop("NO_COLOR", None)
    _settings = Settings(mode, ascii_only or ascii_needed(environ), mouse, theme)
    return _settings


@contextmanager
def quiet(fd: int = STDIN) -> Iterator[None]:
    """Switch off the echo of keys that are typed before the screen appears; the screen receives these keys."""
    try:
        import termios
    except ImportError:  # no POSIX terminal
        yield
        return
    try:
        before = termios.tcgetattr(fd)
        silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
        termios.tcsetattr(fd, termios.TCSANOW, silent)
    except (OSError, termios.error):
        yield
        return
    try:
        yield
    finally:
        # The app restores the modes without echo; on a lost terminal there is nothing to restore.
        with suppress(OSError, termios.error):
            termios.tcsetattr(fd, termios.TCSANOW, before)


def hung_up(fd: int = STDIN) -> bool:
    """Return whether the terminal behind a descriptor is gone. Textual's input thread would spin on it for ever."""
    poll = select.poll()
    poll.register(fd, 0)  # POLLHUP, POLLERR and POLLNVAL are always reported
    try:
        return any(mask & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, mask in poll.poll(0))
    except OSError:
        return True


def watch_signals(loop: asyncio.AbstractEventLoop, leave: Callable[[int], object]) -> None:
    """Call ``leave`` with 143 or 129 on SIGTERM or SIGHUP, from the loop, so that the terminal is restored first.

    A signal that already has a handler (to pass it on, see ``attach``) keeps that handler.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            continue
        try:
            loop.add_signal_handler(number, leave, 128 + number)
        except (ValueError, NotImplementedError, RuntimeError):
            return  # not the main thread: a test drives the app
    resume = signal.getsignal(signal.SIGCONT)
    if callable(resume):
        # The kernel sends SIGCONT along with SIGHUP. Textual takes SIGCONT for ``fg`` and starts to draw again; on a
        # lost terminal that ends its writing thread, the queue of that thread fills, and the exit waits for ever.
        signal.signal(signal.SIGCONT, lambda *what: None if hung_up() else resume(*what))


def unwatch_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Undo ``watch_signals``."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        try:
            loop.remove_signal_handler(number)
        except (ValueError, NotImplementedError, RuntimeError):
            return
