"""Sends traced messages to the recorder, in a thread of its own: the training never waits for it."""

from __future__ import annotations

import os
import queue
import socket
import threading
from pathlib import Path

from memtui.core.tracer_messages import TracerMessage
from memtui.recording.wire import encode

WAITING = 8  # messages; a recorder that is this far behind loses some
LAST_S = 2.0  # for queued messages when the program ends


class Sender:
    """One connection to the recorder. Raises OSError when no recorder listens."""

    def __init__(self, path: Path) -> None:
        from memtui.recording.control import connect

        self._socket: socket.socket | None = connect(path, LAST_S)
        self._socket.settimeout(None)
        self._owner = os.getpid()
        self._queue: queue.Queue[TracerMessage | None] = queue.Queue(WAITING)
        self.lost = 0  # messages that could not be sent
        self._thread = threading.Thread(target=self._run, name="memtui trace", daemon=True)
        self._thread.start()

    def send(self, message: TracerMessage) -> None:
        """Queue a message for the thread; messages that do not fit are counted."""
        if os.getpid() != self._owner:  # a fork has the connection, but not the thread
            return
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """Send queued messages, for ``LAST_S`` at most."""
        if os.getpid() == self._owner and self._thread.is_alive():
            try:
                self._queue.put(None, timeout=LAST_S)
            except queue.Full:
                return
            self._thread.join(LAST_S)

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            if self._socket is None:
                self.lost += 1
                continue
            try:
                self._socket.sendall(encode(message))
            except OSError:  # the recording has ended; the program goes on
                self._disconnect()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
