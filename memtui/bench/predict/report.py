"""The results of ``predict fit``, ``eval`` and ``run``, as lines and as JSON-ready data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memtui.bench.configuration import Configuration, Titles
from memtui.bench.predict import figures
from memtui.bench.predict.estimator import Fit, Samples
from memtui.bench.predict.evaluation import FITS, MODEL, POWER_FITS, POWER_MODEL, Score, across_shapes, sections
from memtui.bench.predict.features import Space
from memtui.bench.predict.ranges import LEVEL, calibrated
from memtui.bench.predict.training import Training, described
from memtui.bench.predict.trees import StepsAndTrees, Trees
from memtui.bench.request import NetworkParts
from memtui.bench.text import NONE, heading, shortened
from memtui.core.json_fields import to_json
from memtui.core.text import some_of
from memtui.core.units import duration_ns as duration
from memtui.core.units import energy, percent, power
from memtui.reports.charts.model import BarChart, PredictionChart

_MOST_NAMED = 3  # features that a line of text names


@dataclass(frozen=True)
class Report:
    """A result as lines of text, as JSON-ready data, and as charts."""

    lines: Sequence[str]
    document: Mapping[str, Any]
    charts: Sequence[BarChart | PredictionChart] = ()


@dataclass(frozen=True)
class _Target:
    """What is predicted.

    Attributes:
        name: ``time``, ``energy`` or ``power``.
        samples: measured values; None where there are none.
        model: name of the model.
        fit: class of the model.
        fits: the model and the baselines, by name.
        keys: of the JSON: the value and its range.
        unit: value to text.
    """

    name: str
    samples: Samples | None
    model: str
    fit: type[Trees]
    fits: Mapping[str, Fit]
    keys: tuple[str, str, str]
    unit: Callable[[float], str]


def _targets(training: Training) -> list[_Target]:
    both = (MODEL, StepsAndTrees, FITS)
    return [
        _Target("time", training.time(), *both, ("call_ns", "low_ns", "high_ns"), duration),
        _Target("energy", training.energy(), *both, ("energy_j", "energy_low_j", "energy_high_j"), energy),
        _Target(
            "power", training.power(), POWER_MODEL, Trees, POWER_FITS, ("power_w", "power_low_w", "power_high_w"), power
        ),
    ]


def fit(training: Training) -> Report:
    """Return the models that would be fitted, with the importance of their features."""
    lines: list[str] = []
    document: dict[str, Any] = {}
    for target in _targets(training):
        name, samples = target.name, target.samples
        if samples is None:
            lines.append(f"{name}: {NONE}: {training.energy_reason}")
            document[name] = {"rows": 0, "reason": training.energy_reason}
            continue
        model = target.fit(samples.rows, samples.log)
        steps = model.steps.each if isinstance(model, StepsAndTrees) else {}
        importances = sorted(model.importances.items(), key=lambda pair: -pair[1])
        shapes = len(set(samples.groups))
        lines += [
            f"{name}: {target.model}, fitted to {len(samples.rows)} rows of {shapes} shapes, "
            f"{len(importances)} features",
            *(line for way, units in steps.items() for line in _step_lines(way, units, *_UNITS[name])),
            "  importance        from          to  feature",
            *(f"  {share:10.3f}  {_span(model.space, feature)}  {feature}" for feature, share in importances),
            "",
        ]
        document[name] = {
            "model": target.model, "rows": len(samples.rows), "shapes": shapes, "steps": steps,
            "features": [
                {"name": name, "importance": share, "low": _low(model.space, name), "high": _high(model.space, name)}
                for name, share in importances
            ],
        }  # fmt: skip
    return Report(lines, document)


def evaluate(training: Training) -> Report:
    """Return the errors of the models on rows that they were not fitted to."""
    lines: list[str] = []
    document: dict[str, Any] = {"level": LEVEL}
    charts: list[PredictionChart] = []
    missing = [f"energy and power: {NONE}: {training.energy_reason}"] if training.energy_reason else []
    for target in _targets(training):
        name, samples = target.name, target.samples
        if samples is None:
            lines.append(f"{name}: {NONE}: {training.energy_reason}")
            document[name] = {"reason": training.energy_reason, "sections": []}
            continue
        answers = across_shapes(samples, target.fits)
        result = sections(samples, target.fits, answers)
        charts.append(
            figures.against_measured(name, target.model, answers, samples, training.measured_on.text, missing)
        )
        title = f"{name}, {len(set(samples.groups))} shapes"
        lines += [f"{title:42}{'rows':>6}  {'MAPE':>8}  {'median':>8}  {'90 %':>8}  {'in range':>8}  {'high/low':>8}"]
        for section in result:
            lines += [f"{section.title}{f': {NONE}: {section.reason}' if section.reason else ''}"]
            lines += [_score_line(model, score) for model, score in section.scores.items()]
        lines.append("")
        document[name] = {"reason": "", "sections": to_json(result)}
    lines.append(
        "MAPE, median and 90 %: error of a prediction by the true value; in range: the share that lies in the "
        f"{LEVEL:.0%} range; high/low: how wide that is"
    )
    return Report(lines, document, charts)


@dataclass(frozen=True)
class _Predicted:
    """Predictions of some configurations.

    Attributes:
        values: by target, for each configuration (predicted, low, high); None for a target without rows.
        outside: features of each configuration outside of what was measured.
    """

    values: Mapping[str, list[tuple[float, float, float]] | None]
    outside: list[tuple[str, ...]]

    def of(self, index: int) -> dict[str, tuple[float, float, float] | None]:
        """Return (predicted, low, high) of one configuration, by target."""
        return {name: None if some is None else some[index] for name, some in self.values.items()}


def _predicted(training: Training, targets: Sequence[_Target], wanted: Sequence[Configuration]) -> _Predicted:
    rows = [training.describe(c) for c in wanted]
    values: dict[str, list[tuple[float, float, float]] | None] = {}
    for target in targets:
        if target.samples is None:
            values[target.name] = None
            continue
        ranged = calibrated(target.fit, target.samples)(rows)
        each = zip(*(np.exp(some).tolist() for some in (ranged.log, ranged.low, ranged.high)), strict=True)
        values[target.name] = list(each)
    space = Space.of([described(row) for row in training.rows])
    return _Predicted(values, [space.outside(row) for row in rows])


def run(training: Training, wanted: Sequence[Configuration], columns: int | None = None) -> Report:
    """Return the predicted costs of configurations, as lines for a terminal of ``columns`` columns; None: any width."""
    targets = _targets(training)
    predicted = _predicted(training, targets, wanted)
    lines, predictions = _rows(training, targets, wanted, predicted, columns)
    if training.energy_reason:
        lines.append(f"energy: {NONE}: {training.energy_reason}")
    if beyond := sum(map(bool, predicted.outside)):
        lines.append(f"{beyond} of {len(wanted)} are outside of what was measured: there a range says little")
    title = f"What {wanted[0].op} is predicted to cost"
    charts = figures.of_configurations(title, Titles(wanted), wanted, predictions, training.measured_on.text)
    return Report(lines, {"level": LEVEL, "predictions": predictions}, charts)


def run_network(training: Training, parts: NetworkParts, columns: int | None = None) -> Report:
    """Return the predicted costs of a network: of each of its operators, and of a pass as their sum.

    The ends of a range are sums, too: the errors of one model go the same way in many operators, so they are not taken
    to cancel each other out.
    """
    targets, wanted, calls = _targets(training), list(parts.counts), list(parts.counts.values())
    predicted = _predicted(training, targets, wanted)
    lines, predictions = _rows(training, targets, wanted, predicted, columns, calls)
    sums = {target.name: _sums(predicted.values[target.name], calls) for target in targets[:2]}
    time, joules = sums["time"], sums["energy"]
    assert time is not None  # there are rows, or ``load`` would have refused
    watts = None if joules is None else joules[0] / time[0] * 1e9
    within = _sums(predicted.values["time"], [n * (not some) for n, some in zip(calls, predicted.outside, strict=True)])
    share = within[0] / time[0] if within is not None else 0.0
    if parts.decomposition is not None:
        lines += parts.decomposition.lines()
    lines.append(f"{parts.network.title}: {sum(calls)} calls of {len(wanted)} operators a pass")
    every = (*training.rows, *training.networks)
    previous = {row.configuration: row for row in every if row.device == training.device}.get(parts.network)
    for target in targets[:2]:
        lines.append(f"{target.name:8} {_cells(sums[target.name], target.unit)}")
    if previous is not None:
        lines[-2] += f"  [measured: {duration(previous.call_ns)}]"
    lines.append(f"{'power':8} {NONE if watts is None else power(watts):>10}")
    if training.energy_reason:
        lines.append(f"energy: {NONE}: {training.energy_reason}")
    beyond = sum(map(bool, predicted.outside))
    if beyond:
        lines.append(
            f"{beyond} of {len(wanted)} operators, with {percent(1 - share)} of the time, are outside of what was "
            "measured: there a range says little"
        )
    network = {
        **parts.network.to_dict(), "calls": sum(calls), "operators": len(wanted), "outside": beyond,
        "outside_time_share": 1 - share, **_document(targets[0], time), **_document(targets[1], joules),
        "power_w": watts, "energy_reason": training.energy_reason,
        "measured_ns": previous.call_ns if previous else None, "measured_j": previous.energy_j if previous else None,
        **({"coverage": parts.decomposition.coverage()} if parts.decomposition else {}),
    }  # fmt: skip
    charts = figures.of_network(
        parts.network.title, network, Titles(wanted), wanted, predictions, training.measured_on.text
    )
    return Report(lines, {"level": LEVEL, "network": network, "predictions": predictions}, charts)


def _sums(
    values: Sequence[tuple[float, float, float]] | None, calls: Sequence[int]
) -> tuple[float, float, float] | None:
    """Return (predicted, low, high) of all calls together."""
    if values is None:
        return None
    weighted = [[value * count for value in some] for some, count in zip(values, calls, strict=True)]
    predicted, low, high = map(sum, zip(*weighted, strict=True))
    return predicted, low, high


def _rows(
    training: Training,
    targets: Sequence[_Target],
    wanted: Sequence[Configuration],
    predicted: _Predicted,
    columns: int | None,
    calls: Sequence[int] = (),
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return a table of predictions, and the same JSON-ready. ``calls``: of each in a pass of a network."""
    measured = {row.configuration: row for row in training.rows if row.device == training.device}
    head = "".join(f"{name:>10}  {f'{LEVEL:.0%} range':>22}  " for name in ("time", "J/call", "watts"))
    head = (f"{'calls':>5}  " if calls else "") + head
    titles = Titles(wanted)
    names = shortened(titles, None if columns is None else columns - len(head))
    lines = [head + heading(titles.common)]
    predictions = []
    for index, configuration in enumerate(wanted):
        previous, outside, values = measured.get(configuration), predicted.outside[index], predicted.of(index)
        cells = [f"{_cells(values[target.name], target.unit)}  " for target in targets]
        text = (f"{calls[index]:5}  " if calls else "") + "".join(cells) + names[configuration]
        text += f"  [measured: {duration(previous.call_ns)}]" if previous else ""
        lines.append(text + (f"  [outside: {some_of(outside, _MOST_NAMED)}]" if outside else ""))
        documents = [_document(target, values[target.name]) for target in targets]
        predictions.append(
            {
                **configuration.to_dict(), "outside": list(outside), **({"calls": calls[index]} if calls else {}),
                **{key: value for document in documents for key, value in document.items()},
                "energy_reason": training.energy_reason,
                "measured_ns": previous.call_ns if previous else None,
                "measured_j": previous.energy_j if previous else None,
            }
        )  # fmt: skip
    return lines, predictions


