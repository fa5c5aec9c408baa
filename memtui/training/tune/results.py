"""The folder of a grid: the request, the output of every run, and a table with a row for each ended run.

The table is the state, too: a run with a row has ended, a run with output and no row was interrupted or runs now.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from memtui.core.errors import FAILURE, UserError
from memtui.core.files import write_atomically
from memtui.core.os_errors import READ, WRITE, refused, why
from memtui.core.program_log import open_log
from memtui.core.small_file import read_small_bytes
from memtui.core.text import csv_cell, printable
from memtui.training.tune import grid as grids
from memtui.training.tune.grid import Grid

GRID_FILE, SUMMARY, NETWORKS_FILE = "grid.json", "summary.csv", "networks.toml"
OUT, ERR = ".out", ".err"
FINISHED, STOPPED, FAILED = "finished", "stopped early", "failed"
FIGURES = (
    "accuracy", "loss", "epochs", "iterations", "stopped", "peak_bytes", "peak_above_start_bytes", "seconds", "exit",
    "error", "session",
)  # fmt: skip
_LATER_FIGURES = ("peak_above_start_bytes",)  # which older tables lack
_OUTPUT = "output"  # the last column: the file of the run's output, which identifies its row
_NAME_CHARACTERS = 200  # file names end at 255 bytes
_TAIL_BYTES = 1 << 20  # of an output, searched for its result
_TABLE_BYTES = 256 << 20  # of the table of a grid, or of its request
_LINE_BYTES = 1 << 14
_MESSAGE_CHARACTERS, _PATH_CHARACTERS = 500, 4096  # stored of texts that others wrote: of a line, of a path


@dataclass(frozen=True, slots=True)
class TuneRow:
    """A run that has ended.

    Attributes:
        accuracy: percent; None: not known, as in all fields that may be None.
        stopped: why the run stopped before its last epoch; "" if it did not.
        peak_bytes: peak memory of its tensors in a recorded iteration.
        peak_above_start_bytes: the same above what they held when that iteration started.
        seconds: from its start to its end.
        exit: its exit code, negative for a signal.
        error: why the run has no result; "" if it has a result.
        session: its recording; "" without a recording.
    """

    accuracy: float | None = None
    loss: float | None = None
    epochs: int | None = None
    iterations: int | None = None
    stopped: str = ""
    peak_bytes: int | None = None
    peak_above_start_bytes: int | None = None
    seconds: float = 0.0
    exit: int = 0
    error: str = ""
    session: str = ""

    @property
    def state(self) -> str:
        """``FINISHED``, ``STOPPED`` or ``FAILED``."""
        return FAILED if self.error else STOPPED if self.stopped else FINISHED


class Results:
    """One folder. Runs are numbered from 0, in the order of the grid."""

    def __init__(self, path: Path, grid: Grid) -> None:
        self.path, self.grid = path, grid

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the files of each run, without suffix: unique, readable, safe in every file system."""
        count = len(self.grid.points)
        width = len(str(count))
        return tuple(f"{n:0{width}}-{_flat(self.grid.label(point))}" for n, point in enumerate(self.grid.points, 1))

    def output(self, run: int) -> Path:
        """Return the file of a run's standard output."""
        return self.path / (self.names[run] + OUT)

    def errors(self, run: int) -> Path:
        """Return the file of a run's standard error: its errors and its progress."""
        return self.path / (self.names[run] + ERR)

    @property
    def networks(self) -> Path | None:
        """File of the user's own networks, for a run to read; None where the grid has no such networks."""
        return self.path / NETWORKS_FILE if self.grid.networks else None

    @property
    def summary(self) -> Path:
        """File of the table."""
        return self.path / SUMMARY

    def rows(self) -> dict[int, TuneRow]:
        """Return the rows of all ended runs, by run. Raises UserError when the table is not as ``write`` left it."""
        try:
            raw = read_small_bytes(self.summary, _TABLE_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise refused(self.summary, error, READ, code=FAILURE) from None
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise UserError(f"{self.summary}: is not text", FAILURE) from None
        runs = {name + OUT: run for run, name in enumerate(self.names)}
        try:
            head, *lines = csv.reader(io.StringIO(text), strict=True)
            if head not in (self._head, [name for name in self._head if name not in _LATER_FIGURES]):
                raise ValueError
            rows, axes = {}, len(self.grid.axes)  # which may be called as figures are
            for line in lines:
                cells = dict(zip(head[axes:], line[axes:], strict=True))
                rows[runs[cells.pop(_OUTPUT)]] = _from_cells(cells)
        except (ValueError, KeyError, csv.Error):
            raise UserError(
                f"{self.summary}: is not as memtui wrote it; take it away, and all of its runs are repeated", FAILURE
            ) from None
        return rows

    def write(self, rows: Mapping[int, TuneRow]) -> None:
        """Replace the table atomically. Raises UserError."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self._head)
        for run in sorted(rows):
            values = map(csv_cell, self.grid.points[run].values)
            writer.writerow([*values, *map(_to_cell, _figures(rows[run])), self.names[run] + OUT])
        _write(self.summary, text.getvalue())

    def forget(self, runs: Iterable[int]) -> None:
        """Remove the output of runs that will be repeated: a run with output and no row counts as running."""
        there = self.begun()
        try:
            for run in there.intersection(runs):
                self.errors(run).unlink(missing_ok=True)
                self.output(run).unlink()
        except OSError as error:
            raise refused(error.filename, error, "taken away", code=FAILURE) from None

    def begun(self) -> set[int]:
        """Return the runs that have output."""
        try:
            there = {file.name for file in self.path.iterdir()}
        except OSError:
            return set()
        return {run for run, name in enumerate(self.names) if name + OUT in there}

    @property
    def _head(self) -> list[str]:
        return [*(key for key, _ in self.grid.axes), *FIGURES, _OUTPUT]

    def to_dict(self, rows: Mapping[int, TuneRow]) -> list[dict[str, Any]]:
        """Return the rows, JSON-ready: parsed values on the axes, then the columns of the table."""
        documents = []
        for run in sorted(rows):
            point = self.grid.points[run]
            used = self.grid.settings_at(point).to_dict() | {grids.NAME: point.network}
            figures = dict(zip(FIGURES, map(_json, _figures(rows[run])), strict=True))
            documents.append(
                {**{key: used[key] for key, _ in self.grid.axes}, **figures, _OUTPUT: str(self.output(run))}
            )
        return documents


def create_results(parent: Path, grid: Grid, now: datetime) -> Results:
    """Return a new folder in ``parent``, named by the time (UTC). Raises UserError."""
    stem, number = f"{now:%Y-%m-%dT%H-%M-%SZ}", 1
    try:
        parent.mkdir(parents=True, exist_ok=True)
        path = parent / stem
        while True:
            try:
                path.mkdir()
                break
            except FileExistsError:
                number += 1
                path = parent / f"{stem}-{number}"
    except OSError as error:
        raise UserError(f"{parent}: no folder for the results can be made: {why(parent, error)}") from None
    results = Results(path, grid)
    if results.networks is not None:
        _write(results.networks, _toml(grid.networks))
    _write(
        path / GRID_FILE, json.dumps(grid.to_dict(), indent=2) + "\n"
    )  # written last: this file marks a folder as that of a grid
    return results


def reopen(path: Path) -> Results:
    """Return the results of a folder that ``create_results`` made. Raises UserError."""
    return Results(path, _grid_in(path))


def newest(parent: Path, grid: Grid) -> Results | None:
    """Return the newest results of the same grid in ``parent``."""
    try:
        paths = sorted((p for p in parent.iterdir() if (p / GRID_FILE).is_file()), key=lambda p: p.name, reverse=True)
    except OSError:
        return None
    for path in paths:
        try:
            if _grid_in(path).text == grid.text:
                return Results(path, grid)
        except UserError:
            continue  # of another version, or damaged: it cannot be continued
    return None


def is_results(path: Path) -> bool:
    """Whether a path is a folder of a grid."""
    return (path / GRID_FILE).is_file()


def row_of(output: Path, errors: Path, code: int, seconds: float) -> TuneRow:
    """Return the row of an ended run from its two files. ``code``: its exit code, negative for a signal."""
    if code < 0:
        return TuneRow(seconds=seconds, exit=code, error=f"was killed by {_signal(-code)}")
    if code:
        message = last_line(errors).removeprefix("memtui train: ")
        return TuneRow(seconds=seconds, exit=code, error=message or f"ended with code {code}, and said nothing")
    document = _document(_tail(output, _TAIL_BYTES).decode(errors="replace"))
    if document is None:
        return TuneRow(seconds=seconds, error=f"has no result at the end of {output.name}")
    return TuneRow(
        accuracy=_number(document.get("accuracy")),
        loss=_number(document.get("loss")),
        epochs=_whole(document.get("epochs")),
        iterations=_whole(document.get("iterations")),
        stopped=_shown_text(document.get("stopped")),
        peak_bytes=_whole(document.get("peak_bytes")),
        peak_above_start_bytes=_whole(document.get("peak_above_start_bytes")),
        seconds=seconds,
        session=_shown_text(document.get("session")),
    )


def last_line(path: Path) -> str:
    """Return the last line that is not empty, fit to be shown; "" without such a line."""
    text = _tail(path, _LINE_BYTES).decode("utf-8", "surrogateescape")
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    return printable(next((line for line in reversed(lines) if line), ""))[:_MESSAGE_CHARACTERS]


def left_s(rows: Iterable[TuneRow], waiting: int, running_s: Iterable[float]) -> float | None:
    """Return seconds until the end, if the other runs take as long as the ended ones; None before the first has ended.

    Args:
        rows: rows of the ended runs.
        waiting: number of runs that have not started.
        running_s: seconds since the start of each running run.
    """
    took = [row.seconds for row in rows if not row.error]
    if not took:
        return None
    mean, running = sum(took) / len(took), list(running_s)
    return (mean * waiting + sum(max(0.0, mean - seconds) for seconds in running)) / max(1, len(running))


def _grid_in(path: Path) -> Grid:
    file = path / GRID_FILE
    try:
        return grids.from_dict(json.loads(read_small_bytes(file, _TABLE_BYTES)))
    except FileNotFoundError:
        raise UserError(f"{path}: is not a folder of memtui tune: it has no {GRID_FILE}") from None
    except OSError as error:
        raise refused(file, error, READ) from None
    except (ValueError, RecursionError):
        raise UserError(f"{file}: is not as memtui wrote it") from None
    except UserError as error:
        raise UserError(f"{file}: {error}") from None


def _flat(label: str) -> str:
    """Return a part of a file name, of harmless characters."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", label)[:_NAME_CHARACTERS]


