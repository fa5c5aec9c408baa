"""Recordings that a program starts, of itself or of another process: ``memtui.record``."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from memtui.api.sessions import Tables, open_tables
from memtui.core.errors import UserError
from memtui.recording.background_recording import start_recording
from memtui.recording.client import stop
from memtui.reports.export.tables import int_or_none
from memtui.session.session import Session


@dataclass(frozen=True, slots=True)
class LatestWindow:
    """The last window of the process tree; None where a size could not be measured, and ``reason`` says why.

    Attributes:
        sample: its number.
        seconds: how long it was.
        wss_bytes, rss_bytes: working set and resident memory at its end.
        status, reason: its quality.
    """

    sample: int
    seconds: float
    wss_bytes: int | None
    rss_bytes: int | None
    status: str
    reason: str


class Recording:
    """A recording that runs until ``stop``, or until the ``with`` block ends.

    >>> recording = memtui.record(interval=0.05, output="parts.memtui")
    >>> while recording.latest is None or recording.latest.rss_bytes is None:
    ...     numbers = list(range(100_000))
    >>> with recording.tables() as tables:  # what there is until now
    ...     len(tables.windows) > 0
    True
    >>> recording.stop()

    Attributes:
        pid: the root of the recorded process tree.
        path: the session file.
    """

    def __init__(self, pid: int, output: Path | None, options: list[str]) -> None:
        """Start it and wait until it has begun, about a second. Raises UserError."""
        self._running = start_recording(pid, output, options)
        self._session: Session | None = None
        self.pid, self.path = pid, Path(self._running.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<memtui recording of {self.pid} in {self.path}>"

    @property
    def latest(self) -> LatestWindow | None:
        """The last window that was written; None before the first one. Raises SessionError."""
        if self._session is None:
            self._session = Session(self.path)
        session = self._session
        session.refresh()
        samples = session.samples
        if not len(samples):
            return None
        wss_bytes, rss_bytes = (int_or_none(values[-1]) for values in (samples.wss_bytes, samples.rss_bytes))
        seconds = int(samples.end_ns[-1] - samples.start_ns[-1]) / 1e9
        return LatestWindow(samples.newest, seconds, wss_bytes, rss_bytes, samples.status[-1], samples.reason[-1])

    def tables(self) -> Tables:
        """Open what has been recorded until now; see ``memtui.open``."""
        return open_tables(self.path)

    def stop(self) -> None:
        """End the recording in order: the last window is taken, the file is complete. Again does nothing."""
        if self._session is not None:
            self._session.close()
            self._session = None
        with suppress(UserError):  # it has ended before
            stop(self._running)


def record(pid: int | None, interval_s: float | None, output: str | os.PathLike[str] | None) -> Recording:
    """Start a recording; see ``memtui.record``."""
    if interval_s is not None and not interval_s > 0:
        raise ValueError(f"an interval is a number of seconds above 0, and not {interval_s!r}")
    options = [] if interval_s is None else ["--interval", f"{interval_s!r}"]
    return Recording(os.getpid() if pid is None else pid, None if output is None else Path(output), options)
