"""Work in a process of its own, beside a screen: neither holds up the other, and it ends with the screen.

What it says comes over a pipe, one JSON object a line. When the pipe is closed, or on SIGINT, the work ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from memtui.errors import FAILURE, UserError

ENDING_S = 10.0
Say = Callable[[dict[str, Any]], None]
Work = Callable[[Say], list[str]]


class Beside:
    """Starts at once.

    Attributes:
        over: nothing more will come.
        finished: the work came to its own end.
        error: why it ended early.
        conclusion: lines to be said at the end, once it is over.
    """

    def __init__(self, work: Work) -> None:
        """``work`` says words and returns its conclusion. It runs in a child; no thread may run yet."""
        self._words, told = os.pipe()
        self._buffer = b""
        self._kept: list[dict[str, Any]] = []  # heard before the screen was there
        self.over = self.finished = False
        self.error: UserError | None = None
        self.conclusion: list[str] = []
        sys.stdout.flush()
        self._pid = os.fork()
        if not self._pid:
            code = 130
            try:
                os.close(self._words)
                code = _child(work, told)
            finally:
                os._exit(code)  # whenever ^C comes: nothing of the parent may run twice
        os.close(told)

    def begin(self) -> bool:
        """Wait until the work proper begins; False when it does not, and ``error`` says why."""
        while not self.over and self.error is None:
            words = self._read(1.0)
            self._kept += words
            if any(word.get("phase", "start") != "start" or "over" in word for word in words):
                return True
        return False

    def hear(self, seconds: float) -> list[dict[str, Any]]:
        """Words that came meanwhile; returns with the first of them, or with none after so long."""
        if self._kept:
            kept, self._kept = self._kept, []
            return kept
        return self._read(seconds)

    def note(self, word: dict[str, Any]) -> None:
        """Called with every word as it comes."""
        if "error" in word:
            self.error = UserError(word["error"], word["code"])
        self.finished |= "over" in word
        self.conclusion = word.get("over", self.conclusion)

    def _read(self, seconds: float) -> list[dict[str, Any]]:
        if self.over:
            time.sleep(seconds)
            return []
        if select.select([self._words], [], [], seconds)[0]:
            chunk = os.read(self._words, 1 << 16)
            self.over = not chunk
            self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        words = [json.loads(line) for line in lines]
        for word in words:
            self.note(word)
        return words

    def end(self) -> None:
        """End the work, if it still goes on, and wait for that."""
        deadline = time.monotonic() + ENDING_S
        _send(self._pid, signal.SIGINT)
        os.close(self._words)
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                _send(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                return
            time.sleep(0.02)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _child(work: Work, told: int) -> int:
    """The child's life; its exit status."""
    os.setsid()  # keys and the end of the terminal are the screen's
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)

    def tell(plain: dict[str, Any]) -> None:
        os.write(told, json.dumps(plain, separators=(",", ":")).encode() + b"\n")

    try:
        tell({"over": work(tell)})
    except UserError as error:
        tell({"error": str(error), "code": error.code})
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    except Exception as error:
        tell({"error": f"{type(error).__name__}: {error}", "code": FAILURE})
    return 0
