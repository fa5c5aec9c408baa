"""A network and the sum of its operators as a chart: the operators stand one after another until they are the sum."""

from __future__ import annotations

from memtui.bench.figures.costs import TIME
from memtui.bench.network_vs_operators import Composition, KindCost, Share, lines
from memtui.bench.text import NONE
from memtui.core.units import duration_ns, energy, percent
from memtui.reports.charts.model import Bar, BarAxis, BarChart, BarRow
from memtui.reports.html import Cell

_TIME, _ENERGY = BarAxis("time of a pass", TIME.unit), BarAxis("energy of a pass", "J")


def chart(composition: Composition, measured_on: str) -> BarChart | None:
    """Return the chart; None where nothing was compared. ``place``: device and environment."""
    if composition.time is None or composition.network_ns is None:
        return None
    with_energy = composition.energy is not None and composition.network_j is not None
    axes = (_TIME, _ENERGY) if with_energy else (_TIME,)
    covered, kinds = composition.covered["all"], composition.kinds
    network_ns, network_j = composition.network_ns, composition.network_j or 0.0
    rows = [_row("the network", network_ns, network_j, len(axes), main=True)]
    ns = joules = 0.0
    for kind in kinds:
        rows.append(_kind_row(kind, ns, joules, composition, len(axes)))
        ns, joules = ns + kind.ns, joules + (kind.joules or 0.0)
    of_all = f" of {covered.of_calls}" if not covered.whole else ""
    rows.append(_row(f"sum of {covered.calls}{of_all} calls", ns, joules, len(axes), main=True))
    ratios = [("time", composition.time["all"])]
    if with_energy and composition.energy is not None:
        ratios.append(("energy", composition.energy["all"]))
    subtitle = [
        f"measured on {measured_on}, {composition.rounds} round{'s' * (composition.rounds != 1)}",
        "; ".join(f"{name}: the sum is {_ratio(share)} of the network" for name, share in ratios),
    ]
    # The lines about coverage and what was left out, without those that the bars and the subtitle say.
    notes = [line.strip() for line in lines(composition) if not _is_drawn(line)]
    notes.append("the bars of operators begin where the one above ends; percent: of the network")
    if not with_energy and not composition.energy_reason:
        notes.append(f"energy: {NONE}: it was not measured in each round")
    title = f"{composition.network.title} against its operators"
    return BarChart("network", title, subtitle, "calls in a pass", axes, rows, notes)


def _is_drawn(line: str) -> bool:
    return line.startswith(("network, one pass", "sum of ", "no convolutions"))


def _row(name: str, ns: float, joules: float, axes: int, *, main: bool) -> BarRow:
    bars = (Bar(ns / 1e9, duration_ns(ns)), Bar(joules, energy(joules)))
    return BarRow(name, bars[:axes], main=main)


def _kind_row(kind: KindCost, ns: float, joules: float, composition: Composition, axes: int) -> BarRow:
    """Return the row of operators that begin where ``ns`` and ``joules`` are spent."""
    share = percent(kind.ns / composition.network_ns) if composition.network_ns else NONE
    bars: list[Bar] = [Bar(kind.ns / 1e9, f"{duration_ns(kind.ns)}, {share}", start=ns / 1e9)]
    if kind.joules is not None and composition.network_j:
        text = f"{energy(kind.joules)}, {percent(kind.joules / composition.network_j)}"
        bars.append(Bar(kind.joules, text, start=joules))
    return BarRow(f"{kind.op}, {kind.calls}", tuple(bars[:axes]))


def _ratio(share: Share) -> str:
    ratio, low, high = share.ratio
    interval = "" if low is None or high is None else f" [{low * 100:.1f}, {high * 100:.1f}]"
    return f"{percent(ratio)}{interval}"


def table(composition: Composition) -> tuple[tuple[str, ...], list[list[Cell]]]:
    """Return heads and rows of the operators by name: calls, time and energy of a pass."""
    return ("operators", "calls#", "time of a pass#", "energy of a pass#"), [
        [
            kind.op,
            (str(kind.calls), kind.calls),
            (duration_ns(kind.ns), kind.ns),
            (energy(kind.joules), kind.joules),
        ]
        for kind in composition.kinds
    ]
