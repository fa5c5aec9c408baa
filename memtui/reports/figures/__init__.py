"""Figures of a session, as vector graphics for a paper and for the page that ``--to html`` writes."""

from __future__ import annotations

from collections.abc import Iterator

from memtui.reports.figures import graph, heat, reuse, training
from memtui.reports.figures.svg import Drawing
from memtui.reports.process_heat import busiest
from memtui.reports.reuse_summary import exact_reuse
from memtui.reports.source import ReportSource

MOST_HEAT_MAPS = 8


def figures(reader: ReportSource) -> Iterator[tuple[str, Drawing]]:
    """Yield (name, figure) of every figure that the session has data for."""
    for name, drawing in (
        ("memory-over-time", graph.draw(reader)),
        ("reuse-distance", reuse.draw(reader, exact_reuse(reader))),
    ):
        if drawing is not None:
            yield name, drawing
    processes = busiest(reader)[:MOST_HEAT_MAPS]
    pids = [process.pid for process in processes]
    for process in processes:
        drawing = heat.draw(reader, process)
        name = "heat-map" if len(processes) == 1 else f"heat-map-{process.pid}"
        if pids.count(process.pid) > 1:  # one pid that executed another program
            name += f"-{process.key}"
        if drawing is not None:
            yield name, drawing
    yield from training.draw(reader)
