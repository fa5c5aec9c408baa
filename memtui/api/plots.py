"""Figures of a session in matplotlib, for a notebook: ``session.plot``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from memtui.analysis.miss_ratio import MissRatioCurve
from memtui.api.heat import heat_map
from memtui.core.errors import UserError
from memtui.reports.figures.svg import COLORS
from memtui.reports.reuse_summary import exact_reuse
from memtui.reports.source import ReportSource

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIB = 1 << 20
_LABELS = 24  # of ranges beside a heat map at most: more do not fit below each other


class Plots:
    """Draws on axes of matplotlib, or on new ones, and returns them. Raises UserError where it is not installed."""

    def __init__(self, reader: ReportSource) -> None:
        self._reader = reader

    def working_set(self, ax: Axes | None = None) -> Axes:
        """Draw working set, RSS and PSS of the tree over time, in MiB.

        >>> with memtui.open("run.memtui") as session:
        ...     axes = session.plot.working_set()
        >>> axes.get_legend_handles_labels()[1]
        ['WSS', 'RSS']
        """
        axes, samples = _axes(ax), self._reader.samples
        times = self._times(samples.end_ns)
        for name, column in (("WSS", "wss_bytes"), ("RSS", "rss_bytes"), ("PSS", "pss_bytes")):
            values = getattr(samples, column)[:]
            if np.isfinite(values).any():
                axes.plot(times, values / MIB, label=name, color=COLORS.get(name.lower()))
        axes.set(ylabel="MiB", ylim=(0, None))
        axes.legend()
        return _dated(axes)

    def show_working_set(self) -> None:
        """Show the working set over time below a cell of a notebook, in a low figure."""
        pyplot = _pyplot()
        figure, axes = pyplot.subplots(figsize=(7, 2.5))
        self.working_set(axes)
        pyplot.show()
        pyplot.close(figure)

    def heatmap(self, ax: Axes | None = None, *, bins: tuple[int, int] = (400, 120), pid: int | None = None) -> Axes:
        """Draw what share of each place was touched, by address and time; see ``Tables.heatmap``.

        >>> with memtui.open("run.memtui") as session:
        ...     axes = session.plot.heatmap()
        >>> [label.get_text() for label in axes.get_yticklabels()]
        ['[heap]', 'x.bin']
        """
        heat = heat_map(self._reader, bins, pid)
        axes = _axes(ax)  # once it is known that there is something to draw
        rows = len(heat.share)
        edges = heat.times.astype("M8[ms]").astype(float) / 86_400_000  # days since 1970, as matplotlib counts
        image = axes.imshow(
            heat.share, aspect="auto", vmin=0, vmax=1, interpolation="nearest", cmap="magma_r",
            extent=(edges[0], edges[-1], rows, 0),
        )  # fmt: skip
        named = [row for row in range(rows) if heat.ranges[row]]
        starts = _apart((row for row in named if row == 0 or heat.ranges[row] != heat.ranges[row - 1]), rows / _LABELS)
        axes.set_yticks(starts, [heat.ranges[row] for row in starts])
        axes.figure.colorbar(image, ax=axes, label="touched share")
        return _dated(axes)

    def reuse(self, ax: Axes | None = None) -> Axes:
        """Draw the miss ratio of LRU memories by their size in MiB: two bounds, and an estimate between them.

        >>> with memtui.open("run.memtui") as session:
        ...     axes = session.plot.reuse()
        >>> axes.get_xlabel(), axes.get_ylabel()
        ('MiB', 'miss ratio')
        """
        curve = MissRatioCurve.of(exact_reuse(self._reader))
        sizes = curve.drawn_sizes_bytes
        if not len(sizes):
            raise UserError(f"{self._reader.title}: no page was touched twice, or no pages are stored")
        axes = _axes(ax)
        low, high = curve.miss_ratio_at(sizes)
        axes.fill_between(sizes / MIB, low, high, alpha=0.3, label="between the bounds")
        if (estimate := curve.estimate_at(sizes)) is not None:
            axes.plot(sizes / MIB, estimate, label="in random order inside windows")
        axes.set(xscale="log", xlabel="MiB", ylabel="miss ratio", ylim=(0, 1))
        axes.legend()
        return axes

    def power(self, ax: Axes | None = None) -> Axes:
        """Draw the power of each device over time, in watts. Raises UserError where none was read.

        >>> with memtui.open("run.memtui") as session:
        ...     axes = session.plot.power()
        >>> axes.get_legend_handles_labels()[1]
        ['GPU 0 board']
        """
        by_device: dict[str, list[tuple[int, float]]] = {}
        for reading in self._reader.power(0, 2**62):
            if reading.power_w is not None:
                by_device.setdefault(f"{reading.device} {reading.scope}", []).append((reading.t_ns, reading.power_w))
        if not by_device:
            raise UserError(f"{self._reader.title}: no power was read")
        axes = _axes(ax)
        for name, readings in by_device.items():
            times = self._times(np.array([t_ns for t_ns, _ in readings]))
            axes.plot(times, [power_w for _, power_w in readings], label=name)
        axes.set(ylabel="W", ylim=(0, None))
        axes.legend()
        return _dated(axes)

    def _times(self, t_ns: Any) -> Any:
        return (np.asarray(t_ns[:], np.int64) + self._reader.hello.clock.wall_offset_ns).astype("M8[ns]")


def _apart(rows: Iterable[int], least: float) -> list[int]:
    """Return rising rows without those that are too close to the one before."""
    chosen: list[int] = []
    for row in rows:
        if not chosen or row - chosen[-1] >= least:
            chosen.append(row)
    return chosen


def _axes(ax: Axes | None) -> Axes:
    return _pyplot().subplots()[1] if ax is None else ax


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise UserError("matplotlib is not installed: pip install 'memtui[notebook]'") from None
    return pyplot


def _dated(axes: Axes) -> Axes:
    """Have the axis of time say what is the same at all ticks once."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=9)
    axes.xaxis.set(major_locator=locator, major_formatter=ConciseDateFormatter(locator))
    return axes
