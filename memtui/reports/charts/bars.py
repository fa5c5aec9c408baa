"""Draws a ``BarChart``: names at the left, and for each axis a panel of bars with their values beside it.

The lengths of bars are to scale, so they begin at 0. Where the values of an axis differ too much for that, the axis is
logarithmic and a point stands for each value.
"""

from __future__ import annotations

from collections.abc import Sequence

from memtui.reports.charts.frame import EDGE_PT, LINE_PT, NAME_PT, WIDTH_PT, Frame
from memtui.reports.charts.model import Bar, BarAxis, BarChart, BarRow
from memtui.reports.figures.axes import Axes, Scale, decade_scale, prefixed_scale
from memtui.reports.figures.svg import Drawing, text_width, whole_lines

_ROW_GAP_PT, _BAR_PT, _GAP_PT = 3.6, 6.0, 8.0
_MOST_NAMES = 0.42  # of the width
_LABEL_PT = 36.0  # width of a number with its unit at a logarithmic axis
LINEAR = 40.0  # most times by which the values of a linear axis may differ: less is not a visible bar


def draw(chart: BarChart) -> Drawing:
    """Return the chart as a drawing as wide as a page."""
    frame = Frame.of(chart.title, chart.subtitle, chart.notes)
    longest = max((text_width(text, NAME_PT) for text in (chart.names, *(row.name for row in chart.rows))), default=0)
    names_pt = min(longest, WIDTH_PT * _MOST_NAMES)
    left = EDGE_PT + names_pt + 5
    names = [whole_lines(row.name, names_pt, NAME_PT) for row in chart.rows]
    reasons = [whole_lines(row.reason, WIDTH_PT - left - EDGE_PT - 3, NAME_PT) for row in chart.rows]
    heights = [max(map(len, lines)) * LINE_PT + _ROW_GAP_PT for lines in zip(names, reasons, strict=True)]
    top = frame.top
    drawing = frame.drawing(top + sum(heights))
    tops = [top + sum(heights[:index]) for index in range(len(heights))]
    drawing.text(EDGE_PT, top - 4, chart.names, size=NAME_PT, fill="dim")
    for name, reason, start in zip(names, reasons, tops, strict=True):
        for x, lines, fill in ((EDGE_PT, name, "ink"), (left + 3, reason, "wss")):
            for number, line in enumerate(lines, 1):
                drawing.text(x, start + number * LINE_PT - 1, line, size=NAME_PT, fill=fill)
    _panels(drawing, chart, left, top, tops, heights)
    return drawing


def _panels(
    drawing: Drawing, chart: BarChart, left: float, top: float, tops: Sequence[float], heights: Sequence[float]
) -> None:
    shown = [row for row in chart.rows if row.bars]
    texts = [
        max((text_width(row.bars[index].text, NAME_PT) for row in shown), default=0.0) + 4
        for index in range(len(chart.axes))
    ]
    room = WIDTH_PT - EDGE_PT - left - sum(texts) - _GAP_PT * (len(chart.axes) - 1)
    for index, axis in enumerate(chart.axes):
        plot = room / len(chart.axes)
        bars = [row.bars[index] for row in shown]
        axes = Axes(drawing, left, top, plot, sum(heights), _scale(axis, bars, plot))
        if shown:
            for value, _ in axes.across.ticks:
                drawing.line(axes.x(value), top, axes.x(value), axes.bottom, "grid", 0.4)
            axes.edges()
            axes.label_across(f"{axis.name}, logarithmic" if axes.across.log else f"{axis.name} ({axes.across.unit})")
            drawing.text(left + plot + texts[index], top - 4, axis.name, size=NAME_PT, anchor="end", fill="dim")
        for row, start, height in zip(chart.rows, tops, heights, strict=True):
            if row.bars:
                _bar(axes, row, row.bars[index], start + (height - _ROW_GAP_PT) / 2)
                drawing.text(
                    left + plot + texts[index],
                    start + (height - _ROW_GAP_PT) / 2 + 2.6,
                    row.bars[index].text,
                    size=NAME_PT,
                    anchor="end",
                )
        left += plot + texts[index] + _GAP_PT


def _scale(axis: BarAxis, bars: Sequence[Bar], width: float) -> Scale:
    """Return a linear scale, or a logarithmic one where the values differ too much."""
    every = [
        value
        for bar in bars
        for value in (bar.value, bar.low, bar.high, bar.mark, bar.start + (bar.value or 0.0))
        if value is not None and value > 0
    ]
    values = [bar.value for bar in bars if bar.value]
    if values and not any(bar.start for bar in bars) and max(values) > LINEAR * min(values):
        return decade_scale(min(every), max(every), axis.unit, max(2, int(width / _LABEL_PT)))
    return prefixed_scale(max(every, default=1.0), axis.unit)


def _bar(axes: Axes, row: BarRow, bar: Bar, middle: float) -> None:
    if bar.value is None:
        return
    draw, fill = axes.drawing, "wss" if row.main else "rss"
    right = axes.x(bar.start + bar.value)
    if axes.across.log:
        draw.line(axes.left, middle, right, middle, "grid", 0.8)
        draw.rect(right - 2, middle - 2, 4, 4, fill)
    else:
        left = axes.x(bar.start)
        draw.rect(left, middle - _BAR_PT / 2, max(right - left, 0.4), _BAR_PT, fill)
    if bar.low is not None and bar.high is not None:
        draw.line(axes.x(bar.low), middle, axes.x(bar.high), middle, "ink", 0.6)
        for end in (bar.low, bar.high):
            if end >= axes.across.low:  # an interval may go below 0
                draw.line(axes.x(end), middle - 1.8, axes.x(end), middle + 1.8, "ink", 0.6)
    if bar.mark is not None:
        x = axes.x(bar.mark)
        draw.line(x, middle - _BAR_PT / 2 - 0.8, x, middle + _BAR_PT / 2 + 0.8, "mark", 1.6)
