"""The results of ``predict fit``, ``eval`` and ``run``, as lines and as JSON-ready data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memtui.bench.configuration import Configuration, Titles
from memtui.bench.predict.estimator import Samples
from memtui.bench.predict.evaluation import MODEL, Score, sections
from memtui.bench.predict.features import Space, describe
from memtui.bench.predict.ranges import LEVEL, Ranged, calibrated
from memtui.bench.predict.training import Training
from memtui.bench.predict.trees import StepsAndTrees
from memtui.bench.text import NONE, heading, shortened
from memtui.core.plain_data import to_plain
from memtui.core.units import duration_ns as duration
from memtui.core.units import energy

_MOST_NAMED = 3  # features that a line of text names


@dataclass(frozen=True)
class Report:
    """A result as lines of text and as JSON-ready data."""

    lines: Sequence[str]
    document: Mapping[str, Any]


def fit(training: Training) -> Report:
    """Return the models that would be fitted, with the importance of their features."""
    lines: list[str] = []
    document: dict[str, Any] = {}
    for target, samples in _targets(training):
        if samples is None:
            lines.append(f"{target}: {NONE}: {training.energy_reason}")
            document[target] = {"rows": 0, "reason": training.energy_reason}
            continue
        model = StepsAndTrees(samples.rows, samples.log)
        importances = sorted(model.importances.items(), key=lambda pair: -pair[1])
        shapes = len(set(samples.groups))
        unit, per = _UNITS[target]
        lines += [
            f"{target}: {MODEL}, fitted to {len(samples.rows)} rows of {shapes} shapes, {len(importances)} features",
            *(line for name, units in model.steps.each.items() for line in _step_lines(name, units, unit, per)),
            "  importance        from          to  feature",
            *(f"  {share:10.3f}  {_span(model.space, name)}  {name}" for name, share in importances),
            "",
        ]
        document[target] = {
            "model": MODEL, "rows": len(samples.rows), "shapes": shapes, "steps": model.steps.each,
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
    for target, samples in _targets(training):
        if samples is None:
            lines.append(f"{target}: {NONE}: {training.energy_reason}")
            document[target] = {"reason": training.energy_reason, "sections": []}
            continue
        result = sections(samples)
        title = f"{target}, {len(set(samples.groups))} shapes"
        lines += [f"{title:42}{'rows':>6}  {'MAPE':>8}  {'median':>8}  {'90 %':>8}  {'in range':>8}  {'high/low':>8}"]
        for section in result:
            lines += [f"{section.title}{f': {NONE}: {section.reason}' if section.reason else ''}"]
            lines += [_score_line(name, score) for name, score in section.scores.items()]
        lines.append("")
        document[target] = {"reason": "", "sections": to_plain(result)}
    lines.append(
        "MAPE, median and 90 %: error of a prediction by the true value; in range: the share that lies in the "
        f"{LEVEL:.0%} range; high/low: how wide that is"
    )
    return Report(lines, document)


def run(training: Training, wanted: Sequence[Configuration], columns: int | None = None) -> Report:
    """Return the predicted costs of configurations, as lines for a terminal of ``columns`` columns; None: any width."""
    rows = [describe(c) for c in wanted]
    ranged = {
        target: None if samples is None else calibrated(StepsAndTrees, samples)(rows)
        for target, samples in _targets(training)
    }
    space = Space.of([describe(row.configuration) for row in training.rows])
    outside = [space.outside(row) for row in rows]
    measured = {row.configuration: row for row in training.rows}
    head = f"{'time':>10}  {f'{LEVEL:.0%} range':>22}  {'J/call':>10}  {f'{LEVEL:.0%} range':>22}  "
    titles = Titles(wanted)
    names = shortened(titles, None if columns is None else columns - len(head))
    lines = [head + heading(titles.common)]
    predictions = []
    for index, configuration in enumerate(wanted):
        previous = measured.get(configuration)
        time, joules = (_values(values, index) for values in ranged.values())
        text = f"{_cells(time, duration)}  {_cells(joules, energy)}  {names[configuration]}"
        text += f"  [measured: {duration(previous.call_ns)}]" if previous else ""
        lines.append(text + (f"  [outside: {_some(outside[index])}]" if outside[index] else ""))
        predictions.append(
            {
                **configuration.to_dict(), "outside": list(outside[index]),
                **dict(zip(("call_ns", "low_ns", "high_ns"), time or (None,) * 3, strict=True)),
                **dict(zip(("energy_j", "energy_low_j", "energy_high_j"), joules or (None,) * 3, strict=True)),
                "energy_reason": training.energy_reason,
                "measured_ns": previous.call_ns if previous else None,
                "measured_j": previous.energy_j if previous else None,
            }
        )  # fmt: skip
    if training.energy_reason:
        lines.append(f"energy: {NONE}: {training.energy_reason}")
    if beyond := sum(map(bool, outside)):
        lines.append(f"{beyond} of {len(wanted)} are outside of what was measured: there a range says little")
    return Report(lines, {"level": LEVEL, "predictions": predictions})


def _targets(training: Training) -> Iterator[tuple[str, Samples | None]]:
    yield "time", training.time()
    yield "energy", training.energy()


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


def _values(ranged: Ranged | None, index: int) -> tuple[float, float, float] | None:
    """Return (predicted, low, high) of one configuration."""
    if ranged is None:
        return None
    return float(np.exp(ranged.log[index])), float(np.exp(ranged.low[index])), float(np.exp(ranged.high[index]))


def _cells(values: tuple[float, float, float] | None, unit: Any) -> str:
    if values is None:
        return f"{NONE:>10}  {NONE:>22}"
    value, low, high = map(unit, values)
    return f"{value:>10}  {f'{low} to {high}':>22}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
