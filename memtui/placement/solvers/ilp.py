"""Placement as an integer linear program, after AutoTM (Hildebrand et al., ASPLOS 2020, section 4).

For every op one configuration is chosen, tied to the pools of its tensors; the bytes in fast memory stay below the
limit while each op runs. AutoTM has one flow per tensor through a graph of states; here that flow is written with a 0/1
variable for each op that accesses the tensor, and some for moves between two of these ops (``moves``). A copy out of
fast memory is paid once, until the tensor is written again; a copy into fast memory each time. An op takes as long as
the longer of the op itself and the moves that overlap it.
"""

from __future__ import annotations

from memtui.placement.plan import ASYNC, STATIC
from memtui.placement.solvers.milp import Linear, MilpResult
from memtui.placement.solvers.moves import Route, moving, staying
from memtui.placement.solvers.problem import Problem
from memtui.placement.solvers.schedule import Path


class Program:
    """The program of a problem and formulation.

    Attributes:
        problem: the problem to solve.
        overlapped: number of possible moves during ops.
    """

    def __init__(self, problem: Problem, formulation: str, nearest: int | None = None) -> None:
        """``nearest``: as in ``moves.moving``."""
        self.problem, self._formulation, self._nearest = problem, formulation, nearest
        self._linear = Linear()
        self._meanwhile: list[list[tuple[int, float]]] = [[] for _ in problem.ops]  # variables of moves, and their ns
        longest_ns = [max(op.time_ns.values()) for op in problem.ops]
        self._routes: list[Route] = []
        for item in problem.items:
            overlapped = formulation == ASYNC and item.movable_meanwhile
            if overlapped or (formulation != STATIC and item.movable):
                route = moving(self._linear, item, longest_ns if overlapped else None, nearest)
            else:
                route = staying(self._linear, item)
            for k, variable, ns in route.overlapped():
                self._meanwhile[k].append((variable, ns))
                self._linear.pay(variable, item.async_start_ns)
            self._routes.append(route)
        self.overlapped = sum(map(len, self._meanwhile))
        for k in range(len(problem.ops)):
            self._op(k)
        self._limits()

    def with_limits(self, limit_bytes: tuple[int, ...]) -> Program:
        """Return the same program with other limits."""
        return Program(self.problem.with_limits(limit_bytes), self._formulation, self._nearest)

    def solve(self, time_limit_s: float, gap: float) -> tuple[list[Path] | None, MilpResult]:
        """Return the paths (None where none were found in time) and the solver's result. Raises milp.Infeasible."""
        result = self._linear.solve(time_limit_s, gap)
        if result.values is None:
            return None, result
        values = result.values > 0.5
        return [route.path(values) for route in self._routes], result

    def _op(self, k: int) -> None:
        """Add the time of an op by the pools of its items, and the time by which its moves take longer."""
        linear, op = self._linear, self.problem.ops[k]
        where = [self._routes[i].fast[k] for i in op.items]
        times: list[tuple[int, float]] = []  # variables, and what each adds to the constant
        constant = 0.0
        if not where:
            constant = op.time_ns[()]
        elif len(where) == 1 and len(op.time_ns) == 2:
            constant = op.time_ns[False,]
            times.append((where[0], op.time_ns[True,] - constant))
        else:
            chosen = {places: linear.part() for places in op.time_ns}
            linear.row([(variable, 1) for variable in chosen.values()], low=1, high=1)
            for n, variable in enumerate(where):
                terms = [(choice, 1.0) for places, choice in chosen.items() if places[n]]
                linear.row([*terms, (variable, -1.0)], low=0, high=0)
            times += [(chosen[places], ns) for places, ns in op.time_ns.items()]
        linear.constant += constant
        for variable, ns in times:
            linear.pay(variable, ns)
        if self._meanwhile[k]:
            unit_ns = max(ns for _, ns in self._meanwhile[k])
            longer = linear.amount(unit_ns)
            terms = [(variable, -ns) for variable, ns in self._meanwhile[k]]
            linear.row([(longer, unit_ns), *times, *terms], low=-constant)

    def _limits(self) -> None:
        """Limit the bytes in fast memory while each op runs; ops with the same variables share a row."""
        problem = self.problem
        tightest: dict[tuple[tuple[int, int], ...], int] = {}
        for k, live in enumerate(problem.live):
            if problem.all_bytes[k] > problem.limit_bytes[k]:
                sizes = {i: problem.items[i].size_bytes for i in live}
                terms = tuple((each, sizes[i]) for i in live for each in self._routes[i].fast_variables(k))
                tightest[terms] = min(problem.room_bytes[k], tightest.get(terms, problem.room_bytes[k]))
        for terms, room in _not_implied(tightest):
            self._linear.row(terms, high=room)


def _not_implied(rows: dict[tuple[tuple[int, int], ...], int]) -> list[tuple[tuple[tuple[int, int], ...], int]]:
    """Return the rows without those that a longer neighbouring row with no more room implies."""
    listed = [(frozenset(terms), terms, room) for terms, room in rows.items()]
    needed = []
    for n, (terms, row, room) in enumerate(listed):
        neighbours = [listed[m] for m in (n - 1, n + 1) if 0 <= m < len(listed)]
        if not any(terms < other and more <= room for other, _, more in neighbours):
            needed.append((row, room))
    return needed
