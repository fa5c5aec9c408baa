"""A program in a real pseudo-terminal, seen through a terminal emulator."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyte
import pytest

from tests.support.repository import ROOT

LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"


@contextmanager
def terminals() -> Iterator[Callable[..., Terminal]]:
    """Starts memtui on terminals of their own, which are closed at the end."""
    made: list[Terminal] = []

    def start(*words: object, **more: Any) -> Terminal:
        made.append(Terminal(*map(str, words), module="memtui", **more))
        return made[-1]

    yield start
    for one in made:
        one.close()


class Terminal:
    """A program on a pseudo-terminal and what it wrote.

    ``controlling``: the terminal sends SIGHUP when it goes. ``before``: a command that starts the program.
    """

    def __init__(
        self,
        *words: str,
        module: str = "tests.support.screen_fakes",
        columns: int = 120,
        rows: int = 36,
        controlling: bool = True,
        before: Sequence[str] = (),
    ) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.output = b""
        at_start = (lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if controlling else None
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TEXTUAL_")}
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", module, *map(str, words)],
            cwd=ROOT,
            env=clean | {"TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=at_start,
        )
        os.close(slave)

    def read(self, seconds: float, until: str = "") -> None:
        """Take in output, until some words stand on the screen if any are given."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    data = os.read(self.master, 1 << 16)
                except OSError:
                    return
                if not data:
                    return
                self.output += data
                self.stream.feed(data)
            if until and until in self.text:
                return
        if until:
            pytest.fail(f"{until!r} did not appear:\n" + self.text)

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(self.screen.display)

    def send(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self, seconds: float = 10.0) -> int:
        """Exit code; the output is drained meanwhile, as a terminal would."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.05)
        if self.process.poll() is None:
            self.process.kill()
            pytest.fail("the program did not end")
        self.read(2.0)  # until the other end is closed; a slow emulator on a busy machine needs a while
        return self.process.returncode

    def restored(self) -> bool:
        return LEAVE_ALTERNATE_SCREEN in self.output and SHOW_CURSOR in self.output

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.master >= 0:
            os.close(self.master)
            self.master = -1
