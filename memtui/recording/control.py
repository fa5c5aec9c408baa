"""The control socket of a recording: what its user may request while it runs.

Each line is a JSON object and is answered by one. The socket lies in a folder of mode 0700 and only the user who
records, or root, is served (SO_PEERCRED). Nothing here ever waits: a client that is slow or silent, or whose lines are
too long, is disconnected.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtui.core.json_fields import fields_from_json, fields_to_json, to_json
from memtui.core.options import INTERVAL_NS, MARK_CHARACTERS, MAX_OVERHEAD_PPM
from memtui.recording.progress import Progress

FOLDER = "control"
LINE_BYTES = 4096  # of a request at most
ANSWER_BYTES = 1 << 17  # of an answer at most
CLIENTS = 32  # at once; the client that was silent longest is disconnected for a new one
PATIENCE_S = 10.0  # for the rest of a request
_WAITING = 64  # connections the kernel queues until they are accepted
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid

Answer = dict[str, Any]
SIGNALS = frozenset({"SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"})  # those that are passed on to a program
Limit = tuple[int, int] | int | frozenset[str]
# Each request with its fields: a range for a number, a length or the choices for a text; those with a ? are optional.
REQUESTS: dict[str, dict[str, Limit]] = {
    "status": {},
    "follow": {},
    "stop": {},
    "pause": {},
    "resume": {},
    "interval": {"interval_ns": INTERVAL_NS},
    "budget": {"ppm": (0, MAX_OVERHEAD_PPM[1])},  # of the time; 0: none
    "signal": {"name": SIGNALS},
    "mark": {"text": MARK_CHARACTERS, "t_ns?": (0, 1 << 62)},
}


def request(do: str, **fields: Any) -> bytes:
    """Return the line of a request."""
    return json.dumps({"do": do} | fields).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Request:
    """What a client requests. Fields that a request does not have, or that were left out, keep their defaults."""

    do: str
    interval_ns: int = 0
    ppm: int = 0
    name: str = ""
    text: str = ""
    t_ns: int = 0


@dataclass(frozen=True, slots=True)
class RecordingState:
    """The answer to ``status``.

    Attributes:
        progress: None before the first commit.
        log: of the program's output; empty when there is none.
        interval_ns: that was requested.
        max_overhead_ppm: the budget; None: without one.
        paused: sampling is paused.
    """

    progress: Progress | None
    log: str
    interval_ns: int
    max_overhead_ppm: int | None
    paused: bool

    def to_dict(self) -> Answer:
        """Return it as JSON."""
        return fields_to_json(self) | {"progress": to_json(self.progress) or {}}

    @classmethod
    def from_dict(cls, answer: Answer) -> RecordingState:
        """Undo ``to_dict``. Raises ValueError for what is not such an answer."""
        fields = {name: answer[name] for name in cls.__slots__ if name in answer}
        try:
            return fields_from_json(cls, fields | {"progress": fields.get("progress") or None})
        except ValueError:
            raise ValueError("not an answer of this version of memtui") from None


_IF_ANY = ("why", "error", "code")  # fields of Ended that are sent where there is something to say


@dataclass(frozen=True, slots=True)
class Ended:
    """How a recording ended, reported to all who follow it.

    Attributes:
        asked: a client requested the end.
        exit_status: of the program that was started, as a shell gives it.
        outlived: that program still runs.
        why: the recorder's reason to end the recording, if it had one.
        error: what went wrong, in a line; empty when nothing did.
        code: the exit code for that.
    """

    asked: bool = False
    exit_status: int = 0
    outlived: bool = False
    why: str = ""
    error: str = ""
    code: int = 0

    def to_dict(self) -> Answer:
        """Return the end as JSON, without fields of ``_IF_ANY`` that are empty."""
        values = fields_to_json(self)
        return {"ended": {name: value for name, value in values.items() if value or name not in _IF_ANY}}

    @classmethod
    def from_dict(cls, answer: Answer) -> Ended | None:
        """Undo ``to_dict``; None for any other answer. Raises ValueError. Another memtui may have other fields."""
        fields = answer.get("ended")
        if not isinstance(fields, dict):
            return None
        return fields_from_json(cls, {name: fields[name] for name in cls.__slots__ if name in fields})


def parse_request(line: bytes) -> Request:
    """Return the request of a line; every key, type and range is checked. Raises ValueError."""
    if len(line) > LINE_BYTES:
        raise ValueError(f"longer than {LINE_BYTES} bytes")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("do"), str) or fields["do"] not in REQUESTS:
        raise ValueError(f'an object whose "do" is one of {", ".join(REQUESTS)} was expected')
    do = fields.pop("do")
    limits = {name.rstrip("?"): limit for name, limit in REQUESTS[do].items()}
    needed = {name for name in REQUESTS[do] if not name.endswith("?")}
    if not needed <= fields.keys() <= limits.keys():
        raise ValueError(f"{do} has the fields {', '.join(REQUESTS[do]) or 'do'} and no others")
    for name, value in fields.items():
        _check_field(name, value, limits[name])
    return Request(do, **fields)


def _check_field(name: str, value: object, limit: Limit) -> None:
    """Raise ValueError for a value that a field does not take."""
    if isinstance(limit, tuple):
        if type(value) is not int or not limit[0] <= value <= limit[1]:
            raise ValueError(f"{name} must be a whole number from {limit[0]} to {limit[1]}")
    elif isinstance(limit, frozenset):
        if not isinstance(value, str) or value not in limit:
            raise ValueError(f"{name} must be one of {', '.join(sorted(limit))}")
    elif not isinstance(value, str) or not 0 < len(value) <= limit:
        raise ValueError(f"{name} must be a text of 1 to {limit} characters")


class Listener:
    """A socket in a folder that only its user can enter, removed when it is closed."""

    def __init__(self, folder: Path, name: str) -> None:
        """Raise OSError where no socket can be made (some network and container file systems)."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PermissionError(f"{folder}: is not a folder of this user alone")
        self.path = folder / name
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # A killed recording of this process left the file; the sampler would have reported one that lives.
            self.path.unlink(missing_ok=True)
            with _ShortPath(self.path) as short:
                self.socket.bind(short)
            self.path.chmod(0o600)
            self.socket.listen(_WAITING)
            self.socket.setblocking(False)
        except OSError:
            self.socket.close()
            raise

    def close(self) -> None:
        self.socket.close()
        self.path.unlink(missing_ok=True)


