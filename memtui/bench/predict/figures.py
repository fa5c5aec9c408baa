"""Charts of predictions: against measurements that the model was not fitted to, and by configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from memtui.bench.configuration import Configuration, Titles
from memtui.bench.figures.costs import ENERGY, POWER, TIME, divided
from memtui.bench.predict.estimator import Samples
from memtui.bench.predict.evaluation import Answers, score
from memtui.bench.predict.ranges import LEVEL
from memtui.bench.text import NONE
from memtui.core.units import duration_ns, energy, percent, power
from memtui.reports.charts.model import Bar, BarAxis, BarChart, BarRow, Prediction, PredictionChart

_AXES = {"time": (TIME, 1e-9), "energy": (ENERGY, 1.0), "power": (POWER, 1.0)}  # with units of samples by the axis
# By axis: keys of a prediction (value, range, measured value), their unit by that of the axis, and the value as text.
_COLUMNS: Mapping[BarAxis, tuple[tuple[str, str, str, str], float, Callable[[float | None], str]]] = {
    TIME: (("call_ns", "low_ns", "high_ns", "measured_ns"), 1e-9, duration_ns),
    POWER: (("power_w", "power_low_w", "power_high_w", ""), 1.0, power),
    ENERGY: (("energy_j", "energy_low_j", "energy_high_j", "measured_j"), 1.0, energy),
}
_MARKS = (
    f"thin line: {LEVEL:.0%} range of the prediction; thick mark: the measured value, which the model was fitted to"
)


def against_measured(
    target: str, model: str, answers: Answers, samples: Samples, measured_on: str, missing: Sequence[str]
) -> PredictionChart:
    """Return the chart of a target and its model.

    Args:
        target: ``time``, ``energy`` or ``power``.
        model: name of the model.
        answers: predictions of all samples, by models that were not fitted to them.
        samples: measured values.
        measured_on: device and environment of the measurements.
        missing: reasons why other targets are not known.
    """
    axis, unit = _AXES[target]
    ranged = answers.by[model]
    true, predicted, low, high = (np.exp(some) * unit for some in (samples.log, ranged.log, ranged.low, ranged.high))
    groups: dict[str, list[Prediction]] = {}
    for index, row in enumerate(samples.rows):
        measured, value, lower, upper = (float(some[index]) for some in (true, predicted, low, high))
        name = f"{row.op}, {row.device}" if row.device else row.op
        point = Prediction(measured, value, lower, upper, bool(answers.outside[index]))
        groups.setdefault(name, []).append(point)
    scored = score(ranged, samples.log)
    assert scored is not None  # there are samples, or there would be no answers
    subtitle = [
        f"measured on {measured_on}",
        f"{model}: mean error {percent(scored.mape)}, median {percent(scored.median_ape)}, 90 % within "
        f"{percent(scored.p90_ape)}, by the measured value; {percent(scored.coverage)} of {scored.rows} measured "
        f"values lie in the {LEVEL:.0%} range of their prediction (thin line)",
    ]
    notes = ["each of five folds is predicted from the other four; no shape is in two of them", *missing]
    title = f"Predicted against measured {axis.name}"
    named = {f"{name} ({len(some)})": some for name, some in groups.items()}
    return PredictionChart(f"predict-{target}", title, subtitle, axis, named, scored.p90_ape, notes)


def of_configurations(
    title: str,
    titles: Titles,
    wanted: Sequence[Configuration],
    predictions: Sequence[Mapping[str, Any]],
    measured_on: str,
) -> list[BarChart]:
    """Return the charts of the predicted cost of a call of each configuration. ``predictions``: as in the JSON."""
    subtitle = [f"fitted to measurements on {measured_on}"] + ([f"all: {titles.common}"] if titles.common else [])
    rows = [(titles.of(c), document, 1) for c, document in zip(wanted, predictions, strict=True)]
    return _bars(title, subtitle, "configuration", rows, predictions)


def of_network(
    title: str,
    network: Mapping[str, Any],
    titles: Titles,
    wanted: Sequence[Configuration],
    predictions: Sequence[Mapping[str, Any]],
    measured_on: str,
) -> list[BarChart]:
    """Return the charts of a pass of a network, and of all calls of each of its operators."""
    rows = [("the network, one pass", network, 1)]
    rows += [(titles.of(c), document, document["calls"]) for c, document in zip(wanted, predictions, strict=True)]
    rows[1:] = sorted(rows[1:], key=lambda row: -(row[1]["call_ns"] or 0.0) * row[2])
    subtitle = [f"fitted to measurements on {measured_on}"] + ([f"all: {titles.common}"] if titles.common else [])
    named = [
        (f"{count} x {name}" if document is not network else name, document, count) for name, document, count in rows
    ]
    return _bars(f"What {title} is predicted to cost", subtitle, "calls in a pass", named, [network, *predictions])


def _bars(
    title: str,
    subtitle: Sequence[str],
    names: str,
    rows: Sequence[tuple[str, Mapping[str, Any], int]],
    documents: Sequence[Mapping[str, Any]],
) -> list[BarChart]:
    """Return the charts of rows (name, prediction, number of calls), divided where the rows are many."""
    axes = [axis for axis, (keys, *_) in _COLUMNS.items() if any(d.get(keys[0]) is not None for d in documents)]
    shown = [
        BarRow(
            name + (" (outside)" if document["outside"] and "operators" not in document else ""),
            tuple(_bar(document, axis, count) for axis in axes),
            main="operators" in document,
        )
        for name, document, count in rows
    ]
    notes = [_MARKS] if any(d.get("measured_ns") for d in documents) else [_MARKS.partition(";")[0]]
    if any(" (outside)" in row.name for row in shown):
        notes.append("outside: beyond what was measured; there a range says little")
    reasons = {d["energy_reason"] for d in documents if d.get("energy_reason")}
    notes += [f"power and energy: {NONE}: {reason}" for reason in sorted(reasons)]
    if any(count > 1 for _, _, count in rows):  # each bar is of all calls of a pass
        axes = [replace(axis, name=axis.name.replace("a call", "these calls")) for axis in axes]
    return [
        BarChart(name, part_title, subtitle, names, axes, part, notes)
        for name, part_title, part in divided("predict", title, shown)
    ]


def _bar(document: Mapping[str, Any], axis: BarAxis, count: int) -> Bar:
    keys, unit, text = _COLUMNS[axis]
    count = 1 if axis is POWER else count  # watts of many calls are those of one
    value, low, high, mark = (document.get(key) for key in keys)
    scaled = [None if some is None else some * unit * count for some in (value, low, high, mark)]
    label = NONE if value is None else text(value * count)
    return Bar(scaled[0], label, scaled[1], scaled[2], mark=scaled[3])
