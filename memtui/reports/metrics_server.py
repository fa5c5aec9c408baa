"""Serves the newest figures of a session as OpenMetrics, for Prometheus to scrape while it is recorded.

A process of its own, without any rights: ``python -m memtui.reports.metrics_server SESSION FD`` inherits a listening
socket and ends when its standard input does. Figures are read from the session file when a client wants them, at most
once a second. There is no command line, path or address in them: a cgroup is called by the job, pod or container that
it belongs to.
"""

from __future__ import annotations

import hmac
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from memtui.analysis.limit_forecast import owner_labels, whose_limit
from memtui.core.errors import UserError
from memtui.core.lru_cache import LruCache
from memtui.core.metrics_listener import check_library
from memtui.reports.export.openmetrics import FAMILIES, Family, empty_metric
from memtui.reports.memory_limit import last_limit
from memtui.reports.source import Source
from memtui.reports.verdict.recent import MOST_UNIONS, UnionCache
from memtui.reports.verdict.verdict import verdict_at
from memtui.session.file_format import SessionError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from prometheus_client import Metric

PATH = "/metrics"
REUSED_S = 1.0  # for as long an answer is sent again: many clients cost as much as one
RECENT_NS = 60_000_000_000  # before the newest window: what was read longer ago is not a figure of now
VERDICT_S = 15.0  # between two verdicts
CLIENT_S = 5.0  # for a client that says nothing
MOST_CLIENTS = 8  # at a time
ANSWER_S = 30.0  # for reading a session on a busy machine
_FINDING = Family(
    "finding",
    "",
    "1 where a rule of the verdict found something, 0 where it found nothing; none where it cannot know.",
    lambda *_: (),
    ("rule",),
)
_FULL_IN = Family(
    "memory_full_in_seconds",
    "seconds",
    "Time until no memory is left below the limit, if use goes on growing; none where it does not grow steadily.",
    lambda *_: (),
)


