"""cost = sum over the steps of (cost of a unit * amount), which never falls with more work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
        leader: the device with the most rows; "" where there is one device.
        factors: by device, the cost by that of the leader.

    Where several devices are fitted together, ways and operators are named with their device: an operation
    takes another time on each. A device with too few rows of a way takes as long as the leader, times its factor.
    """

    ways: Mapping[str, Units]
    operators: Mapping[str, Units]
    common: Units
    least: float
    leader: str = ""
    factors: Mapping[str, float] = field(default_factory=dict)

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

        ways = each(lambda row: _way(row, row.device), lambda row: row.steps.amounts)
        operators = each(lambda row: _operator(row, row.device), lambda row: row.steps.general)
        devices = [row.device for row in rows]
        leader = max(dict.fromkeys(devices), key=devices.count)
        its = [index for index, device in enumerate(devices) if device == leader]
        common = _units([rows[index].steps.general for index in its], cost[its])
        alone = cls(ways, operators, common, SHORTEST * float(cost.min()), leader)
        by_leader = np.log([alone._by_leader(row) for row in rows])
        factors = {
            device: float(np.exp(np.median((log - by_leader)[[other == device for other in devices]])))
            for device in dict.fromkeys(devices)
            if device != leader
        }
        return replace(alone, factors=factors)

    def predict(self, rows: Sequence[Described]) -> Reals:
        """Return f8[n], natural logarithms of the cost."""
        return np.log([max(self.least, self._sum(row)) for row in rows])

    @property
    def each(self) -> dict[str, Units]:
        """Units by way or operator."""
        return {**self.operators, **self.ways}

    def _sum(self, row: Described) -> float:
        if (units := self.ways.get(_way(row, row.device))) is not None:
            return _cost(units, row.steps.amounts)
        # The way of another device is nearer than operations and bytes of its own.
        units = self.operators.get(_operator(row, row.device))
        if units is not None and (row.device == self.leader or _way(row, self.leader) not in self.ways):
            return _cost(units, row.steps.general)
        return self._by_leader(row) * self.factors.get(row.device, 1.0)

    def _by_leader(self, row: Described) -> float:
        """Return the cost on the leader."""
        if (units := self.ways.get(_way(row, self.leader))) is not None:
            cost = _cost(units, row.steps.amounts)
        else:
            cost = _cost(self.operators.get(_operator(row, self.leader), self.common), row.steps.general)
        return max(self.least, cost)


def _way(row: Described, device: str) -> str:
    return f"{device}: {row.steps.way}" if device else row.steps.way


def _operator(row: Described, device: str) -> str:
    return f"{device}: {row.op}" if device else row.op


def _cost(units: Units, amounts: Amounts) -> float:
    return sum(units[step] * amount for step, amount in amounts.items())


def _units(amounts: Sequence[Amounts], cost: Reals) -> Units:
    names = list(amounts[0])
    relative = np.array([[row[name] for name in names] for row in amounts]) / cost[:, None]
    scale = relative.max(0)
    scale[scale == 0] = 1.0  # no row has that step
    line = LinearRegression(fit_intercept=False, positive=True).fit(relative / scale, np.ones(len(cost)))
    return dict(zip(names, (line.coef_ / scale).tolist(), strict=True))
