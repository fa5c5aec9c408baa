"""Figures of a session, as vector graphics for a paper and for the page that ``--to html`` writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from memtui.analysis.range_uses import uses_of
from memtui.core.units import short_size
from memtui.reports.figures import graph, heat, reuse, training
from memtui.reports.figures.svg import Drawing
from memtui.reports.reuse_summary import exact_reuse
from memtui.reports.source import ReportSource
from memtui.session.vma_row import VmaRow


def figures(reader: ReportSource) -> Iterator[tuple[str, Drawing]]:
    """Yield (name, figure) of every figure that the session has data for."""
    for name, drawing in (
        ("memory-over-time", graph.draw(reader)),
        ("reuse-distance", reuse.draw(reader, exact_reuse(reader))),
    ):
        if drawing is not None:
            yield name, drawing
    processes = heat.busiest(reader)
    pids = [process.pid for process in processes]
    for process in processes:
        uses = uses_of(reader.drawn_rows(process.key))
        drawing = heat.draw(reader, process, partial(label, uses=uses))
        name = "heat-map" if len(processes) == 1 else f"heat-map-{process.pid}"
        if pids.count(process.pid) > 1:  # one pid that executed another program
            name += f"-{process.key}"
        if drawing is not None:
            yield name, drawing
    yield from training.draw(reader)


def label(row: VmaRow, uses: Mapping[int, str]) -> str:
    """Return the label of a range at the address axis."""
    return row.file_name or row.name or uses.get(row.id) or f"anon {short_size(row.end - row.start)}"
