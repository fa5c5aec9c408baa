"""cost = what a unit of each step takes * how much there is of it, summed: never less for more work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LinearRegression

from memtui.bench.predict.estimator import Reals
from memtui.bench.predict.features import Described
from memtui.bench.predict.steps import Amounts

ROWS_BY_STEP = 2  # it takes so many to fit a way's
SHORTEST = 0.1  # of the least cost that was measured: what an unlike configuration is not predicted to stay below

Units = Mapping[str, float]  # what one of each step takes


@dataclass(frozen=True)
class SumOfSteps:
    """What the steps take.

    Attributes:
        ways: by way, as far as there are rows enough.
        operators: by operator, for its other rows: those of calls, operations and bytes.
        common: the same, for other operators.
        least: no prediction is below.
    """

    ways: Mapping[str, Units]
    operators: Mapping[str, Units]
    common: Units
    least: float

    @classmethod
    def fitted(cls, rows: Sequence[Described], log: Reals) -> SumOfSteps:
        """Fit by least squares of relative errors, without a negative unit (Lawson and Hanson 1974).

        Args:
            rows: n of them.
            log: f8[n], natural logarithms of what they cost.
        """
        cost = np.exp(log)

        def each(name: Callable[[Described], str], amounts: Callable[[Described], Amounts]) -> dict[str, Units]:
            names = np.array([name(row) for row in rows])
            found = {}
            for one in dict.fromkeys(names.tolist()):
                of_it = [amounts(row) for row in rows if name(row) == one]
                if len(of_it) >= ROWS_BY_STEP * len(of_it[0]):
                    found[one] = _units(of_it, cost[names == one])
            return found

        ways = each(lambda row: row.steps.way, lambda row: row.steps.amounts)
        operators = each(lambda row: row.op, lambda row: row.steps.general)
        common = _units([row.steps.general for row in rows], cost)
        return cls(ways, operators, common, SHORTEST * float(cost.min()))

    def at(self, rows: Sequence[Described]) -> Reals:
        """Return f8[n], natural logarithms of the cost."""
        return np.log([max(self.least, self._sum(row)) for row in rows])

    @property
    def each(self) -> dict[str, Units]:
        """By way or operator, those that rows were predicted by."""
        return {**self.operators, **self.ways}

    def _sum(self, row: Described) -> float:
        units, amounts = self.ways.get(row.steps.way), row.steps.amounts
        if units is None:
            units, amounts = self.operators.get(row.op, self.common), row.steps.general
        return sum(units[step] * amount for step, amount in amounts.items())


def _units(amounts: Sequence[Amounts], cost: Reals) -> Units:
    names = list(amounts[0])
    relative = np.array([[row[name] for name in names] for row in amounts]) / cost[:, None]
    scale = relative.max(0)
    scale[scale == 0] = 1.0  # none of them has that step
    line = LinearRegression(fit_intercept=False, positive=True).fit(relative / scale, np.ones(len(cost)))
    return dict(zip(names, (line.coef_ / scale).tolist(), strict=True))
