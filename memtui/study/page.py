"""The report of a study as one self-contained HTML file, from the parts in ``memtui.reports.html``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memtui.reports.charts.model import Findings
from memtui.reports.figures.svg import escape
from memtui.reports.html import Cell, Draw, dim, document, figures, findings_table, section, table
from memtui.study.studies.base import Study


def page(study: Study, findings: Findings, about: dict[str, Any], draw: Draw) -> str:
    """Return the whole document.

    Args:
        study: the experiment.
        findings: its results.
        about: how it was done: ``report.about``.
        draw: draws a chart as an SVG document.
    """
    parts = [
        f"<h1>{escape(study.title)}</h1>",
        *(dim(line) for line in about["lines"]),
        section("Conclusion", findings.conclusion),
        section("What the published experiment found", study.original),
        section("To be known of these numbers", findings.doubts, "wrong"),
        figures(findings.charts, draw),
        *map(findings_table, findings.tables),
        section("Method", [*study.method, *about["method"]]),
        _runs(about["runs"]),
    ]
    return document(f"memtui study {study.name}: {study.title}", "\n".join(filter(None, parts)))


def _runs(runs: Sequence[dict[str, Any]]) -> str:
    rows: list[list[Cell]] = [
        [
            run["group"],
            (str(run["repeat"] + 1), run["repeat"]),
            (str(run["seed"]), run["seed"]),
            (str(run["windows"]), run["windows"]),
            (f"{run['seconds']:.1f} s", run["seconds"]),
            run["tracker"],
            run["session"],
            run["program"],
        ]
        for run in runs
    ]
    heads = ("run", "repeat#", "seed#", "windows#", "took#", "tracker", "session", "program")
    return table(f"Runs ({len(rows)}), in the order they were done", "", heads, rows)
