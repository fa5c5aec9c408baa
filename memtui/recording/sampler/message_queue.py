"""Sends messages into a pipe without ever waiting for its reader."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from dataclasses import replace

from memtui.core.readings import Power
from memtui.core.samples import End, Event, ProcessWindow, Status, VmaTable, Window
from memtui.recording.wire import Message, encode

DROP_PARTS_BYTES = 2 << 20  # above this much waiting, a window that was cut loses the page sets of its parts
DROP_PAGES_BYTES = 8 << 20  # above this much waiting, windows lose their page sets and keep their scalars
DROP_WINDOWS_BYTES = 16 << 20  # above this, whole windows are dropped and counted
SLOW = "the recorder was too slow to take the pages"


class RecorderGone(Exception):
    """The pipe has no reader any more."""


class MessageQueue:
    """A bounded queue in front of a pipe: a slow disk or viewer must never delay the target.

    What is dropped is counted, and reported in a ``gap`` event before the next window; the numbers of dropped windows
    (``Window.sample``) are missing.

    Attributes:
        fd: the pipe.
        waiting_bytes: queued and not sent.
        holds: windows wait for a ``pump``: their reader is to work while the target is paused.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._queue: deque[memoryview] = deque()
        self.waiting_bytes = 0
        self.holds = False
        self._dropped_windows = self._dropped_others = 0
        self._gaps = 0  # of the windows that were dropped; the next window takes them over
        self._tables: dict[int, VmaTable] = {}  # the newest of each process: the next window depends on it

    def put(self, message: Message) -> None:
        """Queue one message and, unless windows wait, send what the pipe takes now. Raises RecorderGone."""
        if self.waiting_bytes > DROP_WINDOWS_BYTES and self._drop(message):
            return
        if isinstance(message, (Window, End)):
            message = self._make_up(message)
        if isinstance(message, Window) and self.waiting_bytes > DROP_PARTS_BYTES:
            message = replace(message, processes=tuple(_without_parts(p) for p in message.processes))
        if isinstance(message, Window) and self.waiting_bytes > DROP_PAGES_BYTES:
            message = replace(message, processes=tuple(_without_pages(p) for p in message.processes))
        if isinstance(message, VmaTable):
            self._tables.pop(message.process, None)
        self._append(message)
        if not (self.holds and isinstance(message, (Window, VmaTable, Power))):
            self.pump()

    def put_event(self, kind: str, text: str) -> None:
        """Queue an event of this moment. Raises RecorderGone."""
        self.put(Event(time.monotonic_ns(), kind, text))

    def _drop(self, message: Message) -> bool:
        """Drop a message and return True, or return False: processes and the end are sent at any price."""
        match message:
            case Window():
                window_keys = {process.process for process in message.processes}
                self._tables = {key: table for key, table in self._tables.items() if key in window_keys}  # others ended
                self._dropped_windows += 1
                self._gaps += message.gaps
            case Power() | Event():
                self._dropped_others += 1
            case VmaTable():
                self._tables[message.process] = message
            case _:
                return False
        return True

    def _make_up(self, message: Window | End) -> Message:
        """Queue what a message depends on when messages go through again, and report what was lost."""
        for table in self._tables.values():
            # The recorder applies a table from its sample on, even if the window of that sample was dropped.
            self._append(table)
        self._tables.clear()
        lost = []
        if self._dropped_windows:
            lost.append(f"{self._dropped_windows} samples")
        if self._dropped_others:
            lost.append(f"{self._dropped_others} events and power readings")
        if lost:
            t_ns = message.start_ns if isinstance(message, Window) else message.t_ns
            self._append(Event(t_ns, "gap", f"{' and '.join(lost)} lost: the recorder was too slow"))
        if self._gaps and isinstance(message, Window):
            message = replace(message, gaps=message.gaps + self._gaps)
        self._dropped_windows = self._dropped_others = self._gaps = 0
        return message

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
        while self._queue and (remaining_s := deadline - time.monotonic()) > 0:
            select.select([], [self.fd], [], remaining_s)
            self.pump()

    def _append(self, message: Message) -> None:
        encoded = encode(message)
        self._queue.append(memoryview(encoded))
        self.waiting_bytes += len(encoded)


def _without_parts(process: ProcessWindow) -> ProcessWindow:
    return replace(process, parts=(), part_lengths_ns=()) if process.parts else process


def _without_pages(process: ProcessWindow) -> ProcessWindow:
    if process.pages is None:
        return process
    return replace(process, pages=None, resident=None, parts=(), part_lengths_ns=(), status=Status.DROPPED, reason=SLOW)
