"""One line on standard error about work that takes long, so that no command seems to hang.

On a terminal the line appears before two seconds have passed, is overwritten in place, and is erased when the work is
done. Elsewhere (a log, a batch job) a whole line is written at least every ten seconds. Standard output stays clean.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

from memtui.core.text import printable
from memtui.core.units import span

TERMINAL_FIRST_S, TERMINAL_EVERY_S = 0.7, 0.5  # from the start of the work; importing the command came before
LOG_EVERY_S = 9.0
_ERASE = "\r\x1b[K"
_ROOM_FOR_INTERRUPT = 3  # the terminal puts ^C after the cursor
_LEAST_COLUMNS = 20


_current: ProgressLine | None = None  # of this process


def update(far: str, doing: str | None = None) -> None:
    """Call ``ProgressLine.update`` for the line of this process, if it has one."""
    if _current is not None:
        _current.update(far, doing)


def advance(share: float) -> None:
    """Call ``ProgressLine.advance`` for the line of this process, if it has one."""
    if _current is not None:
        _current.advance(share)


def start(doing: str) -> None:
    """Set the activity that the progress line of this process, if it has one, shows from now on."""
    if _current is not None:
        _current.update(_current.far, doing)


@contextmanager
def above_line() -> Iterator[None]:
    """Print something while the line of this process, if it has one, is erased."""
    if _current is None:
        yield
    else:
        with _current.above():
            yield


class ProgressLine:
    """Shows what a command does and how far it is, while the context is entered.

        with ProgressLine("export", "writing csv into run/") as line:
            for number, table in enumerate(tables):
                line.update(f"{number} of {len(tables)} tables")

    ``update`` costs an assignment, so it may be called often; a thread writes the line when it is due. That thread does
    not survive a fork, and the line belongs to the process that entered it. A process has one line: an inner one that
    is entered inside another shows its text in the outer one.

    Args:
        verb: the command, as in ``memtui export``.
        doing: what the command does.
        wanted: False writes nothing at all.
        stream: in place of standard error.
        first_s: seconds without output before the first line; default by kind of stream.
        every_s: seconds between lines.
        silent_since_s: when the command last printed something, or started (``time.monotonic``); default: now.
    """

    def __init__(
        self,
        verb: str,
        doing: str,
        *,
        wanted: bool = True,
        stream: TextIO | None = None,
        first_s: float | None = None,
        every_s: float | None = None,
        silent_since_s: float | None = None,
    ) -> None:
        self._head, self._doing, self._far = f"memtui {verb}: ", doing, ""
        self._share, self._share_start_s = 0.0, time.monotonic()  # of what ``_far`` says
        self._stream = sys.stderr if stream is None else stream
        self._wanted = wanted and not self._stream.closed
        self.on_terminal = self._wanted and self._stream.isatty()
        self._first_s = (TERMINAL_FIRST_S if self.on_terminal else LOG_EVERY_S) if first_s is None else first_s
        self._every_s = (TERMINAL_EVERY_S if self.on_terminal else LOG_EVERY_S) if every_s is None else every_s
        self._lock = threading.RLock()  # held during all writing; output above the line may come in parts
        self._done = threading.Event()
        self._shown = ""  # what stands on the terminal now
        self._start_s = self._silent_since_s = time.monotonic()
        self._given_silent_s = silent_since_s
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._outer: ProgressLine | None = None
        self._outer_text = "", ""

    def __enter__(self) -> ProgressLine:
        global _current
        self._start_s = time.monotonic()
        self._silent_since_s = self._start_s if self._given_silent_s is None else self._given_silent_s
        self._outer, _current = _current, self
        if self._outer is not None:
            self._outer_text = self._outer._doing, self._outer._far
            self.update(self._far)
        elif self._wanted:
            self._thread = threading.Thread(target=self._run, name="progress line", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        global _current
        _current = self._outer
        if self._outer is not None:
            doing, far = self._outer_text
            self._outer.update(far, doing)
            self._outer = None
            return
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._erase()

    def update(self, far: str, doing: str | None = None) -> None:
        """Set how far the work is, and what it is where that has changed."""
        if doing is not None:
            self._doing = doing
        self._far = far
        self._share, self._share_start_s = 0.0, time.monotonic()
        if self._outer is not None:
            self._outer.update(far, self._doing)

    @property
    def far(self) -> str:
        """How far the work is."""
        return self._far

    def advance(self, share: float) -> None:
        """Set the share, from 0 to 1, that is done of what the last ``update`` told: the line says the time left."""
        self._share = share
        if self._outer is not None:
            self._outer.advance(share)

    @contextmanager
    def above(self) -> Iterator[None]:
        """Erase the line during the block, in which something else is printed; it comes back below when it is due."""
        if self._outer is not None:
            with self._outer.above():
                yield
            return
        if os.getpid() != self._pid:  # a fork: the thread, which may have held the lock, is not here
            yield
            return
        with self._lock:
            self._erase()
            yield
            self._silent_since_s = time.monotonic()

    def _run(self) -> None:
        wait_s = max(0.0, self._silent_since_s + self._first_s - time.monotonic())
        while not self._done.wait(wait_s):
            with self._lock:
                due_s = self._silent_since_s + self._first_s - time.monotonic()
                if due_s <= 0 or self._shown:
                    self._write()
                    due_s = self._every_s
            wait_s = due_s

    def _write(self) -> None:
        far = f": {self._far}" if self._far else ""
        text = printable(f"{self._head}{self._doing}{far}")
        after = f"{self._rest()} ({span(round(time.monotonic() - self._start_s))})"
        try:
            if self.on_terminal:
                columns = os.get_terminal_size(self._stream.fileno()).columns or 80
                room = max(_LEAST_COLUMNS, columns - _ROOM_FOR_INTERRUPT) - len(after)
                text = text if len(text) <= room else f"{text[: room - 1]}…"
                self._stream.write(_ERASE + text + after)
                self._shown = text
            else:
                self._stream.write(f"{text}{after}\n")
                self._silent_since_s = time.monotonic()
            self._stream.flush()
        except (OSError, ValueError):
            self._done.set()  # nobody reads the line any more, but the work goes on

    def _rest(self) -> str:
        share = min(self._share, 1.0)
        if share <= 0:
            return ""
        left_s = (time.monotonic() - self._share_start_s) * (1 - share) / share
        return f": {100 * share:.0f} %, {span(round(left_s))} left"

    def _erase(self) -> None:
        if not self._shown:
            return
        self._shown = ""
        try:
            self._stream.write(_ERASE)
            self._stream.flush()
        except (OSError, ValueError):
            pass
