"""Breakdowns as a figure: bars with their share, one graph below the other, all on one scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memtui.core.units import size
from memtui.reports.breakdown.rules import Bar
from memtui.reports.figures.axes import Axes, bytes_scale
from memtui.reports.figures.svg import COLUMN_PT, SMALL_PT, TEXT_PT, Drawing, fit, text_width, wrap

_BAR_PT, _GAP_PT = 9.0, 3.0
_NAME_PT, _MOST_NAME_PT = 6.5, 104.0  # size of names, and their largest width
_TOP_PT, _BELOW_PT = 16.0, 26.0


@dataclass(frozen=True, slots=True)
class Graph:
    """One breakdown: a title, its bars, and lines below it."""

    title: str
    bars: Sequence[Bar]
    notes: Sequence[str]


def draw(graphs: Sequence[Graph], title: str, make: Callable[[float, float, str, str], Drawing] = Drawing) -> Drawing:
    """Return a drawing as wide as a column of a paper."""
    width = COLUMN_PT - 8
    titles = [wrap(graph.title, width, SMALL_PT, 3) for graph in graphs]
    notes = [[line for note in graph.notes for line in wrap(note, width, SMALL_PT, 2)] for graph in graphs]
    line_pt = SMALL_PT + 1.2
    heights = [
        len(head) * line_pt + 6 + len(graph.bars) * (_BAR_PT + _GAP_PT) + _BELOW_PT + len(below) * line_pt + 8
        for graph, head, below in zip(graphs, titles, notes, strict=True)
    ]
    drawing = make(COLUMN_PT, (_TOP_PT if title else 4) + sum(heights), title or "Memory by category", graphs[0].title)
    top = 4.0
    if title:
        drawing.text(4, 11, fit(title, width, TEXT_PT + 1), size=TEXT_PT + 1)
        top = _TOP_PT
    bars = [bar for graph in graphs for bar in graph.bars]
    names = max((text_width(bar.name, _NAME_PT) for bar in bars), default=0.0)
    left = 7 + min(names, _MOST_NAME_PT)
    right = 4 + max((text_width(_label(bar), SMALL_PT) for bar in bars), default=0.0)
    scale = bytes_scale(max((bar.bytes for bar in bars), default=0))
    for graph, head, below, height in zip(graphs, titles, notes, heights, strict=True):
        for row, line in enumerate(head):
            drawing.text(4, top + (row + 1) * line_pt, line, size=SMALL_PT)
        start = top + len(head) * line_pt + 6
        high = len(graph.bars) * (_BAR_PT + _GAP_PT)
        axes = Axes(drawing, left, start, COLUMN_PT - left - right, high, scale)
        for row, bar in enumerate(graph.bars):
            y = start + row * (_BAR_PT + _GAP_PT)
            drawing.rect(left, y, axes.x(bar.bytes) - left, _BAR_PT, "wss")
            drawing.text(left - 3, y + 6.8, fit(bar.name, _MOST_NAME_PT, _NAME_PT), size=_NAME_PT, anchor="end")
            drawing.text(axes.x(bar.bytes) + 2, y + 6.8, _label(bar), size=SMALL_PT)
        axes.edges()
        axes.label_across(f"bytes ({scale.unit})" if scale.unit != "B" else "bytes")
        for row, line in enumerate(below):
            drawing.text(4, start + high + _BELOW_PT + row * line_pt, line, size=SMALL_PT, fill="dim")
        top += height
    return drawing


def _label(bar: Bar) -> str:
    return f"{bar.share * 100:.2f} %, {size(bar.bytes)}"
