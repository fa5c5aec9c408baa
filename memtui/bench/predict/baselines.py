"""Baseline models: a line through work and bytes, and the most similar configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.bench.predict.estimator import Guess, Model, Reals
from memtui.bench.predict.features import BYTES, FLOPS, Described, Space

OWN_LINE = 10  # least number of configurations for an operator's own line


@dataclass(frozen=True)
class LogLinear:
    """cost = constant * flops^a * bytes^b: a roofline without the corner.

    Attributes:
        lines: by operator, f8[3]: a, b, and the natural logarithm of the constant with work and bytes as base-2
            logarithms.
        common: f8[3], the line for other operators.
    """

    lines: Mapping[str, Reals]
    common: Reals

    @classmethod
    def fitted(cls, rows: Sequence[Described], log: Reals) -> LogLinear:
        """Fit by least squares; an operator with fewer than ``OWN_LINE`` rows shares the line of all."""
        work, ops = _work(rows), np.array([row.op for row in rows])
        lines = {str(op): _line(work[ops == op], log[ops == op]) for op in set(ops) if (ops == op).sum() >= OWN_LINE}
        return cls(lines, _line(work, log))

    def predict(self, rows: Sequence[Described]) -> Reals:
        """Return f8[n], natural logarithms of the cost."""
        lines = np.array([self.lines.get(row.op, self.common) for row in rows]).reshape(-1, 3)
        return np.asarray((_work(rows) * lines).sum(1), np.float64)


def fit_log_linear(rows: Sequence[Described], log: Reals) -> Model:
    """Fit ``LogLinear``."""
    line = LogLinear.fitted(rows, log)
    return lambda queries: Guess(line.predict(queries), np.ones(len(queries)))


def fit_nearest(rows: Sequence[Described], log: Reals) -> Model:
    """Fit the nearest neighbour: the cost of the most similar configuration, of the same operator if possible.

    The distance is Euclidean, over features scaled to variance 1.
    """
    space, ops = Space.of(rows), np.array([row.op for row in rows])
    points = space.matrix(rows)
    scale = points.std(0)
    scale[scale < 1e-9] = 1.0

    def model(queries: Sequence[Described]) -> Guess:
        nearest = np.empty(len(queries), np.int64)
        for index, (row, point) in enumerate(zip(queries, space.matrix(queries), strict=True)):
            candidates = _candidates(ops, row.op)
            distance = (((points[candidates] - point) / scale) ** 2).sum(1)
            nearest[index] = candidates[int(np.argmin(distance))]
        return Guess(log[nearest], np.ones(len(queries)))

    return model


def _candidates(ops: NDArray[np.str_], op: str) -> NDArray[np.int64]:
    same = np.flatnonzero(ops == op)
    return same if len(same) else np.arange(len(ops))


def _work(rows: Sequence[Described]) -> Reals:
    """Return f8[n, 3]: work, bytes, and 1."""
    return np.array([[row.features[FLOPS], row.features[BYTES], 1.0] for row in rows]).reshape(-1, 3)


def _line(work: Reals, log: Reals) -> Reals:
    """Return f8[3]. Where work and bytes are proportional, as for relu, both get the same share."""
    return np.asarray(np.linalg.lstsq(work, log, rcond=None)[0], np.float64)
