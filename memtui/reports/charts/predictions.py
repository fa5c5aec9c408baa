"""Draws a ``PredictionChart``: predictions over measurements with the diagonal, and below it their ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memtui.core.units import percent
from memtui.reports.charts.frame import LINE_PT, NAME_PT, WIDTH_PT, Frame
from memtui.reports.charts.model import PredictionChart
from memtui.reports.figures.axes import Axes, Scale, decade_scale, ratio_scale
from memtui.reports.figures.svg import Drawing, whole_lines

_LEFT, _SQUARE, _BELOW, _BETWEEN = 52.0, 250.0, 74.0, 14.0
_RADIUS = 2.0
_WHOLE = 0.95  # error from which on nearly every low prediction is within it
COLORS = ("rss", "wss", "mark", "bound", "ink")
_SIDES = (24, 4, 3)  # of markers; with each of the colours


def draw(chart: PredictionChart) -> Drawing:
    """Return the chart as a drawing as wide as a page, with the names of the groups at the right."""
    frame = Frame.of(chart.title, chart.subtitle, chart.notes)
    top = frame.top
    legend_left = _LEFT + _SQUARE + 16
    names = [whole_lines(name, WIDTH_PT - legend_left - 20, NAME_PT) for name in (*chart.groups, *_explanations(chart))]
    legend = sum(len(lines) * LINE_PT + 2 for lines in names)
    bottom = max(top + _SQUARE + _BETWEEN + _BELOW, top + legend)
    drawing = frame.drawing(bottom)
    points = [point for some in chart.groups.values() for point in some]
    every = [value for point in points for value in (point.measured, point.predicted)]
    scale = decade_scale(min(every), max(every), chart.axis.unit)
    upper = Axes(drawing, _LEFT, top, _SQUARE, _SQUARE, scale, scale)
    _square(upper, chart)
    ratios = [*(point.predicted / point.measured for point in points), *_factors(chart.error)]
    most = max(max(ratio, 1 / ratio) for ratio in ratios)
    lower = Axes(drawing, _LEFT, top + _SQUARE + _BETWEEN, _SQUARE, _BELOW, scale, ratio_scale(most))
    _ratios(lower, chart)
    _legend(drawing, chart, names, legend_left, top)
    return drawing


def _square(axes: Axes, chart: PredictionChart) -> None:
    scale = axes.across
    axes.grid()
    for value, _ in scale.ticks:
        axes.drawing.line(axes.x(value), axes.top, axes.x(value), axes.bottom, "grid", 0.4)
    _line(axes, 1.0, "ink", "")
    for factor in _factors(chart.error):
        _line(axes, factor, "dim", "2.5 2")
    for number, some in enumerate(chart.groups.values()):
        for point in some:
            x = axes.x(point.measured)
            axes.drawing.line(x, axes.y(point.low), x, axes.y(point.high), _style(number)[0], 0.3)
    for number, some in enumerate(chart.groups.values()):
        for point in some:
            _marker(axes.drawing, axes.x(point.measured), axes.y(point.predicted), number, hollow=point.outside)
    axes.edges()
    for value, label in scale.ticks:
        axes.drawing.line(axes.left - 2, axes.y(value), axes.left, axes.y(value), "ink", 0.5)
        axes.drawing.text(axes.left - 3.5, axes.y(value) + 2.2, label, size=NAME_PT, anchor="end")
    axes.drawing.text(11.0, axes.top + axes.height / 2, f"{chart.axis.name}, predicted", anchor="middle", upright=True)


def _ratios(axes: Axes, chart: PredictionChart) -> None:
    axes.grid()
    assert axes.up is not None
    right = axes.left + axes.width
    for factor, stroke, dash in ((1.0, "ink", ""), *((f, "dim", "2.5 2") for f in _factors(chart.error))):
        axes.drawing.line(axes.left, axes.y(factor), right, axes.y(factor), stroke, 0.6, dash)
    for number, some in enumerate(chart.groups.values()):
        for point in some:
            y = axes.y(point.predicted / point.measured)
            _marker(axes.drawing, axes.x(point.measured), y, number, hollow=point.outside)
    axes.edges()
    for value, label in axes.up.ticks:
        axes.drawing.line(axes.left - 2, axes.y(value), axes.left, axes.y(value), "ink", 0.5)
        axes.drawing.text(axes.left - 3.5, axes.y(value) + 2.2, label, size=NAME_PT, anchor="end")
    name = "by measured"
    axes.drawing.text(11.0, axes.top + axes.height / 2, "predicted", anchor="middle", upright=True)
    axes.drawing.text(20.0, axes.top + axes.height / 2, name, anchor="middle", upright=True)
    axes.label_across(f"{chart.axis.name}, measured, logarithmic")


def _factors(error: float) -> tuple[float, ...]:
    """Return the ratios between which nine of ten predictions lie; the lower one only where it is well above 0."""
    return (1 + error, 1 - error) if error < _WHOLE else (1 + error,)


def _line(axes: Axes, factor: float, stroke: str, dash: str) -> None:
    """Draw predictions that are ``factor`` times the measurement, as far as the square goes."""
    scale: Scale = axes.across
    low, high = max(scale.low, scale.low / factor), min(scale.high, scale.high / factor)
    if low < high:
        draw = axes.drawing
        draw.line(axes.x(low), axes.y(low * factor), axes.x(high), axes.y(high * factor), stroke, 0.6, dash)


def _explanations(chart: PredictionChart) -> list[str]:
    """Return the names of what is not a group: lines, and hollow markers."""
    texts = ["predicted = measured", f"90 % of the predictions are within {percent(chart.error)} of the measurement"]
    if any(point.outside for some in chart.groups.values() for point in some):
        texts.append("hollow: outside of what the model was fitted to")
    return texts


def _legend(drawing: Drawing, chart: PredictionChart, names: Sequence[Sequence[str]], left: float, top: float) -> None:
    y = top
    for number, lines in enumerate(names):
        middle = y + LINE_PT / 2
        if number < len(chart.groups):
            _marker(drawing, left + 5, middle, number)
        elif number < len(chart.groups) + 2:
            dash = "2.5 2" if number > len(chart.groups) else ""
            drawing.line(left, middle, left + 12, middle, "dim" if dash else "ink", 0.6, dash)
        else:
            _marker(drawing, left + 5, middle, 0, hollow=True)
        for line in lines:
            y += LINE_PT
            drawing.text(left + 16, y - 1.6, line, size=NAME_PT)
        y += 2


def _style(number: int) -> tuple[str, int]:
    return COLORS[number % len(COLORS)], _SIDES[number // len(COLORS) % len(_SIDES)]


def _marker(drawing: Drawing, x: float, y: float, number: int, *, hollow: bool = False) -> None:
    color, sides = _style(number)
    angles = [2 * math.pi * (side + 0.5) / sides + math.pi / 2 for side in range(sides)]
    corners = [(x + _RADIUS * math.cos(angle), y + _RADIUS * math.sin(angle)) for angle in angles]
    drawing.polygon(corners, "ground" if hollow else color)
    if hollow:
        drawing.polyline([*corners, corners[0]], color, 0.6)
