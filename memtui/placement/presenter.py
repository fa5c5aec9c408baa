"""View models of a placement profile: pure functions of the content of its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from memtui.core.errors import UserError
from memtui.core.units import duration_ns, percent, size
from memtui.placement.configurations import pair_configurations
from memtui.placement.graph import Configuration
from memtui.placement.plan import PlacementPlan
from memtui.placement.profile import SINGLE, Profile
from memtui.placement.slowdown import cells
from memtui.placement.solvers.pareto import ParetoPoint
from memtui.placement.solvers.problem import problem_of
from memtui.placement.solvers.solver import mode_of
from memtui.placement.store import ProfileFile
from memtui.placement.timing_agreement import NEITHER, WITHIN, Comparison, compare, modes_of
from memtui.widgets import text
from memtui.widgets.views.placement import (
    HERE_FAST,
    HERE_SLOW,
    NOT_HERE,
    CurvePoint,
    CurveView,
    MatrixCell,
    MatrixRow,
    MatrixView,
    ScatterPoint,
    ScatterView,
    TimelineRow,
    TimelineView,
)

EMULATED, EMULATED_SHORT = "EMULATED: checks the solver, no machine", "EMULATED"


@dataclass(frozen=True)
class Loaded:
    """The content of a profile's file at the time it was read."""

    profile: Profile
    plans: Sequence[PlacementPlan]
    curves: dict[tuple[str, str, str], list[ParetoPoint]]

    @classmethod
    def of(cls, file: ProfileFile) -> Loaded:
        """Raise UserError."""
        return cls(file.profile(), file.plans(), file.curves())

    @cached_property
    def slow_pools(self) -> list[str]:
        return [pool.name for pool in self.profile.pools[1:]]

    @cached_property
    def modes(self) -> list[str]:
        return modes_of(self.profile)

    @cached_property
    def configurations(self) -> int:
        """Number of configurations to measure in each way of timing."""
        return len(pair_configurations(self.profile.graph, [pool.name for pool in self.profile.pools]))

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Ways of timing that can be compared: (mode, reference)."""
        reference = SINGLE if SINGLE in self.modes else self.modes[0] if self.modes else ""
        return [(mode, reference) for mode in reversed(self.modes) if mode != reference]


def head(loaded: Loaded, cells: int) -> str:
    """Return a line of at most this many cells about what was measured. Every wording says which pools are emulated."""
    profile = loaded.profile
    model, ops = profile.graph.name, f"{len(profile.graph.ops)} ops"
    pools = [
        ", ".join(f"{pool.name} ({remark})" if pool.emulated else pool.name for pool in profile.pools)
        for remark in (EMULATED, EMULATED_SHORT)
    ]
    pools.append(f"{len(profile.pools)} pools" + (f" ({EMULATED_SHORT})" if profile.emulated else ""))
    lines = [(model, f"{ops}   {each}") for each in pools]
    lines.append((model.rpartition("/")[2], lines[-1][1]))
    chosen = next((line for line in lines if sum(map(text.width, line)) + 2 <= cells), lines[-1])
    room = max(1, min(text.width(chosen[0]), cells - text.width(chosen[1]) - 2))
    return f"{text.fit(chosen[0], room)}: {chosen[1]}"


def unfinished(loaded: Loaded) -> str:
    """Return how many of the configurations are measured, where some are missing; empty otherwise."""
    of = loaded.configurations
    counts = {mode: sum(s.mode == mode for s in loaded.profile.samples) for mode in loaded.modes or ["measured"]}
    if all(count >= of for count in counts.values()):
        return ""
    return "unfinished: " + ", ".join(f"{mode} {count} of {of}" for mode, count in counts.items()) + " configurations"


def matrix(loaded: Loaded, slow: str, mode: str) -> MatrixView:
    """Return every op in every configuration."""
    rows = []
    for op in loaded.profile.graph.ops:
        op_cells = cells(loaded.profile, op, slow, mode)
        rows.append(
            MatrixRow(op.name, op.kind, tuple(MatrixCell(str(c.configuration), c.time_ns, c.ratio) for c in op_cells))
        )
    every = [cell for row in rows for cell in row.cells]
    measured = sum(cell.time_ns is not None for cell in every)
    return MatrixView(tuple(rows), mode, slow, measured, len(every))


def times(loaded: Loaded, op: str, configuration: Configuration) -> list[tuple[str, int, float]]:
    """Return (mode, run, nanoseconds) of every sample."""
    samples = (loaded.profile.times.get((op, configuration, mode)) for mode in loaded.modes)
    return [(s.mode, run, ns) for s in samples if s is not None for run, ns in zip(s.run, s.time_ns, strict=True)]


def scatter(loaded: Loaded, number: int) -> ScatterView:
    """Return a comparison of two ways of timing, the slowest op last."""
    if not loaded.pairs:
        only = f"only {loaded.modes[0]} times are" if loaded.modes else "no times are"
        note = f"{only} in this profile: profile with another --mode, too, to compare them"
        return ScatterView("", "", (), (), note)
    up, across = loaded.pairs[number % len(loaded.pairs)]
    comparison = compare(loaded.profile, up, across)
    points = sorted(comparison.pairs, key=lambda pair: pair.second_ns)
    return ScatterView(
        across,
        up,
        tuple(ScatterPoint(f"{p.op} {p.configuration}", p.second_ns, p.first_ns, p.judged, p.outlier) for p in points),
        verdict(comparison),
    )


def verdict(comparison: Comparison) -> tuple[str, ...]:
    """Return the verdict in a line, the longest wording first."""
    near, correlation = comparison.within(WITHIN), comparison.correlation
    if near is None:
        return (f"{comparison.verdict}: no time is above the noise floor",)
    word = "neither times nor their order agree" if comparison.verdict == NEITHER else comparison.verdict
    sentence = f"{word} · {percent(near)} within {100 * WITHIN:.0f} %"
    if correlation is None:
        return (sentence,)
    return f"{sentence} · logarithms correlate by {correlation:.3f}", f"{sentence} · log r {correlation:.3f}", sentence


def timeline(loaded: Loaded, number: int) -> TimelineView:
    """Return one of the stored plans as a timeline."""
    if not loaded.plans:
        note = "no plan is kept in this profile yet: memtui place solve FILE --ratio 1:1 finds one"
        return TimelineView("", (), (), (), (), 0, note)
    plan = loaded.plans[number % len(loaded.plans)]
    try:
        problem = problem_of(loaded.profile, plan.slow, plan.mode, plan.limit_bytes)
    except UserError as error:
        return TimelineView("", (), (), (), (), 0, f"the plan is not of this profile: {error}")
    fast_bytes = list(problem.fixed_bytes)
    rows = []
    for item in problem.items:
        row = _timeline_row(plan, item.name, item.size_bytes, len(problem.ops))
        for op, where in enumerate(row.where):
            arriving = any(move_op == op and into and meanwhile for move_op, into, meanwhile in row.moves)
            fast_bytes[op] += item.size_bytes if where == HERE_FAST or arriving else 0
        rows.append(row)
    title = f"{plan.formulation}, {size(plan.limit_bytes)} in {plan.fast}, {plan.mode} times"
    more = _more(problem.all_fast_ns, plan)
    sentences = [
        [f"{duration_ns(plan.predicted_ns)} predicted{against}"]
        for against in (f"{more} against all in {plan.fast}" if more else "", more)
    ]
    if plan.gap is not None:
        sentences[0].append(f"at most {percent(plan.gap)} from the optimum")
        sentences[1].append(f"gap {percent(plan.gap)}")
    if plan.moves:
        for each in sentences:
            each.append(f"{len(plan.moves)} moves, ops wait {duration_ns(plan.move_ns)}")
    names = tuple(op.name for op in problem.ops)
    return TimelineView(
        title, tuple(" · ".join(each) for each in sentences), names, tuple(rows), tuple(fast_bytes), plan.limit_bytes
    )


def _timeline_row(plan: PlacementPlan, storage: str, size_bytes: int, ops: int) -> TimelineRow:
    where = [NOT_HERE] * ops
    for span in plan.spans:
        if span.storage == storage:
            for op in range(span.first, min(span.last, ops - 1) + 1):
                where[op] = HERE_FAST if span.pool == plan.fast else HERE_SLOW
    moves = tuple(
        (move.op, move.target == plan.fast, move.overlapped) for move in plan.moves if move.storage == storage
    )
    return TimelineRow(storage, size_bytes, "".join(where), moves)


def _more(all_fast_ns: float | None, plan: PlacementPlan) -> str:
    return f", {100 * (plan.predicted_ns / all_fast_ns - 1):+.1f} %" if all_fast_ns else ""


def curve(loaded: Loaded, number: int) -> CurveView:
    """Return one of the stored curves."""
    if not loaded.curves:
        return CurveView(
            "", (), None, "no curve is kept in this profile yet: memtui place solve FILE --pareto makes one"
        )
    key = [*loaded.curves][number % len(loaded.curves)]
    formulation, slow, mode = key
    points = tuple(CurvePoint(p.limit_bytes, p.predicted_ns, p.gap, p.first_touch_ns) for p in loaded.curves[key])
    try:
        all_fast_ns = problem_of(loaded.profile, slow, mode, 0).all_fast_ns
    except UserError:
        all_fast_ns = None
    return CurveView(f"{formulation}, {slow}, {mode} times", points, all_fast_ns)


def first_mode(loaded: Loaded) -> str:
    """Return the way of timing that is shown first: the one that plans are based on."""
    for slow in loaded.slow_pools:
        try:
            return mode_of(loaded.profile, slow)
        except UserError:
            continue
    return loaded.modes[0] if loaded.modes else SINGLE
