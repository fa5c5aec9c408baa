"""``--to svg`` and ``--to html`` of ``memtui bench``: writes charts as files of their own, or as one page."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from memtui.bench.configuration import Configuration
from memtui.bench.figures import costs, network
from memtui.bench.network_vs_operators import Composition, lines
from memtui.bench.store import Database
from memtui.core.errors import UserError, complain
from memtui.core.file_set import all_or_none
from memtui.core.progress_line import ProgressLine
from memtui.reports.charts import bars, predictions
from memtui.reports.charts.model import BarChart, PredictionChart
from memtui.reports.figures.svg import Drawing, escape
from memtui.reports.html import Cell, dim, document, table

COSTS, NETWORK, PREDICT = "costs", "network", "predict"  # starts of the names of files
_NOT_DRAWN = ("list", "resolution", "compare")
_HTML = "html"
Chart = BarChart | PredictionChart
HtmlTable = tuple[str, tuple[str, ...], list[list[Cell]]]


@dataclass(frozen=True, slots=True)
class FigureOptions:
    """``--to``, ``-o`` and ``--force``."""

    form: str
    folder: Path
    force: bool

    @classmethod
    def of(cls, args: argparse.Namespace) -> FigureOptions | None:
        """Return the options; None where no figures are wanted. Raises UserError."""
        if args.to is None and args.output is None:
            return None
        if args.to is None or args.output is None:
            raise UserError("figures need both a form and a folder: --to svg -o DIR")
        if args.json:
            raise UserError("either figures (--to) or one JSON document (--json), not both")
        if args.print_sbatch or args.engine:
            raise UserError("jobs draw nothing; afterwards: memtui bench db export --to svg -o DIR")
        if args.what in _NOT_DRAWN or (args.what == "db" and args.rest[:1] != ["export"]):
            raise UserError("figures are of an operator, a network, db export, predict eval and predict run")
        return cls(args.to, Path(args.output), args.force)

    def check(self, start: str) -> None:
        """Raise UserError, before anything is measured, where files are in the way, or the folder takes none."""
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"{self.folder}: is not a folder; choose another place with -o")
        existing = sorted(self.folder.glob(f"{start}*.{self.form}")) if self.folder.is_dir() and not self.force else []
        if existing:
            raise UserError(f"{existing[0]}: exists already; choose another folder or add --force")
        with all_or_none(self.folder, force=self.force) as files:  # an empty file is written there, and not named
            files.write(f"{start}.{self.form}", partial(_put, ""))

    def write_costs(
        self, path: Path, *, ops: Collection[str] = (), wanted: Collection[Configuration] | None = None
    ) -> list[str]:
        """Draw the newest measurements of a database and return the paths of the files. Raises UserError.

        Args:
            path: the database.
            ops: operators; () for all.
            wanted: configurations, on one device; None for all, on every device.
        """
        with closing(Database(path, writable=False)) as database, ProgressLine("bench", "drawing"):
            rows, unknown = costs.read(database, ops=ops, wanted=wanted)
        if unknown:
            count = "1 row is" if unknown == 1 else f"{unknown} rows are"
            complain(f"{count} left out, which another version of memtui wrote")
        if not rows:
            of_ops = f" of {', '.join(ops)}" if ops else ""
            raise UserError(f"{path}: has no measurement{of_ops} to draw")
        heads, cells = costs.table(rows)
        title = f"Costs of {', '.join(dict.fromkeys(row.configuration.op for row in rows))}"
        return self._write(COSTS, title, [str(path)], costs.charts(rows), (f"Measurements ({len(rows)})", heads, cells))

    def write_network(self, path: Path, composition: Composition) -> list[str]:
        """Draw a network against its operators and return the paths of the files. Raises UserError."""
        if composition.reason:
            return []  # the lines about the network say why nothing is compared
        with closing(Database(path, writable=False)) as database:
            rows, _ = costs.read(database, wanted=[composition.network])
        chart = network.chart(composition, rows[-1].measured_on if rows else "an unknown device")
        if chart is None:
            return []
        heads, cells = network.table(composition)
        return self._write(NETWORK, chart.title, lines(composition), [chart], ("Operators of a pass", heads, cells))

    def write_predictions(self, measured_on: str, charts: Sequence[Chart]) -> list[str]:
        """Draw predictions and return the paths of the files. Raises UserError. ``place``: of the measurements."""
        bar_charts = [chart for chart in charts if isinstance(chart, BarChart)]
        sentences = [f"fitted to measurements on {measured_on}"]
        return self._write(PREDICT, "Predictions", sentences, charts, _rows_of(bar_charts) if bar_charts else None)

    def _write(
        self, start: str, title: str, sentences: Sequence[str], charts: Sequence[Chart], rows: HtmlTable | None
    ) -> list[str]:
        drawings = {chart.name: _draw(chart) for chart in charts}
        if self.form == _HTML:
            texts = {start: _page(title, sentences, list(drawings.values()), rows)}
        else:
            texts = {name: drawing.document() for name, drawing in drawings.items()}
        with all_or_none(self.folder, force=self.force) as files:
            for name, text in texts.items():
                files.write(f"{name}.{self.form}", partial(_put, text))
            return [str(path) for path in files.finish()]


def _draw(chart: Chart) -> Drawing:
    return bars.draw(chart) if isinstance(chart, BarChart) else predictions.draw(chart)


def _rows_of(charts: Sequence[BarChart]) -> HtmlTable:
    """Return the values of charts of one kind as a table."""
    heads = (charts[0].names, *(f"{axis.name}#" for axis in charts[0].axes))
    cells: list[list[Cell]] = [
        [row.name, *((bar.text, bar.value) for bar in row.bars)] for chart in charts for row in chart.rows
    ]
    return f"Predictions ({len(cells)})", heads, cells


def _put(text: str, file: BinaryIO) -> None:
    file.write(text.encode())


def _page(title: str, sentences: Sequence[str], drawings: Sequence[Drawing], rows: HtmlTable | None) -> str:
    figures = "\n".join(f'<figure class="wide">{drawing.markup()}</figure>' for drawing in drawings)
    parts = [
        f"<h1>{escape(title)}</h1>",
        *map(dim, filter(None, sentences)),
        f'<h2>Figures</h2>\n<div class="figures">\n{figures}\n</div>',
        "" if rows is None else table(rows[0], "", rows[1], rows[2]),
    ]
    return document(f"memtui bench: {title}", "\n".join(filter(None, parts)))