def _figures(row: TuneRow) -> list[Any]:
    return [getattr(row, name) for name in FIGURES]


def _to_cell(value: Any) -> str:
    if value is None:
        return ""
    return csv_cell(value) if isinstance(value, str) else repr(value)


def _json(value: Any) -> Any:
    """Map non-finite losses and empty strings to None."""
    return None if value == "" or (isinstance(value, float) and not math.isfinite(value)) else value


def _from_cells(cells: Mapping[str, str]) -> TuneRow:
    """Return the row of a table. Raises ValueError."""
    numbers: dict[str, Any] = {name: float(cells[name]) if cells[name] else None for name in ("accuracy", "loss")}
    counts = ("epochs", "iterations", "peak_bytes", "peak_above_start_bytes")
    numbers |= {name: int(cell) if (cell := cells.get(name)) else None for name in counts}
    texts: dict[str, Any] = {name: _from_text(cells[name]) for name in ("stopped", "error", "session")}
    return TuneRow(**numbers, **texts, seconds=float(cells["seconds"]), exit=int(cells["exit"]))


def _from_text(cell: str) -> str:
    """Invert ``csv_cell``."""
    bare = cell.removeprefix("'")
    return bare if csv_cell(bare) == cell else cell


def _document(text: str) -> dict[str, Any] | None:
    """Return the JSON object at the end of an output; None without an object."""
    start = len(text)
    while (start := text.rfind("{", 0, start)) >= 0:
        if start and text[start - 1] != "\n":
            continue
        try:
            document = json.loads(text[start:])
        except (ValueError, RecursionError):
            continue
        return document if isinstance(document, dict) else None
    return None


def _tail(path: Path, size: int) -> bytes:
    """Return the end of a file that a run writes; empty when the file cannot be read."""
    try:
        with os.fdopen(open_log(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)
    except OSError:
        return b""


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except OverflowError:
        return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _shown_text(value: Any) -> str:
    return printable(value)[:_PATH_CHARACTERS] if isinstance(value, str) else ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _write(path: Path, text: str) -> None:
    """Replace a file atomically. Raises UserError."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise refused(path, error, WRITE, code=FAILURE) from None


def _toml(networks: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for name, table in networks.items():
        lines += [f"[{_toml_value(name)}]", *(f"{_toml_value(k)} = {_toml_value(v)}" for k, v in table.items()), ""]
    return "\n".join(lines)


def _toml_value(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml_value(k)} = {_toml_value(v)}' for k, v in value.items())}}}"
    return str(value).lower() if isinstance(value, bool) else repr(value)
