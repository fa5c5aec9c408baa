"""Where metrics are served, and to whom: this machine alone, or who has a token."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from memtui.core.errors import FAILURE, UserError
from memtui.core.small_file import read_small

BACKLOG = 16
_MOST_PATH_BYTES = 107  # of a Unix socket: sun_path in unix(7)
_UNIX = "unix:"
_LEAST_TOKEN, _MOST_TOKEN_BYTES = 16, 4096


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An IP address and a port, 0 for any that is free; or the path of a Unix socket, for its user alone."""

    host: str = "127.0.0.1"
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Return the address in ``[ADDR:]PORT``, ``unix:PATH`` or a path with a slash. Raises ValueError."""
        if text.startswith(_UNIX) or "/" in text:
            path = text.removeprefix(_UNIX)
            if not path or len(os.fsencode(path)) > _MOST_PATH_BYTES:
                raise ValueError(f"the path of a Unix socket has 1 to {_MOST_PATH_BYTES} bytes")
            return cls(host="", path=path)
        host, colon, port = text.rpartition(":")
        if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
            raise ValueError("is neither a port, an address with one (127.0.0.1:9400), nor a Unix socket (unix:PATH)")
        if not colon:
            return cls(port=int(port))
        name = host.removeprefix("[").removesuffix("]")
        try:
            address = ipaddress.ip_address("127.0.0.1" if name == "localhost" else name)
        except ValueError:
            raise ValueError(f"{name or 'nothing'} is not an IP address (0.0.0.0: all of this machine)") from None
        return cls(str(address), int(port))

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return bool(self.path) or ipaddress.ip_address(self.host).is_loopback

    def listen(self) -> socket.socket:
        """Return a socket that listens there; a Unix socket is for this user alone. Raises UserError."""
        try:
            if self.path:
                return _listen_at(Path(self.path))
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family, backlog=BACKLOG)
        except OSError as error:
            where = self.path or f"{self.host}:{self.port}"
            raise UserError(f"cannot listen at {where}: {error.strerror}; name another one", FAILURE) from None


def _listen_at(path: Path) -> socket.socket:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode) and not _is_answered(path):
            path.unlink()  # its server was killed
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _is_answered(path: Path) -> bool:
    """Return whether somebody listens at a Unix socket, or may: only a refusal says that nobody does."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


@dataclass(frozen=True, slots=True)
class MetricsListener:
    """Where metrics are served, and the file with the token that clients have to send; None: none is needed."""

    address: ListenAddress
    token_file: Path | None = None

    def listen(self) -> tuple[socket.socket, str]:
        """Return a socket that listens, and the token; empty where none is needed. Raises UserError."""
        where, token = self.address, "" if self.token_file is None else read_token(self.token_file)
        if not (token or where.is_local):
            raise UserError(
                f"--metrics {where.host}:{where.port}: other machines could read them; name a --metrics-token-file, or "
                "listen on 127.0.0.1 behind a proxy"
            )
        return where.listen(), token


def read_token(path: Path) -> str:
    """Return the token in a file. Raises UserError."""
    token = read_small(path, _MOST_TOKEN_BYTES).strip()
    if len(token) < _LEAST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise UserError(
            f"{path}: is not a token of {_LEAST_TOKEN} letters and more; head -c 24 /dev/urandom | base64 makes one"
        )
    return token


def check_library() -> None:
    """Check that prometheus-client is installed. Raises UserError."""
    if find_spec("prometheus_client") is None:
        raise UserError("--metrics needs prometheus-client, which is not installed: pip install 'memtui[metrics]'")


def url_of(listener: socket.socket, path: str = "/metrics") -> str:
    """Return how a client names a path of what listens there."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"{_UNIX}{name} {path}"
    host = f"[{name[0]}]" if listener.family == socket.AF_INET6 else name[0]
    return f"http://{host}:{name[1]}{path}"
