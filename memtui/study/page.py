"""The report of a study as one self-contained HTML file: style and policy are those of ``export --to html``.

Figures are images inside the file, so nothing in them can act, and foreign text only ever passes ``escape``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from memtui.export.figures.svg import escape
from memtui.export.page import Cell, document, table
from memtui.study.findings import Chart, Findings, HeatChart, Table
from memtui.study.studies.base import Study

Draw = Callable[[Chart | HeatChart], str]


def page(study: Study, found: Findings, about: dict[str, Any], draw: Draw) -> str:
    """The whole document.

    Args:
        study: what was asked.
        found: what it came to.
        about: how it was done: ``report.about``.
        draw: a chart as an SVG document.
    """
    parts = [
        f"<h1>{escape(study.title)}</h1>",
        *(dim(line) for line in about["lines"]),
        section("Conclusion", found.conclusion),
        section("What the published experiment found", study.original),
        section("To be known of these numbers", found.doubts, "wrong"),
        figures(found.charts, draw),
        *map(findings_table, found.tables),
        section("Method", [*study.method, *about["method"]]),
        _runs(about["runs"]),
    ]
    return document(f"memtui study {study.name}: {study.title}", "\n".join(filter(None, parts)))


def dim(text: str) -> str:
    """A line of the head."""
    return f'<p class="dim">{escape(text)}</p>'


def section(title: str, sentences: Sequence[str], kind: str = "") -> str:
    """Sentences under a heading; nothing where there are none. ``kind``: how they look, "wrong" for doubts."""
    if not sentences:
        return ""
    of_kind = f' class="{kind}"' if kind else ""
    return f"<h2>{escape(title)}</h2>\n" + "\n".join(f"<p{of_kind}>{escape(text)}</p>" for text in sentences)


def figures(charts: Sequence[Chart | HeatChart], draw: Draw) -> str:
    """Charts as images inside the file, each with what is to be known of it."""
    if not charts:
        return ""
    return '<h2>Figures</h2>\n<div class="figures">\n' + "\n".join(_figure(one, draw) for one in charts) + "\n</div>"


def _figure(chart: Chart | HeatChart, draw: Draw) -> str:
    data = base64.b64encode(draw(chart).encode()).decode()
    words = f"{chart.title}. {chart.note}" if chart.note else f"{chart.title}."
    return (
        f'<figure><img alt="{escape(chart.title)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{escape(words)}</figcaption></figure>"
    )


def findings_table(found: Table) -> str:
    """A table that can be sorted."""
    rows: list[list[Cell]] = [list(row) for row in found.rows]
    return table(found.title, found.note, found.heads, rows)


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
