"""cost = sum over the steps of (cost of a unit * amount), which never falls with more work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LinearRegression

from memtui.bench.predict.estimator import Reals
from memtui.bench.predict.features import Described
from memtui.bench.predict.steps import Amounts

ROWS_BY_STEP = 2  # rows for each step that are needed to fit a way
SHORTEST = 0.1  # of the least measured cost: a lower bound on predictions for dissimilar configurations

Units = Mapping[str, float]  # cost of one unit of each step


@dataclass(frozen=True)
class SumOfSteps:
    """Costs of the steps.

    Attributes:
        ways: units by way, for ways with enough rows.
        operators: units by operator, for its other rows: of calls, operations and bytes.
        common: units for other operators.
        least: lower bound on predictions.
    """

    ways: Mapping[str, Units]
    operators: Mapping[str, Units]
    common: Units
    least: float

    @classmethod
    def fitted(cls, rows: Sequence[Described], log: Reals) -> SumOfSteps:
        """Fit by least squares of relative errors, without a negative unit (Lawson and Hanson 1974).

        Args:
            rows: n measured configurations.
            log: f8[n], natural logarithms of their costs.
        """
        cost = np.exp(log)

        def each(name: Callable[[Described], str], amounts: Callable[[Described], Amounts]) -> dict[str, Units]:
            names = np.array([name(row) for row in rows])
            fits = {}
            for chosen in dict.fromkeys(names.tolist()):
                chosen_amounts = [amounts(row) for row in rows if name(row) == chosen]
                if len(chosen_amounts) >= ROWS_BY_STEP * len(chosen_amounts[0]):
                    fits[chosen] = _units(chosen_amounts, cost[names == chosen])
            return fits

        ways = each(lambda row: row.steps.way, lambda row: row.steps.amounts)
        operators = each(lambda row: row.op, lambda row: row.steps.general)
        common = _units([row.steps.general for row in rows], cost)
        return cls(ways, operators, common, SHORTEST * float(cost.min()))

    def predict(self, rows: Sequence[Described]) -> Reals:
        """Return f8[n], natural logarithms of the cost."""
        return np.log([max(self.least, self._sum(row)) for row in rows])

    @property
    def each(self) -> dict[str, Units]:
        """Units by way or operator."""
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
    scale[scale == 0] = 1.0  # no row has that step
    line = LinearRegression(fit_intercept=False, positive=True).fit(relative / scale, np.ones(len(cost)))
    return dict(zip(names, (line.coef_ / scale).tolist(), strict=True))
