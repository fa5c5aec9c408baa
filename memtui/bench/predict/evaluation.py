"""Evaluation of the model and of baselines: on shapes and on operators that they were not fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.bench.predict.baselines import fit_log_linear, fit_nearest
from memtui.bench.predict.estimator import LEAST_GROUPS, LEAST_ROWS, Fit, Reals, Samples
from memtui.bench.predict.features import Space
from memtui.bench.predict.ranges import Ranged, calibrated, folds
from memtui.bench.predict.trees import StepsAndTrees, Trees

MODEL, POWER_MODEL = "steps and trees", "trees"
_BASELINES: Mapping[str, Fit] = {"log-linear": fit_log_linear, "nearest": fit_nearest}
FITS: Mapping[str, Fit] = {MODEL: StepsAndTrees, **_BASELINES}
POWER_FITS: Mapping[str, Fit] = {POWER_MODEL: Trees, **_BASELINES}  # watts do not grow with work
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """Predictions of n rows by models that were not fitted to them.

    Attributes:
        by: predictions by the name of the model.
        outside: b[n]: whether a feature of the row lies outside of the rows its model was fitted to.
    """

    by: Mapping[str, Ranged]
    outside: Mask


@dataclass(frozen=True)
class Score:
    """Errors of predictions.

    Attributes:
        rows: number of predictions.
        mape: mean absolute percentage error, as a fraction of the true cost.
        median_ape: median absolute percentage error.
        p90_ape: the 90 % quantile of the absolute percentage error.
        coverage: share of true costs that lie in the range.
        range_ratio: the upper end of a range by its lower end; median.
    """

    rows: int
    mape: float
    median_ape: float
    p90_ape: float
    coverage: float
    range_ratio: float


def score(predicted: Ranged, log: Reals, chosen: Mask | None = None) -> Score | None:
    """Score the chosen rows, b[n]; None without a chosen row. ``log``: f8[n], natural logarithms of the true costs."""
    chosen = np.ones(len(log), bool) if chosen is None else chosen
    if not chosen.any():
        return None
    error = np.abs(np.expm1(predicted.log - log))[chosen]
    inside = ((predicted.low <= log) & (log <= predicted.high))[chosen]
    return Score(
        rows=int(chosen.sum()),
        mape=float(error.mean()),
        median_ape=float(np.median(error)),
        p90_ape=float(np.quantile(error, 0.9)),
        coverage=float(inside.mean()),
        range_ratio=float(np.exp(np.median((predicted.high - predicted.low)[chosen]))),
    )


@dataclass(frozen=True)
class Section:
    """Scores of all models on the same rows.

    Attributes:
        kind: ``shapes``: cross-validation over shapes; ``unflagged`` and ``outside``: such rows of the validation;
            ``of device``: those of one of several devices; ``of operator``: its rows of one operator; ``left out``: an
            operator, predicted from the others.
        op: the operator, or device, of the last three kinds.
        scores: by model; empty with a reason.
        reason: why there are no scores.
    """

    kind: str
    op: str
    scores: Mapping[str, Score]
    reason: str = ""

    @property
    def title(self) -> str:
        return {
            "shapes": "shapes that were not fitted to",
            "unflagged": "of these, rows without a flag",
            "outside": "of these, outside of what was fitted to",
            "of device": f"of these, on {self.op}",
            "of operator": f"of these, {self.op}",
            "left out": f"{self.op} from the other operators",
        }[self.kind]


def sections(samples: Samples, fits: Mapping[str, Fit] = FITS, answers: Answers | None = None) -> list[Section]:
    """Return all sections of an evaluation of some models. ``answers``: those of ``across_shapes``, if it was run."""
    answers = answers or across_shapes(samples, fits)
    ops = np.array([row.op for row in samples.rows])
    every = [str(op) for op in dict.fromkeys(ops)]
    result = [_section("shapes", answers, samples)]
    if samples.flagged.any():
        result.append(_section("unflagged", answers, samples, ~samples.flagged))
    if answers.outside.any():
        result.append(_section("outside", answers, samples, answers.outside))
    devices = np.array([row.device for row in samples.rows])
    if len(names := [str(name) for name in dict.fromkeys(devices)]) > 1:
        result += [_section("of device", answers, samples, devices == name, name) for name in names]
    if len(every) == 1:
        return result
    result += [_section("of operator", answers, samples, ops == op, op) for op in every]
    for op in every:
        others, own = without(op, samples)
        if len(others.rows) < LEAST_ROWS or len(set(others.groups)) < LEAST_GROUPS:
            reason = f"the others have {len(others.rows)} rows of {len(set(others.groups))} shapes"
            result.append(Section("left out", op, {}, f"{reason}; it takes {LEAST_ROWS} of {LEAST_GROUPS}"))
        else:
            result.append(_section("left out", across_operators(op, samples, fits), own, op=op))
    return result


def _section(kind: str, answers: Answers, samples: Samples, chosen: Mask | None = None, op: str = "") -> Section:
    scores = {name: score(ranged, samples.log, chosen) for name, ranged in answers.by.items()}
    scored = {name: value for name, value in scores.items() if value is not None}
    return Section(kind, op, scored, "" if scored else "there are no such rows")


def across_shapes(samples: Samples, fits: Mapping[str, Fit] = FITS) -> Answers:
    """Run a grouped cross-validation. Each fold is predicted from the others, which also calibrate the ranges.

    Args:
        samples: at least three groups.
        fits: the models, by name.
    """
    predictions = {name: _empty(len(samples.rows)) for name in fits}
    outside = np.zeros(len(samples.rows), bool)
    for others, fold in folds(samples.groups):
        answers = _predicted(samples.take(others), samples.take(fold), fits)
        outside[fold] = answers.outside
        for name, ranged in answers.by.items():
            predictions[name].log[fold] = ranged.log
            predictions[name].low[fold] = ranged.low
            predictions[name].high[fold] = ranged.high
    return Answers(predictions, outside)


def without(op: str, samples: Samples) -> tuple[Samples, Samples]:
    """Return (the rows of the other operators, the rows of this operator)."""
    own = np.array([row.op == op for row in samples.rows])
    return samples.take(np.flatnonzero(~own)), samples.take(np.flatnonzero(own))


def across_operators(op: str, samples: Samples, fits: Mapping[str, Fit] = FITS) -> Answers:
    """Predict the rows of one operator from those of the others, which must have at least two groups."""
    return _predicted(*without(op, samples), fits)


def _predicted(fitted: Samples, held_out: Samples, fits: Mapping[str, Fit]) -> Answers:
    space = Space.of(fitted.rows)
    outside = np.array([bool(space.outside(row)) for row in held_out.rows], bool)
    return Answers({name: calibrated(fit, fitted)(held_out.rows) for name, fit in fits.items()}, outside)


def _empty(count: int) -> Ranged:
    return Ranged(np.empty(count), np.empty(count), np.empty(count))
