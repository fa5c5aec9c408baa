"""A mixed-integer linear program, built row by row, and solved by HiGHS. No other module imports scipy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

_LARGEST = 1000.0  # the largest cost after scaling: HiGHS's tolerances are absolute
_OPTIMAL, _TIME, _INFEASIBLE = 0, 1, 2  # https://docs.scipy.org/doc/scipy/reference/generated/scipy.optimize.milp.html


class Infeasible(Exception):
    """No values satisfy all rows."""


@dataclass(frozen=True, slots=True)
class MilpResult:
    """Result of the solver.

    Attributes:
        values: values of the variables; None where the solver found no solution in time.
        bound: lower bound of the cost of any solution; None where the solver has none yet.
        finished: whether the requested gap is reached.
    """

    values: np.ndarray | None
    bound: float | None
    finished: bool


class Linear:
    """Variables between 0 and 1 (or without an upper bound), with costs, and rows that bound sums of them."""

    def __init__(self) -> None:
        self.constant = 0.0
        self._costs: list[float] = []
        self._upper: list[float] = []
        self._lower: list[float] = []
        self._whole: list[int] = []
        self._rows: list[tuple[tuple[int, ...], tuple[float, ...], float, float]] = []

    def binary(self, cost: float = 0.0) -> int:
        """Add a variable that is 0 or 1; return its number."""
        return self._add(cost, 1.0, 1)

    def part(self, cost: float = 0.0) -> int:
        """Add a variable from 0 to 1; return its number."""
        return self._add(cost, 1.0, 0)

    def amount(self, cost: float = 0.0) -> int:
        """Add a variable from 0 without an upper bound; return its number."""
        return self._add(cost, np.inf, 0)

    def _add(self, cost: float, upper: float, whole: int) -> int:
        self._costs.append(cost)
        self._lower.append(0.0)
        self._upper.append(upper)
        self._whole.append(whole)
        return len(self._costs) - 1

    def pay(self, variable: int, cost: float) -> None:
        """Add to the cost of a variable."""
        self._costs[variable] += cost

    def row(self, terms: Iterable[tuple[int, float]], low: float = -np.inf, high: float = np.inf) -> None:
        """Add the row ``low <= sum of factor * variable <= high``; a variable may come several times."""
        factors: dict[int, float] = {}
        for variable, factor in terms:
            factors[variable] = factors.get(variable, 0.0) + factor
        # A solver's tolerances are absolute: rows in bytes and in ns are scaled to the size of rows of 0/1 variables.
        largest = max(map(abs, factors.values()), default=0.0) or 1.0
        scaled = tuple(factor / largest for factor in factors.values())
        self._rows.append((tuple(factors), scaled, low / largest, high / largest))

    def solve(self, time_limit_s: float, gap: float) -> MilpResult:
        """Minimise the cost.

        Args:
            time_limit_s: time after which the best solution so far is returned.
            gap: sufficient (cost - bound) / cost.

        Raises:
            Infeasible: there is no solution.
        """
        if not self._costs:
            return MilpResult(np.zeros(0), self.constant, True)
        # The solver's gap is relative to a cost without the constant: scaling keeps the absolute tolerance small.
        scale = _LARGEST / (max(map(abs, self._costs)) or 1.0)
        options: dict[str, Any] = {"time_limit": max(0.01, time_limit_s), "mip_rel_gap": gap}
        result = milp(
            np.asarray(self._costs) * scale,
            integrality=np.asarray(self._whole),
            bounds=Bounds(np.asarray(self._lower), np.asarray(self._upper)),
            constraints=self._constraints(),
            options=options,
        )
        if result.status == _INFEASIBLE:
            raise Infeasible
        dual = getattr(result, "mip_dual_bound", None)
        bound = None if dual is None or not np.isfinite(dual) else float(dual) / scale + self.constant
        return MilpResult(result.x, bound, result.status == _OPTIMAL)

    def _constraints(self) -> LinearConstraint | tuple[()]:
        if not self._rows:
            return ()
        starts = np.cumsum([0, *(len(variables) for variables, *_ in self._rows)])
        columns = np.concatenate([variables for variables, *_ in self._rows]).astype(np.int32)
        factors = np.concatenate([factors for _, factors, *_ in self._rows])
        matrix = csr_array((factors, columns, starts), shape=(len(self._rows), len(self._costs)))
        low, high = np.array([row[2] for row in self._rows]), np.array([row[3] for row in self._rows])
        return LinearConstraint(matrix, low, high)