def open_listener(folders: Iterable[Path], name: str) -> Listener | None:
    """Open a socket in the first folder where that works; None where it works in none."""
    for folder in folders:
        try:
            return Listener(folder, name)
        except OSError:
            continue
    return None


class _ShortPath:
    """A name for a socket that fits into the 108 bytes of its address, however deep the folder lies."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = path.name

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._fd}/{self._name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def connect(path: Path, seconds: float | None = None) -> socket.socket:
    """Return a connection to a control socket; without ``seconds`` nothing waits. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds or 0.0)
        with _ShortPath(path) as short:
            connection.connect(short)
    except OSError:
        connection.close()
        raise
    return connection


class Answers:
    """What comes in on a connection to a recording, one object a line."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""

    def next(self, deadline_s: float | None = None) -> Answer | None:
        """Return the next answer; None when there will be no more.

        Args:
            deadline_s: until when to wait (``time.monotonic``); 0 takes what is there, None waits for ever.

        Raises:
            OSError: reading failed, or nothing came in time (TimeoutError, or BlockingIOError for a deadline of 0).
            ValueError: the line is not an answer.
        """
        while b"\n" not in self._received:
            self._connection.settimeout(deadline_s and max(deadline_s - time.monotonic(), 0.01))
            chunk = self._connection.recv(ANSWER_BYTES)
            if not chunk:
                return None
            self._received += chunk
            if len(self._received) > ANSWER_BYTES:
                raise ValueError(f"an answer of more than {ANSWER_BYTES} bytes")
        line, _, self._received = self._received.partition(b"\n")
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError("not an answer")
        return answer


class _Client:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.received = b""
        self.last_received_s = time.monotonic()
        self.follows = False

    def send(self, answer: Answer) -> bool:
        """Send a line; False when the client does not take it at once: nobody waits for a slow client."""
        line = json.dumps(answer).encode() + b"\n"
        try:
            return self.connection.send(line) == len(line)
        except OSError:
            return False


class Control:
    """Serves the clients of one recording.

    Args:
        do: answers a checked request; the text of a ValueError is sent to the client.
        listener: where clients connect; None when there is no socket.
    """

    def __init__(self, do: Callable[[Request], Answer], listener: Listener | None) -> None:
        self._do, self._listener = do, listener
        self._clients: dict[int, _Client] = {}

    def adopt(self, connection: socket.socket) -> None:
        """Add the screen that this recording was started from; it follows the recording."""
        client = self._clients[connection.fileno()] = _Client(connection)
        client.follows = True

    @property
    def fds(self) -> list[int]:
        """The descriptors to wait on before ``serve``."""
        return [*self._clients, *([self._listener.socket.fileno()] if self._listener else [])]

    def serve(self, ready: Iterable[int]) -> None:
        """Accept connections and answer requests."""
        listening = self._listener.socket.fileno() if self._listener else -1
        for fd in ready:
            if fd == listening:
                self._accept()
            elif (client := self._clients.get(fd)) and not self._receive(client):
                self._drop(fd)
        deadline = time.monotonic() - PATIENCE_S
        for fd, client in tuple(self._clients.items()):
            if client.last_received_s < deadline and not client.follows:
                self._drop(fd)

    def notify_followers(self, ended: Ended) -> None:
        """Send how the recording ended to all who follow it."""
        for fd, client in tuple(self._clients.items()):
            if client.follows and not client.send(ended.to_dict()):
                self._drop(fd)

    def close(self) -> None:
        for fd in tuple(self._clients):
            self._drop(fd)
        if self._listener is not None:
            self._listener.close()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.socket.accept()
        except OSError:
            return  # the client left again, or no descriptor is free
        peer = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if peer[1] not in (os.geteuid(), 0):
            connection.close()
            return
        if len(self._clients) >= CLIENTS:
            self._drop(
                min(self._clients, key=lambda fd: (self._clients[fd].follows, self._clients[fd].last_received_s))
            )
        self._clients[connection.fileno()] = _Client(connection)

    def _receive(self, client: _Client) -> bool:
        """Receive from a client and answer; False when the client is to be disconnected."""
        try:
            chunk = client.connection.recv(LINE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        client.last_received_s = time.monotonic()
        *lines, client.received = (client.received + chunk).split(b"\n")
        if len(client.received) > LINE_BYTES:
            client.send({"ok": False, "error": f"longer than {LINE_BYTES} bytes"})
            return False
        answers = [self._answer(client, line) for line in lines]  # requests count even of a client that is gone
        return all(map(client.send, answers)) and bool(chunk)

    def _answer(self, client: _Client, line: bytes) -> Answer:
        try:
            parsed = parse_request(line)
            if parsed.do == "follow":
                client.follows = True
            return {"ok": True} | self._do(parsed)
        except ValueError as error:
            return {"ok": False, "error": str(error)}

    def _drop(self, fd: int) -> None:
        self._clients.pop(fd).connection.close()
