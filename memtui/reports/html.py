"""Parts of a self-contained HTML page: the document, tables that can be sorted, sentences, figures.

Foreign text only ever passes ``escape``. Beyond that the page's own policy lets a browser run the one script and apply
the one style that are in this package, known by their hashes, and load nothing from anywhere. Figures are images inside
the file, so nothing in them can act.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files

from memtui.reports.charts.model import Chart, HeatChart, Table
from memtui.reports.figures.svg import escape

Draw = Callable[[Chart | HeatChart], str]
Cell = tuple[str, float | None] | str
"""Text, or text with the number that it is sorted by."""
_ASSETS = ("page.css", "page.js")


def document(title: str, body: str) -> str:
    """Return a page that fetches nothing, around complete markup in which every foreign text is escaped."""
    style, script = (files("memtui.reports").joinpath("assets", name).read_text("utf-8") for name in _ASSETS)
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def dim(text: str) -> str:
    """Return a line of the head."""
    return f'<p class="dim">{escape(text)}</p>'


def section(title: str, sentences: Sequence[str], kind: str = "") -> str:
    """Return sentences under a heading; "" without sentences. ``kind``: their style, "wrong" for doubts."""
    if not sentences:
        return ""
    of_kind = f' class="{kind}"' if kind else ""
    return f"<h2>{escape(title)}</h2>\n" + "\n".join(f"<p{of_kind}>{escape(text)}</p>" for text in sentences)


def figures(charts: Sequence[Chart | HeatChart], draw: Draw) -> str:
    """Return charts as images inside the file, each with its note."""
    if not charts:
        return ""
    return (
        '<h2>Figures</h2>\n<div class="figures">\n' + "\n".join(_figure(chart, draw) for chart in charts) + "\n</div>"
    )


def _figure(chart: Chart | HeatChart, draw: Draw) -> str:
    data = base64.b64encode(draw(chart).encode()).decode()
    caption = f"{chart.title}. {chart.note}" if chart.note else f"{chart.title}."
    return (
        f'<figure><img alt="{escape(chart.title)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def findings_table(findings: Table) -> str:
    """Return a table that can be sorted."""
    rows: list[list[Cell]] = [list(row) for row in findings.rows]
    return table(findings.title, findings.note, findings.heads, rows)


def table(title: str, note: str, heads: tuple[str, ...], rows: Iterable[list[Cell]]) -> str:
    """Return a table that can be sorted; ``#`` after a head makes its column one of numbers."""
    top = "".join(_head_cell(head) for head in heads)
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    caption = f"<caption>{escape(note)}</caption>" if note else ""
    return (
        f'<h2>{escape(title)}</h2>\n<div class="scroll"><table class="sortable">{caption}\n'
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _head_cell(head: str) -> str:
    kind = ' class="n"' if head.endswith("#") else ""
    return f'<th scope="col"{kind}>{escape(head.rstrip("#"))}</th>'


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return f'<td class="name">{escape(cell)}</td>'
    text, value = cell
    sorted_by = f' data-value="{value!r}"' if value is not None else ""
    return f'<td class="n"{sorted_by}>{escape(text)}</td>'