class CurrentFigures:
    """The newest figures of a session, in the shape of a registry of prometheus-client.

    Args:
        source: the session, which may be growing.
        clock_s: the monotonic time.
    """

    def __init__(self, source: Source, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock_s = source, clock_s
        self._metrics: list[Metric] = []
        self._read_s = self._judged_s = float("-inf")
        self._counted: dict[str, dict[tuple[str, ...], tuple[int, float]]] = {}  # by name of the family: it stays
        self._counted_ns = 0
        self._findings: dict[str, int] = {}
        self._unions: UnionCache = LruCache(MOST_UNIONS)

    def collect(self) -> list[Metric]:
        """Return each family that has a figure. Raises SessionError."""
        now_s = self._clock_s()
        if now_s - self._read_s >= REUSED_S:
            self._source.refresh()
            self._judge(now_s)
            self._metrics, self._read_s = list(self._read()), now_s
        return self._metrics

    def _read(self) -> Iterator[Metric]:
        source, labels = self._source, self._labels()
        for family in FAMILIES:
            # A counter stays though it does not rise: of a training that stands, no step is read any more.
            newest = self._counted.setdefault(family.name, {}) if family.counter else {}
            since_ns = self._counted_ns if family.counter else self._since_ns
            for own, t_ns, value in (family.raw or family.points)(source, since_ns):
                if own not in newest or t_ns >= newest[own][0]:
                    newest[own] = t_ns, value
            yield from _metric(family, labels, ((own, value) for own, (_, value) in newest.items()))
        self._counted_ns = self._since_ns
        yield from _metric(_FINDING, labels, (((rule,), value) for rule, value in self._findings.items()))
        limit = last_limit(source)
        if limit is not None and limit.forecast is not None:
            yield from _metric(_FULL_IN, labels, [((), limit.forecast.full_in_s)])

    @property
    def _since_ns(self) -> int:
        samples = self._source.samples
        return max(int(samples.end_ns[-1]) - RECENT_NS, 0) if len(samples) else 0

    def _labels(self) -> dict[str, str]:
        """Return what all figures have: whose they are, as far as that is known."""
        source = self._source
        labels = {"session": source.short_title, "host": source.hello.host.hostname}
        roles = [process.role for process in source.processes() if process.pid == source.hello.target.pid]
        ranks = (word.partition("=") for word in (roles[-1].split()[1:] if roles else ()))
        limits = source.memory_limits(self._since_ns, 2**62)
        return (
            labels
            | {name.lower(): number for name, _, number in ranks}
            | owner_labels(limits[-1].cgroup if limits else "")
        )

    def _judge(self, now_s: float) -> None:
        """Compute the verdict anew where the last one is old."""
        source = self._source
        if len(source.samples) and now_s - self._judged_s >= VERDICT_S:
            self._judged_s = now_s
            checks = verdict_at(source, len(source.samples) - 1, self._unions).checks
            self._findings = {check.rule: int(check.finding is not None) for check in checks if check.measured}


def _metric(
    family: Family, common: dict[str, str], points: Iterable[tuple[tuple[str, ...], float]]
) -> Iterator[Metric]:
    """Yield a family with these values, if there are any. A cgroup, which is a path, becomes what the limit is of."""
    is_cgroup = family.labels == ("cgroup",)
    metric = empty_metric(family._replace(labels=("limit",)) if is_cgroup else family, tuple(common))
    for own, value in points:
        metric.add_metric((*common.values(), *(map(_limit_name, own) if is_cgroup else own)), value)
    if metric.samples:
        yield metric


def _limit_name(cgroup: str) -> str:
    return whose_limit(cgroup) if not cgroup or owner_labels(cgroup) else "a cgroup"


def serve(path: Path, listener: socket.socket, token: str = "", until: Callable[[], object] | None = None) -> None:
    """Serve a session until ``until`` returns, or for ever; then remove a Unix socket.

    Args:
        path: the session.
        listener: where clients connect.
        token: what a client has to send (``Authorization: Bearer TOKEN``); empty: nothing.
        until: called in a thread of its own.

    Raises:
        SessionError: the file is not a readable session.
        UserError: prometheus-client is not installed.
    """
    check_library()
    # Sessions are read by the thread that opened them, and clients have a thread each.
    with ThreadPoolExecutor(1, "metrics") as reader:
        figures = reader.submit(lambda: CurrentFigures(Source(path))).result()
        server = _Server(listener, _application(lambda: reader.submit(figures.collect).result(ANSWER_S), token))
        name = listener.getsockname()
        if until is not None:
            threading.Thread(target=_shut_down, args=(until, server), daemon=True).start()
        try:
            server.serve_forever()
        finally:
            server.server_close()
            if listener.family == socket.AF_UNIX:
                Path(name).unlink(missing_ok=True)


def _shut_down(until: Callable[[], object], server: WSGIServer) -> None:
    until()
    server.shutdown()


class _Registry:
    """What prometheus-client asks for metrics."""

    def __init__(self, collect: Callable[[], list[Metric]]) -> None:
        self.collect = collect


def _application(collect: Callable[[], list[Metric]], token: str) -> WSGIApplication:
    """Return the application: one path, and one line for what is wrong."""
    from prometheus_client.exposition import make_wsgi_app

    metrics: Any = make_wsgi_app(_Registry(collect))
    wanted = f"Bearer {token}".encode()

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def refuse(status: str, why: str, *headers: tuple[str, str]) -> Iterable[bytes]:
            start_response(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
            return [f"{why}\n".encode()]

        given = environ.get("HTTP_AUTHORIZATION", "").encode("latin-1")
        if token and not hmac.compare_digest(given, wanted):
            return refuse("401 Unauthorized", "a token is needed", ("WWW-Authenticate", "Bearer"))
        if environ["PATH_INFO"] != PATH:
            return refuse("404 Not Found", f"metrics are at {PATH}")
        try:
            answer: Iterable[bytes] = metrics({**environ, "QUERY_STRING": ""}, start_response)
            return answer
        except (SessionError, TimeoutError) as error:
            return refuse("503 Service Unavailable", str(error) or "the session could not be read in time")

    return application


class _Handler(WSGIRequestHandler):
    """Answers a client; says nothing of it on standard error."""

    timeout = CLIENT_S

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingMixIn, WSGIServer):
    """Serves some clients at a time, on a socket that listens already."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, application: WSGIApplication) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = "localhost", 0  # a look-up of the name might take long
        self.setup_environ()
        self.set_app(application)
        self._clients = threading.Semaphore(MOST_CLIENTS)

    def get_request(self) -> tuple[socket.socket, Any]:
        client, address = super().get_request()
        return client, address or ("unix", 0)  # a client of a Unix socket has no address

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._clients.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._clients.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away."""


def main() -> int:
    """Serve until standard input ends; its first line is the token."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path, fd = Path(sys.argv[1]), int(sys.argv[2])
    token = sys.stdin.readline().strip()
    try:
        serve(path, socket.socket(fileno=fd), token, until=sys.stdin.read)
    except (SessionError, UserError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
