"""The sweep in a process of its own, beside a screen: drawing must not delay a reading of the energy counter.

What it does comes over a pipe, one JSON object a line. When the pipe is closed, or on SIGINT, the sweep ends; the rows
that were finished are in the database.
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

from memtui.bench import table
from memtui.bench.sweep import Progress, Tell
from memtui.errors import FAILURE, UserError

ENDING_S = 10.0


class SweepProcess:
    """Starts at once.

    Attributes:
        over: nothing more will come.
        rows: finished so far, references left out.
        skipped: measured before.
        error: why it ended early.
        conclusion: lines about the rows together, once it is over.
    """

    def __init__(self, work: Callable[[Tell], list[str]]) -> None:
        """``work`` measures and returns what is to be said at the end. It runs in a child; no thread may run yet."""
        self._words, told = os.pipe()
        self._buffer = b""
        self._kept: list[dict[str, Any]] = []  # heard before the screen was there
        self.over = False
        self.rows = self.skipped = 0
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
        """Wait until the measuring begins; False when it does not, and ``error`` says why."""
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
            if "error" in word:
                self.error = UserError(word["error"], word["code"])
            self.conclusion = word.get("over", self.conclusion)
            self.skipped = word.get("skipped", self.skipped)
            self.rows += bool(word.get("row") and not word["row"]["reference"])
        return words

    def end(self) -> None:
        """End the sweep, if it still runs, and wait for that."""
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


def _child(work: Callable[[Tell], list[str]], told: int) -> int:
    """The child's life; its exit status."""
    os.setsid()  # keys and the end of the terminal are the screen's
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)

    def tell(plain: dict[str, Any]) -> None:
        os.write(told, json.dumps(plain, separators=(",", ":")).encode() + b"\n")

    try:
        tell({"over": work(lambda progress: tell(to_plain(progress)))})
    except UserError as error:
        tell({"error": str(error), "code": error.code})
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    except Exception as error:
        tell({"error": f"{type(error).__name__}: {error}", "code": FAILURE})
    return 0


def to_plain(progress: Progress) -> dict[str, Any]:
    """What a screen shows of it."""
    row, made = progress.row, progress.configuration
    return {
        "phase": progress.phase,
        "number": progress.number,
        "of": progress.of,
        "skipped": progress.skipped,
        "window": progress.window,
        "windows": progress.windows,
        "left_s": progress.left_s,
        "power_w": progress.power_w,
        "source": progress.source,
        "sensor_w": progress.sensor_w,
        "sensor": progress.sensor,
        "t_ns": progress.t_ns,
        "configuration": "" if made is None else made.title,
        "notice": progress.notice,
        "row": None
        if row is None
        else {
            "cells": table.cells(row),
            "label": row.configuration.title,
            "words": table.words(row),
            "ok": row.status == "ok" and not row.flags,
            "reference": row.reference,
        },
    }
