"""Asks a Redfish service for one resource: GET and nothing else, over one connection, with bounds on the answer."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
from typing import Any
from urllib.parse import urljoin, urlsplit

from memtui.core.samples import Status
from memtui.recording.network_power.address import Address, is_path
from memtui.recording.network_power.credentials import Credentials

SECONDS = 8.0  # for each step of an answer; the caller bounds the whole of it, see ``Connection.abort``
MOST_BYTES = 1 << 20
_MOST_REDIRECTS = 2


class NoAnswer(Exception):
    """There is no value, and the text says why, with nothing of an answer but checked paths.

    ``status``: ``denied`` (ask no more: an account is locked after a few wrong passwords), ``unsupported`` (no such
    resource), ``failed`` (another try may do).
    """

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Unreachable(NoAnswer):
    """There was no answer at all, or only a part of one.

    ``password_sent``: the name and the password went out, and nothing came back that says what became of them.
    """

    def __init__(self, reason: str, *, password_sent: bool = False) -> None:
        super().__init__(Status.FAILED, reason)
        self.password_sent = password_sent


class Forbidden(NoAnswer):
    """The service refuses this resource (HTTP 403): the password is right, and another resource may be allowed."""


class Connection:
    """One connection to a service, made when it is needed, kept between requests, and made anew after a failure."""

    def __init__(self, address: Address, credentials: Credentials | None, seconds: float = SECONDS) -> None:
        self._address, self._credentials, self._seconds = address, credentials, seconds
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None  # of that connection, which forgets it when an answer is the last one
        self._aborted = False
        self._password_sent = False  # in a request that has no answer yet

    def get(self, path: str) -> dict[str, Any]:
        """Return the resource. Raises NoAnswer."""
        reused = self._connection is not None
        try:
            try:
                return self._follow(path)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self.close()
                if not reused or self._aborted:
                    raise
                return self._follow(path)  # a service may close a connection that rested: that is not a failure
        except NoAnswer:
            self.close()
            raise
        except (OSError, http.client.HTTPException) as error:
            self.close()
            failure = self._unreachable(error)
            failure.password_sent = self._password_sent
            raise failure from None

    def abort(self) -> None:
        """End the request under way, from another thread: it fails, and so does every later one."""
        self._aborted = True
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not that of ssl, which is not for two threads

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._socket = None

    def _follow(self, path: str) -> dict[str, Any]:
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self._request(path)
            if answer.status not in (301, 302, 303, 307, 308):
                return _document(answer, path)
            path = self._target(path, answer.getheader("Location", ""))
            if len(answer.read(MOST_BYTES + 1)) > MOST_BYTES:
                raise _too_long(path)
        raise NoAnswer(Status.FAILED, "the Redfish service redirects without end")

    def _request(self, path: str) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if self._credentials is not None:
            headers["Authorization"] = self._credentials.header
        self._password_sent = False
        self._refuse_aborted()
        if self._connection is None:
            self._connection = self._connect()
        if self._connection.sock is None:
            self._connection.connect()
            self._socket = self._connection.sock
            self._refuse_aborted()  # an abort before now had no socket to end
        self._password_sent = self._credentials is not None
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        self._password_sent = False
        return answer

    def _refuse_aborted(self) -> None:
        if self._aborted:
            raise Unreachable("the request was given up")

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        if not self._address.encrypted:
            return http.client.HTTPConnection(host, port, timeout=self._seconds)
        context = ssl.create_default_context()  # trusts the system's authorities, or those in SSL_CERT_FILE
        return http.client.HTTPSConnection(host, port, timeout=self._seconds, context=context)

    def _target(self, path: str, location: str) -> str:
        """Return the path to which the service redirects. Raises NoAnswer where that is elsewhere."""
        own = urlsplit(self._address.url)
        try:
            to = urlsplit(urljoin(f"{own.scheme}://{own.netloc}{path}", location))
            usual = 443 if to.scheme == "https" else 80
            same = (to.scheme, to.hostname, to.port or usual) == (own.scheme, self._address.host, self._address.port)
        except ValueError:
            same = False
        if not same or to.username is not None or not is_path(to.path):
            raise NoAnswer(Status.FAILED, "the Redfish service redirects to another place, which is not followed")
        return to.path

    def _unreachable(self, error: OSError | http.client.HTTPException) -> Unreachable:
        host = self._address.host
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"the certificate of {host} is not trusted ({error.verify_message.rstrip('.')})"
            named = os.environ.get("SSL_CERT_FILE", "")
            if named and not os.access(named, os.R_OK):
                return Unreachable(f"{why}: SSL_CERT_FILE names a file that cannot be read")
            return Unreachable(f"{why}: set SSL_CERT_FILE to a file with the certificate that signed it")
        if isinstance(error, http.client.IncompleteRead):
            return Unreachable(f"the answer of {host} ended too early")
        if isinstance(error, TimeoutError):
            return Unreachable(f"{host} does not answer")
        if isinstance(error, ssl.SSLError):
            return Unreachable(f"no encrypted connection to {host} ({error.reason or 'TLS failed'})")
        if isinstance(error, OSError):
            return Unreachable(f"{host} cannot be reached: {error.strerror or 'the connection broke'}")
        return Unreachable(f"{host} does not speak HTTP")


def _document(answer: http.client.HTTPResponse, path: str) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises NoAnswer, OSError and HTTPException."""
    code = answer.status
    if code in (401, 403):
        raise (Forbidden if code == 403 else NoAnswer)(
            Status.DENIED,
            f"the Redfish service refuses (HTTP {code}): it takes a name and a password, from ~/.netrc or "
            "MEMTUI_REDFISH_USER and MEMTUI_REDFISH_PASSWORD; not asked again",
        )
    if code == 404:
        raise NoAnswer(Status.UNSUPPORTED, f"the Redfish service has no {path}")
    if code != 200:
        raise NoAnswer(Status.FAILED, f"the Redfish service answers HTTP {code}")
    if answer.getheader("Content-Encoding", "identity").lower() != "identity":
        raise NoAnswer(Status.FAILED, "the Redfish service compresses what it answers, though not asked to")
    text = answer.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise _too_long(path)
    if answer.length:
        raise http.client.IncompleteRead(text, answer.length)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise NoAnswer(Status.FAILED, f"the Redfish service answers no JSON for {path}") from None
    if not isinstance(document, dict):
        raise NoAnswer(Status.FAILED, f"the Redfish service answers no resource for {path}")
    return document


def _too_long(path: str) -> NoAnswer:
    return NoAnswer(
        Status.FAILED, f"the answer of the Redfish service for {path} is longer than {MOST_BYTES >> 20} MiB"
    )