def _document(target: _Target, values: tuple[float, float, float] | None) -> dict[str, float | None]:
    return dict(zip(target.keys, values or (None,) * 3, strict=True))


_UNITS = {"time": ("ns", 1.0), "energy": ("nJ", 1e9)}  # of the cost of one unit of a step


def _step_lines(name: str, units: Mapping[str, float], unit: str, per: float) -> Iterator[str]:
    yield f"  {name}: {unit} for each"
    for step, cost in units.items():
        value = cost * per
        yield f"  {f'{value:,.0f}' if value >= 100 else f'{value:.3g}':>10}  {step}"


def _low(space: Space, name: str) -> float:
    return min(some.get(name, 0.0) for some in space.low.values())


def _high(space: Space, name: str) -> float:
    return max(some.get(name, 0.0) for some in space.high.values())


def _span(space: Space, name: str) -> str:
    return f"{_low(space, name):10.2f}  {_high(space, name):10.2f}"


def _score_line(name: str, score: Score) -> str:
    return (
        f"  {name:40}{score.rows:6}  {score.mape:8.1%}  {score.median_ape:8.1%}  {score.p90_ape:8.1%}  "
        f"{score.coverage:8.1%}  {score.range_ratio:8.3g}"
    )


def _cells(values: tuple[float, float, float] | None, unit: Any) -> str:
    if values is None:
        return f"{NONE:>10}  {NONE:>22}"
    value, low, high = map(unit, values)
    return f"{value:>10}  {f'{low} to {high}':>22}"
