"""Charts that several studies share, with the axes of the published notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from memtui.analysis.page_raster import Picture
from memtui.analysis.reuse_cdf import Cdf
from memtui.reports.charts.model import Chart, ChartLine, HeatChart, HeatRegion
from memtui.study.recorded_run import Trace

MIB = 1 << 20
BOUNDS_NOTE = (
    "A touch is one per page and window. The order inside a window is not known, so the curve lies between two bounds; "
    "first touches are held by no memory."
)
REGIONS_NOTE = (
    "Names are those of the mappings, with the size of what was touched of them; what is too small for a name has none."
)


def memory_lines(trace: Trace, name: str, title: str, *, only_wss: bool = False) -> Chart:
    """Draw VM, RSS and WSS by sample number."""
    number = np.arange(1, len(trace.samples) + 1)
    lines = [ChartLine("WSS", number, trace.samples.wss_bytes / MIB)]
    if not only_wss:
        lines += [
            ChartLine("RSS", number, trace.samples.rss_bytes / MIB),
            ChartLine("VM", number, trace.mapped_bytes / MIB),
        ]
    return Chart(name.replace(" ", "-"), title, "sample number", "MiB", lines, from_zero=True)


def first_samples(trace: Trace, name: str, title: str, count: int) -> Chart:
    """Draw RSS and WSS of the first ``count`` samples, with the first step among them where it is."""
    number = np.arange(1, min(len(trace.samples), count) + 1)
    shown = slice(0, len(number))
    lines = [
        ChartLine("WSS", number, trace.samples.wss_bytes[shown] / MIB, points=True),
        ChartLine("RSS", number, trace.samples.rss_bytes[shown] / MIB, points=True),
    ]
    ticks = tuple(float(tick) for tick in number if tick == 1 or tick % 5 == 0)
    return Chart(
        name, title, "sample number", "MiB", lines, x_ticks=ticks, from_zero=True, note=_first_step(trace, count)
    )


def _first_step(trace: Trace, count: int) -> str:
    """Return the sentence that says in which sample the first step ended."""
    if trace.result.first_step_ns is None:
        return ""
    sample = int(np.searchsorted(trace.samples.end_ns, trace.result.first_step_ns)) + 1
    if sample > count:
        return f"The program is still starting: its first step ends in sample {sample}."
    return f"The first step ends in sample {sample}; before it the program starts."


def wss_over_run(
    name: str, title: str, traces: Mapping[str, Trace], *, stacked: bool = False, cut: float = 0.0
) -> Chart:
    """Draw WSS of runs of different lengths by the share of the run; the first part of each may be left out."""
    lines = []
    for label, trace in traces.items():
        wss = trace.samples.wss_bytes / MIB
        share = (np.arange(len(wss)) + 0.5) / max(len(wss), 1)
        shown = share >= cut
        lines.append(ChartLine(label, share[shown], wss[shown]))
    return Chart(name, title, "share of the run", "WSS (MiB)", lines, from_zero=True, stacked=stacked)


def wss_lines(name: str, title: str, traces: Mapping[str, Trace]) -> Chart:
    """Draw WSS by sample number."""
    lines = [
        ChartLine(label, np.arange(1, len(trace.samples) + 1), trace.samples.wss_bytes / MIB)
        for label, trace in traces.items()
    ]
    return Chart(name, title, "sample number", "WSS (MiB)", lines, from_zero=True)


def reuse_lines(name: str, title: str, curves: Mapping[str, Cdf], *, limit_mib: float | None = None) -> Chart:
    """Draw the share of accesses that a memory holds; of one curve both bounds, of several the certain one."""
    lines = []
    for label, curve in curves.items():
        until = curve.most if len(curves) == 1 else None
        lines.append(ChartLine(label or "certainly", curve.sizes_bytes / MIB, curve.least, until))
    limits = (0.0, limit_mib) if limit_mib is not None else None
    note = (
        BOUNDS_NOTE if len(curves) == 1 else f"{BOUNDS_NOTE} Drawn is the one from the upper bounds of the distances."
    )
    return Chart(name, title, "memory (MiB)", "fraction of touches", lines, limits=limits, from_zero=True, note=note)


def locality(name: str, title: str, curve: Cdf) -> Chart:
    """Return the curve with its axes exchanged, memory on a logarithmic one."""
    positive = curve.least > 0  # 0 has no place on a logarithmic axis
    line = ChartLine("certainly", curve.least[positive], curve.sizes_bytes[positive] / MIB)
    return Chart(name, title, "fraction of touches", "memory (MiB)", [line], y_log=True, note=BOUNDS_NOTE)


def heat(
    name: str,
    title: str,
    picture: Picture,
    *,
    vlines: Sequence[float] = (),
    note: str = "",
    regions: Sequence[HeatRegion] = (),
) -> HeatChart:
    """Draw where and when: pages that were ever accessed, by rising address."""
    text = f"{picture.pages} pages were touched at some time; what never was is left out. {note}".strip()
    return HeatChart(
        name, title, "sample number", "pages, by rising address", picture.share, vlines, text, regions=regions
    )
