"""The view of a grid of trainings, read from its folder: live, and as long as the folder exists."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.file_lock import holder_of
from memtui.training.tune.results import FAILED, GRID_FILE, Results, TuneRow, last_line, left_s
from memtui.widgets.views.tune import INTERRUPTED, RUNNING, WAITING, GridRow, GridView


class GridLog:
    """Reader of a grid's files for repeated views; to be used by one thread."""

    def __init__(self, results: Results, over: Callable[[], bool] | None = None) -> None:
        """Take ``over``: whether the runs of this process have ended; None: the runs belong to another process."""
        self._results, self._over = results, over
        self._rows: dict[int, TuneRow] = {}
        self._read: tuple[int, int] | None = None  # mtime and inode of the table that was read last

    def files(self, run: int) -> tuple[Path, Path]:
        """Return the files of (standard output, standard error) of a run."""
        return self._results.output(run), self._results.errors(run)

    def view(self) -> GridView:
        """Return the grid as it is now."""
        results = self._results
        own = self._over is not None and not self._over()
        holder = holder_of(results.path / GRID_FILE)
        runs = bool(own or holder)
        trouble = self._read_table()
        begun = results.begun()
        rows = tuple(self._row(run, run in begun, runs) for run in range(len(results.names)))
        running = [row.seconds or 0.0 for row in rows if row.state == RUNNING]
        waiting = len(rows) - len(self._rows) - len(running)
        return GridView(
            str(results.path),
            tuple(key for key, _ in results.grid.axes),
            rows,
            len(self._rows),
            sum(row.state == FAILED for row in rows),
            left_s(self._rows.values(), waiting, running) if runs else None,
            own,
            holder,
            trouble,
        )

    def _read_table(self) -> str:
        """Read the table if it has changed; return what is wrong with it."""
        try:
            status = self._results.summary.stat()
        except OSError:
            self._rows = {}
            return ""
        if self._read == (status.st_mtime_ns, status.st_ino):
            return ""
        try:
            self._rows = self._results.rows()
        except UserError as error:
            return str(error).removeprefix(f"{self._results.path}/")
        self._read = status.st_mtime_ns, status.st_ino
        return ""

    def _row(self, run: int, begun: bool, runs: bool) -> GridRow:
        point = self._results.grid.points[run]
        label = self._results.grid.label(point)
        if (row := self._rows.get(run)) is not None:
            return GridRow(
                run,
                point.values,
                label,
                row.state,
                row.accuracy,
                row.loss,
                row.peak_bytes,
                row.peak_above_start_bytes,
                row.seconds,
                row.iterations,
                row.error or row.stopped,
                row.session,
            )
        if not begun:
            return GridRow(run, point.values, label, WAITING)
        if not runs:
            return GridRow(run, point.values, label, INTERRUPTED)
        output, errors = self.files(run)
        return GridRow(run, point.values, label, RUNNING, seconds=_since(output), message=last_line(errors))


def _since(path: Path) -> float | None:
    """Return seconds since a run started: its output file is created then, and empty until the result."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None
