"""A program in a pseudo-terminal: what it wrote and when, and what then stood on the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from benchmarks.recording import environment

COLUMNS, ROWS = 210, 60


class Terminal:
    """Takes in the output at once, in a thread; looking at it comes later, so that it delays nothing."""

    def __init__(self, command: list[str], *, columns: int = COLUMNS, rows: int = ROWS, home: Path) -> None:
        self.columns, self.rows = columns, rows
        self.chunks: list[tuple[float, bytes]] = []
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        kept = {
            k: v for k, v in environment().items() if not k.startswith("TEXTUAL_") and k not in ("COLUMNS", "LINES")
        }
        environ = kept | {"TERM": "xterm-256color", "XDG_STATE_HOME": str(home)}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environ, start_new_session=True
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:
                return
            if not data:
                return
            self.chunks.append((time.monotonic(), data))

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_quiet(self, quiet_s: float, seconds: float) -> None:
        """Return when nothing came for a while, or after so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.chunks and time.monotonic() - self.chunks[-1][0] > quiet_s:
                return
            time.sleep(0.02)

    def when(self, stands: Callable[[str], object]) -> float | None:
        """Seconds from the start of the program until the screen fulfilled a condition; None: it never did."""
        import pyte

        screen = pyte.Screen(self.columns, self.rows)
        stream = pyte.ByteStream(screen)
        for t, data in list(self.chunks):
            stream.feed(data)
            if stands("\n".join(screen.display)):
                return t - self.began
        return None

    def text(self) -> str:
        """What stands on the screen now."""
        shown: list[str] = []
        self.when(lambda text: shown.append(text))
        return shown[-1] if shown else ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, where: TracebackType | None) -> None:
        """Leave as a user does, by ``q``."""
        if self.process.poll() is None:
            self.send("q")
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(1)
        os.close(self._master)
