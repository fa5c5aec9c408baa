"""Charts of studies, with values that are counted by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from memtui.analysis.page_raster import Picture
from memtui.analysis.reuse_cdf import Cdf
from memtui.reports.charts import matplotlib_svg
from memtui.reports.charts.model import HeatRegion
from memtui.study import charts

MIB = 1 << 20


class Samples(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.wss_bytes)


def trace(*wss_mib: float):
    """A run whose RSS is twice its working set, and its mapped memory ten times."""
    wss_bytes = np.array(wss_mib, float) * MIB
    return SimpleNamespace(samples=Samples(wss_bytes=wss_bytes, rss_bytes=wss_bytes * 2), mapped_bytes=wss_bytes * 10)


def curve() -> Cdf:
    return Cdf(np.array([0, 1, 3]) * float(MIB), np.array([0, 0.25, 0.5]), np.array([0.1, 0.5, 0.75]), 0.25)


def lines(chart):
    """Name, places and values of each line, and where a second bound is drawn, that."""
    shown = [(line.name, line.x.tolist(), line.y.tolist(), line.until) for line in chart.lines]
    return [(*rest, None if until is None else until.tolist()) for *rest, until in shown]


def test_memory_by_number_of_the_sample():
    chart = charts.memory_lines(trace(1, 3), "a run", "A run")
    assert lines(chart) == [
        ("WSS", [1, 2], [1, 3], None),
        ("RSS", [1, 2], [2, 6], None),
        ("VM", [1, 2], [10, 30], None),
    ]
    assert (chart.name, chart.title, chart.y_name, chart.from_zero) == ("a-run", "A run", "MiB", True)
    assert lines(charts.memory_lines(trace(1, 3), "a run", "A run", only_wss=True)) == [("WSS", [1, 2], [1, 3], None)]
    assert lines(charts.wss_lines("a", "b", {"one": trace(5), "two": trace(1, 3)})) == [
        ("one", [1], [5], None),
        ("two", [1, 2], [1, 3], None),
    ]


def test_runs_of_different_lengths_lie_over_one_another():
    runs = {"short": trace(1, 3), "long": trace(1, 2, 3, 4), "none": trace()}
    assert lines(charts.wss_over_run("a", "b", runs)) == [
        ("short", [0.25, 0.75], [1, 3], None),
        ("long", [0.125, 0.375, 0.625, 0.875], [1, 2, 3, 4], None),
        ("none", [], [], None),
    ]
    assert [line[1:3] for line in lines(charts.wss_over_run("a", "b", runs, cut=0.375))] == [
        ([0.75], [3]),
        ([0.375, 0.625, 0.875], [2, 3, 4]),
        ([], []),
    ]


def test_of_one_curve_both_bounds_are_drawn_and_of_several_the_certain_one():
    chart = charts.reuse_lines("a", "b", {"": curve()}, limit_mib=2)
    assert lines(chart) == [("certainly", [0, 1, 3], [0, 0.25, 0.5], [0.1, 0.5, 0.75])]
    assert (chart.limits, chart.note) == ((0, 2), charts.BOUNDS_NOTE)
    chart = charts.reuse_lines("a", "b", {"x": curve(), "y": curve()})
    assert lines(chart) == [("x", [0, 1, 3], [0, 0.25, 0.5], None), ("y", [0, 1, 3], [0, 0.25, 0.5], None)]
    assert chart.limits is None
    assert chart.note.startswith(charts.BOUNDS_NOTE)
    assert chart.note.endswith("Drawn is the one from the upper bounds of the distances.")


def test_memory_on_a_logarithmic_axis_has_no_zero():
    chart = charts.locality("a", "b", curve())
    assert lines(chart) == [("certainly", [0.25, 0.5], [1, 3], None)]
    assert chart.y_log


@pytest.mark.parametrize(
    ("step_ns", "says"),
    [(None, ""), (25, "The first step ends in sample 3"), (35, "The program is still starting")],
)
def test_the_first_samples_and_where_the_first_step_ends(step_ns, says):
    run = trace(1, 2, 4, 8)
    run.samples.end_ns = np.array([10, 20, 30, 40])
    run.result = SimpleNamespace(first_step_ns=step_ns)
    chart = charts.first_samples(run, "first", "The first 3", 3)
    assert lines(chart) == [("WSS", [1, 2, 3], [1, 2, 4], None), ("RSS", [1, 2, 3], [2, 4, 8], None)]
    assert chart.note.startswith(says)
    assert chart.x_ticks == (1.0,)


def test_regions_of_a_heat_map_are_named_at_their_rows():
    share = np.zeros((10, 3), np.float32)
    regions = [HeatRegion("heap, 1 MiB", 0, 6), HeatRegion("a$b", 6, 10)]
    picture = Picture(share, 7, np.arange(10, dtype=np.uint64))
    names = matplotlib_svg.svg(charts.heat("a", "b", picture, regions=regions))
    assert "<!-- heap, 1 MiB -->" in names
    assert "<!-- a$b -->" in names
    assert names.index("<!-- heap, 1 MiB -->") != names.index("<!-- a$b -->")
    assert "<!-- heap" not in matplotlib_svg.svg(charts.heat("a", "b", picture))


@pytest.mark.parametrize(("note", "end"), [("", "is left out."), ("More.", "is left out. More.")])
def test_a_raster_says_of_how_many_pages_it_is(note, end):
    share = np.zeros((2, 3), np.float32)
    chart = charts.heat("a", "b", Picture(share, 7, np.arange(2, dtype=np.uint64)), vlines=(1.5,), note=note)
    assert chart.note == f"7 pages were touched at some time; what never was {end}"
    assert (chart.share is share, chart.vlines) == (True, (1.5,))
