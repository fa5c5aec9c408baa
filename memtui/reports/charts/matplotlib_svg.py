"""Charts as SVG: one style, readable in grey, the same bytes for the same chart. Only this module knows matplotlib."""

from __future__ import annotations

import importlib.util
import io
import logging
from typing import Any

import numpy as np

from memtui.core.errors import FAILURE, UserError
from memtui.reports.charts.model import HEAT_TICKS, Chart, ChartLine, HeatChart

WIDTH_IN, HEIGHT_IN, PANEL_IN = 5.6, 3.1, 1.2
# From dark to light, so that they differ without colour, too; dashes and markers separate neighbours.
COLORS = ("#1b1b3a", "#8a2c6d", "#1f6f8b", "#d1602a", "#5a9a4a", "#c9a227", "#8d8d8d")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)), (0, (9, 2)), "-")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FEW_LINES = 3  # more lines have their legend next to the picture
COLUMNS = 1600  # of a heat map; windows beyond that are averaged
MISSING = "figures need matplotlib: pip install 'memtui[study]'"
STYLE: Any = {
    "svg.fonttype": "path",  # the letters are in the file: it looks the same everywhere
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dcdcdc",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "legend.frameon": False,
    "text.parse_math": False,  # a name with a dollar sign is a name
}


def check() -> None:
    """Raise UserError where the plotting library is not installed. Loading it would create a folder at home."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError(MISSING, FAILURE)


def load() -> None:
    """Load the plotting library before the first run. Raises UserError where it is missing."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it reports its font cache
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError(MISSING, FAILURE) from None


def svg(chart: Chart | HeatChart) -> str:
    """Return the chart as an SVG document."""
    import matplotlib

    with matplotlib.rc_context(STYLE | {"svg.hashsalt": chart.name}):
        figure = _heat(chart) if isinstance(chart, HeatChart) else _lines(chart)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return text.getvalue()


def _new(panels: int, height_in: float) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)
    return figure, [row[0] for row in axes]


def _lines(chart: Chart) -> Any:
    panels = len(chart.lines) if chart.stacked else 1
    figure, axes = _new(max(panels, 1), HEIGHT_IN if panels < 2 else 0.6 + PANEL_IN * panels)
    for number, line in enumerate(chart.lines):
        _line(axes[number if chart.stacked else 0], line, number)
    for number, axis in enumerate(axes):
        if chart.y_log:
            axis.set_yscale("log", base=2)
            axis.yaxis.set_major_formatter(_number)  # the default formatter writes formulas
        if chart.x_log:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(_number)
        if chart.x_ticks is not None:
            axis.set_xticks(list(chart.x_ticks), [f"{tick:g}" for tick in chart.x_ticks])
            axis.minorticks_off()
        if chart.limits is not None:
            axis.set_xlim(*chart.limits)
        if chart.from_zero:
            axis.set_ylim(0, axis.get_ylim()[1] * 1.05)
        if chart.stacked:
            axis.set_title(chart.lines[number].name, loc="left", fontsize=8)
        elif len(chart.lines) > 1 or chart.lines[0].until is not None:
            position = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if len(chart.lines) > FEW_LINES else {}
            axis.legend(fontsize=7, **position)
        axis.set_ylabel(chart.y_name)
    axes[-1].set_xlabel(chart.x_name)
    return figure


def _number(value: float, _: object) -> str:
    """Return a number at an axis."""
    return f"{value:g}"


def _line(axis: Any, line: ChartLine, number: int) -> None:
    style = number % len(COLORS)
    x = np.asarray(line.x, float)
    mark = {"marker": MARKERS[style], "markersize": 4} if line.points else {}
    if line.bars is not None:
        x = x * (1 + 0.02 * number)  # in addition to those of the other lines
        low, high = np.array(line.bars, float).reshape(-1, 2).T
        axis.vlines(x, low, high, color=COLORS[style], linestyle=DASHES[style], linewidth=1.0)
    axis.plot(x, line.y, color=COLORS[style], linestyle=DASHES[style], label=line.name, **mark)
    if line.until is not None:
        axis.plot(x, line.until, color=COLORS[style], linestyle=DASHES[1], linewidth=0.8, label="at most")
        axis.fill_between(x, line.y, line.until, color="#c8c8d8", linewidth=0, label="between the bounds")


def _heat(chart: HeatChart) -> Any:
    figure, (axis,) = _new(1, HEIGHT_IN + 0.5)
    share = _fewer(chart.share, COLUMNS)
    windows = chart.share.shape[1]
    image = axis.imshow(
        np.sqrt(share),  # one page in a hundred must be visible
        cmap="Greys",
        vmin=0,
        vmax=1,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        extent=(0.5, windows + 0.5, 0, 1) if chart.until is None else (0, chart.until, 0, 1),
    )
    if chart.limit is not None:
        axis.set_xlim(0, chart.limit)
    for column in chart.vlines:
        axis.axvline(column + 1, color="#d1602a", linewidth=0.8)
    axis.set_yticks([])
    axis.grid(visible=False)
    _name_regions(axis, chart)
    axis.xaxis.get_major_locator().set_params(integer=chart.until is None)  # samples are counted
    axis.set_xlabel(chart.x_name)
    axis.set_ylabel(chart.y_name)
    bar = figure.colorbar(image, ax=axis, shrink=0.6, pad=0.01)
    bar.set_ticks(list(np.sqrt(HEAT_TICKS)), labels=[f"{share:.0%}" for share in HEAT_TICKS])
    bar.set_label("touched share")
    return figure


def _name_regions(axis: Any, chart: HeatChart) -> None:
    """Write the names of regions at the address axis, with a line between two of them."""
    rows = chart.share.shape[0]
    if not chart.regions:
        return
    middles = [(region.start + region.end) / 2 / rows for region in chart.regions]
    axis.set_yticks(middles, [region.name for region in chart.regions], fontsize=7)
    axis.tick_params(axis="y", length=0)
    for edge in {region.start for region in chart.regions} | {region.end for region in chart.regions}:
        if 0 < edge < rows:
            axis.axhline(edge / rows, color="#2b6291", linewidth=0.5)


def _fewer(share: np.ndarray, columns: int) -> np.ndarray:
    """Return at most ``columns`` columns, each the mean of its known neighbours."""
    if share.shape[1] <= columns:
        return share
    edges = np.linspace(0, share.shape[1], columns + 1).astype(int)
    finite = ~np.isnan(share)
    sums = np.add.reduceat(np.where(finite, share, 0.0), edges[:-1], axis=1)
    counts = np.add.reduceat(finite, edges[:-1], axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
