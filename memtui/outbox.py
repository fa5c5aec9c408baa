"""Sends frames into a pipe without ever waiting for its reader."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from dataclasses import replace

from memtui.frames import encode
from memtui.samples import Event, Message, ProcessWindow, Status, Window

THIN_BYTES = 8 << 20  # above this much waiting, windows lose their page sets and keep their scalars
DROP_BYTES = 16 << 20  # above this, whole windows are dropped and counted
SLOW = "the recorder was too slow to take the pages"


class RecorderGone(Exception):
    """Nobody reads the pipe any more."""


class Outbox:
    """A bounded queue in front of a pipe: a slow disk or viewer must never delay the target."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._queue: deque[memoryview] = deque()
        self.waiting_bytes = 0
        self._dropped = 0

    def put(self, message: Message) -> None:
        """Queue one message and send what the pipe takes now. Raises RecorderGone."""
        if isinstance(message, Window):
            if self.waiting_bytes > DROP_BYTES:
                self._dropped += 1
                return
            if self._dropped:
                text = f"{self._dropped} samples lost: the recorder was too slow"
                self._dropped = 0
                self._append(Event(message.start_ns, "gap", text))
            if self.waiting_bytes > THIN_BYTES:
                message = replace(message, processes=tuple(_thinned(p) for p in message.processes))
        self._append(message)
        self.pump()

    def pump(self) -> None:
        """Send what the pipe takes without waiting. Raises RecorderGone."""
        while self._queue:
            try:
                sent = os.write(self.fd, self._queue[0])
            except BlockingIOError:
                return
            except BrokenPipeError as error:
                raise RecorderGone from error
            self.waiting_bytes -= sent
            if sent == len(self._queue[0]):
                self._queue.popleft()
            else:
                self._queue[0] = self._queue[0][sent:]

    def drain(self, seconds: float) -> None:
        """Send everything, but give up after ``seconds``. Raises RecorderGone."""
        deadline = time.monotonic() + seconds
        self.pump()
        while self._queue and (left := deadline - time.monotonic()) > 0:
            select.select([], [self.fd], [], left)
            self.pump()

    def _append(self, message: Message) -> None:
        frame = encode(message)
        self._queue.append(memoryview(frame))
        self.waiting_bytes += len(frame)


def _thinned(process: ProcessWindow) -> ProcessWindow:
    if process.pages is None:
        return process
    return replace(process, pages=None, resident=None, status=Status.DROPPED, reason=SLOW)
