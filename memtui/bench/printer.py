"""Output of a sweep without a screen: rows on standard output as they finish, and progress on standard error."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from memtui.bench import text as table
from memtui.bench.configuration import Configuration, Titles
from memtui.bench.result import BenchRow
from memtui.bench.sweep import SweepProgress
from memtui.core.console import Console, output_columns
from memtui.core.units import span


class Printer:
    """Printer of a sweep. Use as a context manager; ``report`` is called with the progress.

    Attributes:
        skipped: configurations that were measured before.
    """

    def __init__(self, wanted: Sequence[Configuration], console: Console, *, rows: bool) -> None:
        """Take the configurations of the sweep, the console, and whether rows are printed."""
        self._console, self._rows = console, rows
        self._lines: list[table.BenchLine] = []
        self._titles = Titles(wanted)
        self._names = table.names(self._titles, output_columns()) if rows else {}
        self._line = console.progress("starting the process that measures")
        self.skipped = 0

    def __enter__(self) -> Printer:
        self._line.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._line.__exit__(kind, error, None)
        if kind is not None and issubclass(kind, KeyboardInterrupt) and self._lines:
            measured = sum(not line.reference for line in self._lines)
            for text in [*table.foot(self._lines), f"left before its end: {table.rows_measured(measured)}"]:
                self._console.print_line(text)

    def report(self, progress: SweepProgress) -> None:
        """Print the notice or row of a report, and show the progress."""
        self.skipped = progress.skipped
        if progress.notice:
            self._console.notify(progress.notice)
        if progress.row is not None and self._rows:
            self._print(progress.row)
        if progress.phase != "done" and progress.phase != "start":
            self._line.update(self._far(progress), "measuring")

    def _print(self, row: BenchRow) -> None:
        if not self._lines:
            for text in table.head(self._titles.common, output_columns()):
                self._console.print_line(text)
        self._lines.append(table.BenchLine.of(row))
        self._console.print_line(table.line(self._lines[-1], self._names.get(row.configuration, "")))

    def _far(self, progress: SweepProgress) -> str:
        if progress.phase == "idle":
            return "the power at rest"
        left = "" if progress.left_s is None else f", {span(round(progress.left_s))} left"
        window = f" {table.window(progress.window, progress.windows)}" if progress.window else ""
        visit = f"visit {progress.visit} of {progress.visits}, " if progress.visit else ""
        what = "" if progress.configuration is None else f", {self._titles.of(progress.configuration)}"
        return f"{min(progress.number + 1, progress.of)} of {progress.of}{left}, {visit}{progress.phase}{window}{what}"
