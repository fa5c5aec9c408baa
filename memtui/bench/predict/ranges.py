"""The range around a prediction, as wide as the model's errors on shapes that it was not fitted to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold

from memtui.bench.predict.estimator import Fit, Model, Reals, Samples
from memtui.bench.predict.features import Described

LEVEL = 0.9  # of the true costs lie in the range
FOLDS = 5
SEED = 0


@dataclass(frozen=True)
class Ranged:
    """Predictions of n configurations with their ranges: f8[n] each, natural logarithms of the cost."""

    log: Reals
    low: Reals
    high: Reals


@dataclass(frozen=True)
class Calibrated:
    """A model with calibrated ranges. Created by ``calibrated``.

    Attributes:
        model: model fitted to all rows.
        width: half of a range, by the model's own spread and ``least``.
        least: added to a spread: trees that agree by chance do not make a prediction certain.
    """

    model: Model
    width: float
    least: float

    def __call__(self, rows: Sequence[Described]) -> Ranged:
        guess = self.model(rows)
        half = self.width * (guess.spread + self.least)
        return Ranged(guess.log, guess.log - half, guess.log + half)


def calibrated(fit: Fit, samples: Samples) -> Calibrated:
    """Fit a model to all samples, and its ranges to its errors on folds it was not fitted to.

    This is cross-conformal prediction (Vovk 2015) with errors by the spread of the model (Lei and others 2018, section
    5.2): the half width is the quantile of |error| / (spread + least) that covers one more row with ``LEVEL``. The
    coverage holds only for configurations drawn from the same distribution as the measured ones.

    Args:
        fit: fits the model.
        samples: samples of at least two groups.
    """
    log, spread = np.empty(len(samples.rows)), np.empty(len(samples.rows))
    for others, fold in folds(samples.groups):
        part = samples.take(others)
        guess = fit(part.rows, part.log)(samples.take(fold).rows)
        log[fold], spread[fold] = guess.log, guess.spread
    least = max(float(np.median(spread)), 1e-12)
    errors = np.abs(log - samples.log) / (spread + least)
    return Calibrated(fit(samples.rows, samples.log), upper_quantile(errors, LEVEL), least)


def upper_quantile(values: Reals, level: float) -> float:
    """Return the bound that one more value does not exceed with probability ``level``.

    Return the greatest value if there are too few.
    """
    rank = math.ceil((len(values) + 1) * level)
    return float(np.sort(values)[min(rank, len(values)) - 1])


def folds(groups: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (indices of the others, indices of the fold), i8 each; no group is in both. At most one fold a group."""
    count = min(FOLDS, len(set(groups)))
    split = GroupKFold(count, shuffle=True, random_state=SEED).split(np.zeros((len(groups), 1)), groups=groups)
    for others, fold in split:
        yield np.asarray(others, np.int64), np.asarray(fold, np.int64)
