"""Charts of bars and of predictions: to scale, with whole names, and legible."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from memtui.reports.charts import bars, predictions
from memtui.reports.charts.frame import EDGE_PT, NAME_PT, WIDTH_PT
from memtui.reports.charts.model import Bar, BarAxis, BarChart, BarRow, Prediction, PredictionChart
from memtui.reports.figures.axes import decade_scale, prefixed_scale, ratio_scale
from memtui.reports.figures.svg import text_width

SVG = "{http://www.w3.org/2000/svg}"
TIME, POWER = BarAxis("time", "s"), BarAxis("power", "W")


def chart(*rows: BarRow, axes=(TIME,), **more) -> BarChart:
    return BarChart("name", "a title", ["below it"], "things", axes, rows, **more)


def row(name: str, *values: float | None, **more) -> BarRow:
    return BarRow(name, tuple(Bar(value, f"{value}") for value in values), **more)


def elements(drawing, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(drawing.document()).iter(SVG + tag))


def texts(drawing) -> list[str]:
    return [element.text or "" for element in elements(drawing, "text")]


def widths(drawing, fill="rss") -> list[float]:
    return [float(rect.get("width")) for rect in elements(drawing, "rect") if rect.get("class") == f"fill-{fill}"]


def test_bars_are_to_scale_from_zero():
    short, long = widths(bars.draw(chart(row("a", 0.001), row("b", 0.004))))
    assert long == pytest.approx(4 * short, rel=0.01)


def test_values_that_differ_too_much_for_bars_are_points_of_one_size():
    drawing = bars.draw(chart(row("a", 1e-6), row("b", 1e-2)))
    assert len(set(widths(drawing))) == 1
    assert "time, logarithmic" in texts(drawing)
    assert {"1 us", "10 ms"} <= set(texts(drawing)), "ticks name their unit"


def test_a_bar_begins_where_it_should():
    drawing = bars.draw(chart(row("a", 2.0), BarRow("b", (Bar(2.0, "2", start=2.0),))))
    first, second = [rect for rect in elements(drawing, "rect") if rect.get("class") == "fill-rss"]
    assert float(second.get("x")) == pytest.approx(float(first.get("x")) + float(first.get("width")), abs=0.02)


@pytest.mark.parametrize("name", ["short", "cin=1 " * 30, "x" * 250])
def test_names_are_whole_and_beside_the_panel(name):
    drawing = bars.draw(chart(row(f"{name}1", 1.0), row(f"{name}2", 2.0)))
    left = min(float(rect.get("x")) for rect in elements(drawing, "rect") if rect.get("class") == "fill-rss")
    names = [
        element.text
        for element in elements(drawing, "text")
        if element.get("x") == f"{EDGE_PT:g}" and element.get("class") == "fill-ink"
    ]
    joined = "".join(names).replace(" ", "")
    assert all(f"{name}{end}".replace(" ", "") in joined for end in "12")
    assert all(EDGE_PT + text_width(text, NAME_PT) <= left for text in names[1:])


def test_panels_stand_beside_each_other_within_the_page():
    drawing = bars.draw(chart(row("a", 1.0, 200.0), row("b", 2.0, None), axes=(TIME, POWER)))
    assert "None" in texts(drawing), "the text of a value that is not known"
    assert len(widths(drawing)) == 3, "and no bar for it"
    ends = [float(element.get("x")) for element in elements(drawing, "text") if element.get("text-anchor") == "end"]
    assert max(ends) <= WIDTH_PT - EDGE_PT + 0.1


def test_a_row_without_values_has_its_reason_in_full():
    reason = "out of memory: " + "tried to allocate much " * 12
    drawing = bars.draw(chart(row("a", 1.0), BarRow("b", (), reason), row("c", 1.0)))
    assert (
        reason.split()
        == " ".join(element.text for element in elements(drawing, "text") if element.get("class") == "fill-wss").split()
    )


def test_a_chart_without_any_value_is_drawn():
    assert "it failed" in texts(bars.draw(chart(BarRow("a", (), "it failed"))))


def test_an_interval_below_zero_has_no_cap_at_the_axis():
    whole = len(elements(bars.draw(chart(BarRow("a", (Bar(2.0, "2", 1.0, 3.0),)))), "line"))
    cut = len(elements(bars.draw(chart(BarRow("a", (Bar(2.0, "2", -1.0, 3.0),)))), "line"))
    assert whole == cut + 1


def prediction_chart(**groups: list[Prediction]) -> PredictionChart:
    return PredictionChart("p", "a title", [], TIME, groups, 0.25, ["a note"])


def test_predictions_on_the_diagonal_have_equal_coordinates():
    points = [Prediction(value, value, value / 2, value * 2) for value in (1e-5, 1e-4, 1e-3)]
    drawing = predictions.draw(prediction_chart(conv=points))
    paths = [path.get("d") for path in elements(drawing, "path") if path.get("class") == "fill-rss"]
    assert len(paths) == 2 * len(points) + 1, "in the square, in the panel below, and one in the legend"
    centres = []
    for path in paths[: len(points)]:
        corners = [tuple(map(float, pair.split())) for pair in path.strip("MZ").split("L")]
        centres.append([sum(axis) / len(corners) for axis in zip(*corners, strict=True)])
    steps = [(b[0] - a[0], a[1] - b[1]) for a, b in pairwise(centres)]
    assert all(across == pytest.approx(up, abs=0.05) for across, up in steps)
    assert {"predicted = measured", "a note", "time, predicted", "time, measured, logarithmic"} <= set(texts(drawing))
    assert not any("hollow" in text for text in texts(drawing))


@pytest.mark.parametrize(("error", "dashed"), [(0.25, 4), (0.9, 4), (2.0, 2)])
def test_the_error_is_drawn_in_both_panels(error, dashed):
    points = [Prediction(value, 1.1 * value, value, 2 * value) for value in (1.0, 1000.0)]
    chart = PredictionChart("p", "a title", [], TIME, {"conv": points}, error)
    lines = [line for line in elements(predictions.draw(chart), "line") if line.get("stroke-dasharray")]
    assert len(lines) == dashed + 1, "and one in the legend"


def test_groups_are_named_and_extrapolation_is_hollow():
    groups = {f"op{n}": [Prediction(1.0, 1.0 + n, 0.5, 9.0, outside=n == 3)] for n in range(7)}
    drawing = predictions.draw(prediction_chart(**groups))
    assert set(groups) <= set(texts(drawing))
    assert any("hollow" in text for text in texts(drawing))
    assert [path for path in elements(drawing, "path") if path.get("class") == "fill-ground"]


def test_scales_hold_their_values_and_have_round_ticks():
    assert [label for _, label in prefixed_scale(0.0371, "s").ticks] == ["0", "10", "20", "30", "40"]
    assert prefixed_scale(0.0371, "s").unit == "ms"
    assert [prefixed_scale(5 * 10.0**power, "B/s").unit for power in (6, 9, 12, 15)] == ["MB/s", "GB/s", "TB/s", "TB/s"]
    assert [label for _, label in prefixed_scale(5e9, "s").ticks] == ["0", "2", "4", "6"]
    scale = decade_scale(3e-5, 4e-2, "s")
    assert (scale.low, scale.high) == (pytest.approx(1e-5), pytest.approx(1e-1))
    assert [label for _, label in scale.ticks] == ["10 us", "100 us", "1 ms", "10 ms", "100 ms"]
    assert decade_scale(3.0, 3.0, "W").low < decade_scale(3.0, 3.0, "W").high
    assert [label for _, label in ratio_scale(1.3).ticks] == ["0.667", "1", "1.5"]
    assert [label for _, label in ratio_scale(18.0).ticks] == ["0.01", "0.1", "1", "10", "100"]
