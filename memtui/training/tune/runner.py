"""Run a grid: each training in a process of its own, one after another, until all have a row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from memtui.core.errors import FAILURE
from memtui.core.file_lock import exclusively
from memtui.core.processes import exit_with_parent
from memtui.core.program_log import create_log
from memtui.training.tune.grid import GridPoint
from memtui.training.tune.results import GRID_FILE, Results, TuneRow, last_line, left_s, row_of

GRACE_S = 5.0  # for a run to end by itself after SIGINT
REPORT_S = 0.5
_WAIT_S = 0.1


@dataclass(frozen=True)
class TuneProgress:
    """Progress of a grid, for a printer or a screen.

    Attributes:
        ended: number of runs that have a row, also from before.
        of: number of all runs.
        left_s: estimated seconds until the end; None: not known yet.
        label: label of the run that started last.
        message: last line of that run.
        row: the row that was just written, with its run.
    """

    ended: int
    of: int
    left_s: float | None = None
    label: str = ""
    message: str = ""
    row: tuple[int, TuneRow] | None = None


Report = Callable[[TuneProgress], None]


class Interrupted(Exception):
    """The user requested the end with a signal; the runs that were under way have ended and have no row."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def command_of(point: GridPoint, networks: Path | None, events: Path | None = None) -> list[str]:
    """Return the command line that trains one point; its result is JSON at the end of its output.

    ``events``: folder for event files of TensorBoard; None: none are written.
    """
    argv = [sys.executable, "-P", "-m", "memtui", "train", point.network]
    if networks is not None:
        argv += ["--config", str(networks)]
    for key, value in point.settings.items():
        argv += ["--set", f"{key}={value}"]
    if events is not None:
        argv += ["--tensorboard", str(events)]
    return [*argv, "--no-tui", "--json"]


class Tuning:
    """Runs all points that have no row yet, in the order of the grid."""

    def __init__(
        self, results: Results, report: Report, *, jobs: int = 1, retry: bool = False, events: Path | None = None
    ) -> None:
        """Start nothing before ``run``.

        Args:
            results: where output and rows go.
            report: called with every row, and twice a second.
            jobs: number of runs at a time.
            retry: run failed runs once more.
            events: folder for event files of TensorBoard, with a folder for each run; None: none are written.
        """
        self._results, self._report, self._jobs, self._retry, self._events = results, report, jobs, retry, events
        self._rows: dict[int, TuneRow] = {}
        self._waiting: deque[int] = deque()
        self._running: list[_Child] = []
        self._reported_s = 0.0

    def run(self) -> dict[int, TuneRow]:
        """Return all rows, once every run has a row.

        Raises:
            Interrupted: after SIGINT, SIGTERM or SIGHUP.
            UserError: another process runs this grid, or nothing can be written.
        """
        results = self._results
        trouble = f"{results.path} is being run by {{who}}: wait for its end, or end that one"
        with exclusively(results.path / GRID_FILE, trouble, writable=True), _StopRequest() as stop:
            rows = results.rows()
            self._rows = {run: row for run, row in rows.items() if not (self._retry and row.error)}
            self._waiting = deque(run for run in range(len(results.names)) if run not in self._rows)
            if self._waiting:
                results.write(self._rows)
                results.forget(self._waiting)
            self._show()
            try:
                while self._waiting or self._running:
                    while self._waiting and len(self._running) < self._jobs:
                        self._start(self._waiting.popleft())
                    self._poll()
                    if stop.number:
                        raise Interrupted(stop.number)
            finally:
                self._end(stop)
            return self._rows

    def _start(self, run: int) -> None:
        results = self._results
        events = None if self._events is None else self._events / results.names[run]
        argv = command_of(results.grid.points[run], results.networks, events)
        out = create_log(results.output(run), force=True)
        try:
            err = create_log(results.errors(run), force=True)
            try:
                self._running.append(_Child(run, argv, out, err))
            except OSError as error:
                self._keep(run, TuneRow(exit=FAILURE, error=f"cannot be started: {error.strerror}"))
            finally:
                os.close(err)
        finally:
            os.close(out)

    def _poll(self) -> None:
        """Wait a moment, and write a row for each ended run."""
        if self._running:
            with suppress(subprocess.TimeoutExpired):
                self._running[0].process.wait(_WAIT_S)
        for child in self._running[:]:
            if (code := child.process.poll()) is not None:
                self._running.remove(child)
                output, errors = self._results.output(child.run), self._results.errors(child.run)
                self._keep(child.run, row_of(output, errors, code, child.seconds))
        if time.monotonic() - self._reported_s > REPORT_S:
            self._show()

    def _keep(self, run: int, row: TuneRow) -> None:
        self._rows[run] = row
        self._results.write(self._rows)
        self._show((run, row))

    def _show(self, row: tuple[int, TuneRow] | None = None) -> None:
        self._reported_s = time.monotonic()
        results, running = self._results, self._running
        label = message = ""
        if running:
            run = running[-1].run
            label, message = results.grid.label(results.grid.points[run]), last_line(results.errors(run))
        left = left_s(self._rows.values(), len(self._waiting), (child.seconds for child in running))
        self._report(TuneProgress(len(self._rows), len(results.names), left, label, message, row))

    def _end(self, stop: _StopRequest) -> None:
        """End the running runs: by SIGINT, and by SIGKILL after ``GRACE_S`` or on another signal."""
        stop.number = 0
        deadline = time.monotonic() + GRACE_S
        for child in self._running:
            child.send(signal.SIGINT)
        for child in self._running:
            while child.process.poll() is None:
                if stop.number or time.monotonic() > deadline:
                    child.send(signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    child.process.wait(_WAIT_S)
        self._running.clear()


class _Child:
    """A running run, in a session of its own, so that this program forwards ^C at the terminal."""

    def __init__(self, run: int, argv: list[str], out: int, err: int) -> None:
        parent = os.getpid()

        def prepare() -> None:
            exit_with_parent(parent)  # also after kill -9: only runs of the lock's holder may write to the folder
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # which is ignored in the background of a script

        self.run, self._start_s = run, time.monotonic()
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, preexec_fn=prepare
        )

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._start_s, 3)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the run and to the processes it has started."""
        if self.process.poll() is None:  # until it is reaped, its process group cannot belong to another process
            os.killpg(self.process.pid, number)


class _StopRequest:
    """Handler of the signals that request the end, unless ignored (nohup). ``number``: the last signal; 0: none yet."""

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _StopRequest:
        for number in self._NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.number = number
