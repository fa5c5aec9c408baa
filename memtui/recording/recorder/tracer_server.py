"""Receives what programs report about their allocations, over connections of their own; everything is checked."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace

from memtui.core.samples import Event
from memtui.core.tracer_messages import TracerMessage
from memtui.recording.wire import DecodeError, Decoder

CONNECTIONS = 64  # of the ranks of one machine
MAX_PENDING_BYTES = 64 << 20  # of a message that has not arrived whole
READ_BYTES = 1 << 18
_PEER = struct.Struct("iII")  # pid, uid, gid: unix(7), SO_PEERCRED


class TracerServer:
    """Accepts connections on a listening socket, and decodes the messages that come over them."""

    def __init__(self, fd: int) -> None:
        self._listener = socket.socket(fileno=fd)
        self._listener.setblocking(False)
        self._open: dict[int, tuple[socket.socket, Decoder, int]] = {}

    @property
    def fds(self) -> list[int]:
        """Readable when ``read`` has something to read."""
        listening = [self._listener.fileno()] if len(self._open) < CONNECTIONS else []
        return [*listening, *self._open]

    def read(self, ready: list[int], now_ns: int) -> Iterator[TracerMessage | Event]:
        """Yield the messages that have come; a warning for a connection that sends anything else, which is closed."""
        for fd in ready:
            if fd == self._listener.fileno():
                self._accept()
            elif fd in self._open:
                yield from self._read_connection(fd, now_ns)

    def drain(self, now_ns: int) -> Iterator[TracerMessage | Event]:
        """Yield the rest of what programs that have ended had sent by then."""
        while ready := select.select(self.fds, [], [], 0)[0]:
            yield from self.read(ready, now_ns)

    def close(self) -> None:
        """Stop listening."""
        for connection, _, _ in self._open.values():
            connection.close()
        self._open.clear()
        self._listener.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        pid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
        self._open[connection.fileno()] = connection, Decoder(), pid

    def _read_connection(self, fd: int, now_ns: int) -> Iterator[TracerMessage | Event]:
        connection, decoder, pid = self._open[fd]
        problem = ""
        try:
            chunk = connection.recv(READ_BYTES)
            for message in decoder.feed(chunk):
                if not isinstance(message, TracerMessage):
                    raise DecodeError(f"a program may not send a {type(message).__name__}")
                yield replace(message, pid=pid)  # the peer's pid, whatever the message claims
            if decoder.pending_bytes > MAX_PENDING_BYTES:
                raise DecodeError(f"a step takes more than {MAX_PENDING_BYTES >> 20} MiB")
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        except DecodeError as error:
            chunk, problem = b"", str(error)
        if not chunk:
            del self._open[fd]
            connection.close()
        if problem:
            yield Event(now_ns, "warning", f"what process {pid} tells of its allocations is not understood: {problem}")
