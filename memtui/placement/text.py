"""Comparisons, plans and curves as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memtui.core.units import duration_ns, percent, size, span
from memtui.placement.plan import ASYNC, BASELINE, OPTIMAL, Move, PlacementPlan
from memtui.placement.profile import Profile
from memtui.placement.slowdown import Effect
from memtui.placement.solvers.pareto import ParetoPoint
from memtui.placement.solvers.problem import PAGE_BYTES
from memtui.placement.timing_agreement import (
    CONSISTENT,
    CORRELATED,
    ENOUGH,
    NEITHER,
    NOTHING,
    RANKING,
    WITHIN,
    Comparison,
)

MOST_ROWS = 20  # of a list; JSON has all of them
BAR = 30
COLUMNS = 100  # that sentences are wrapped to
PLOT_WIDTH, PLOT_HEIGHT = 56, 12
PLAN, TOUCH, BOTH, ALL_FAST = "o", "x", "#", "."
EMULATED = "emulated: fast memory with waits in it, so these figures check the solver and tell nothing of a machine"


def head_lines(profile: Profile) -> Iterator[str]:
    """Yield what was measured, and a note for each pool that is emulated or has a remark."""
    pools = ", ".join(pool.name for pool in profile.pools)
    yield f"{profile.graph.name}: {len(profile.graph.ops)} ops, pools {pools}"
    for pool in profile.pools:
        if pool.emulated:
            yield f"{pool.name} is {EMULATED}"
        if pool.note:
            yield f"{pool.name}: {pool.note}"


def verdict(comparison: Comparison) -> str:
    """Return the verdict in a sentence with its figures."""
    near, correlation = comparison.within(WITHIN), comparison.correlation
    if near is None:
        return f"{NOTHING}: no time is above the noise floor"
    share = f"{percent(near)} of the times are within {_share(WITHIN)} of each other"
    order = (
        "their order cannot be judged" if correlation is None else f"their logarithms correlate by {correlation:.3f}"
    )
    return {
        CONSISTENT: f"{CONSISTENT}: {share} ({_share(ENOUGH)} is enough); {order}",
        RANKING: f"{RANKING}: {share} ({_share(ENOUGH)} would be consistent), but {order} ({CORRELATED} is enough)",
        NEITHER: f"{NEITHER} times nor their order can be relied upon: {share}, and {order} ({CORRELATED} would do)",
    }[comparison.verdict]


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Return all lines about two ways of timing."""
    below = len(comparison.pairs) - len(comparison.judged)
    pairs = f"{len(comparison.judged)} of {len(comparison.pairs)} pairs judged"
    floor = f", {below} below the noise floor of {duration_ns(comparison.floor_ns)}, ten steps of the clock"
    yield f"{comparison.first} against {comparison.second}: {pairs}{floor if below else ''}"
    if comparison.unmatched:
        yield f"  {comparison.unmatched} pairs were timed in one of the two ways only"
    yield from textwrap.wrap(verdict(comparison), COLUMNS, initial_indent="  ", subsequent_indent="  ")
    if not comparison.ratios:
        return
    names = ("least", "quartile", "median", "quartile", "most")
    yield "  ratio    " + "   ".join(f"{name} {value:.2f}" for name, value in zip(names, comparison.five, strict=True))
    near = (f"{_share(part)}: {_share(comparison.within(part) or 0)}" for part in (0.1, 0.2, 0.5))
    yield f"  within   {'   '.join(near)}"
    for which, mode in (("first", comparison.first), ("second", comparison.second)):
        spread = comparison.spread(which)
        if spread is None:
            yield f"  spread   {mode}: one sample each"
        else:
            small = f"{_share(spread[1])} of pairs below {_share(WITHIN)}"
            judged = "small" if spread[1] >= ENOUGH else "not small"
            yield f"  spread   {mode}: median {percent(spread[0])}, {small}: {judged}"
    outliers = comparison.outliers
    if outliers:
        yield ""
        modes = f"{comparison.first:>12}  {comparison.second:>12}"
        yield f"  {'ratio':>7}  {modes}  far from the others: {_shown(len(outliers))}"
        for pair in outliers[:MOST_ROWS]:
            times = f"{duration_ns(pair.first_ns):>12}  {duration_ns(pair.second_ns):>12}"
            yield f"  {pair.ratio or 0:>7.2f}  {times}  {pair.op} {pair.configuration}"


def effect_lines(effects: Mapping[str, Effect], fast: str, slow: str, mode: str) -> Iterator[str]:
    """Yield how much slower ops are with one tensor in slow memory."""
    if effects:
        yield f"with one tensor in {slow} and all else in {fast} ({mode}), an op takes"
    for which, effect in effects.items():
        slowdown = f"median {effect.median:.2f}, worst {effect.worst:.2f} times as long"
        yield f"  {which:7} {slowdown} ({effect.ops} measured)"


@dataclass(frozen=True, slots=True)
class Baselines:
    """Figures that a plan is compared with.

    Attributes:
        all_fast_ns: time with everything in fast memory, whatever the limit; None where that was not measured.
        first_touch_ns: time of first touch; None where it breaks the limit, or was not measured.
        peak_bytes: the most bytes alive at once, in whole pages.
        sizes: bytes of each storage that may be placed.
    """

    all_fast_ns: float | None
    first_touch_ns: float | None
    peak_bytes: int
    sizes: Mapping[str, int]


def plan_lines(plan: PlacementPlan, against: Baselines) -> Iterator[str]:
    """Yield a plan: its cost, the storages in slow memory, and the moves."""
    limit = f"at most {_exactly(plan.limit_bytes)} in {plan.fast}"
    yield f"{plan.formulation}, {limit} of {size(against.peak_bytes)} alive, in pages of {size(PAGE_BYTES)}"
    yield ""
    yield from _bars(plan, against)
    yield ""
    yield f"  {_quality(plan)}; {plan.mode} times"
    yield f"  {plan.fast} holds {size(plan.fast_peak_bytes)} at most, {plan.slow} {size(plan.slow_peak_bytes)}"
    if plan.address_bytes is not None and plan.address_bytes > plan.limit_bytes:
        over = size(plan.address_bytes - plan.limit_bytes)
        yield f"  laid out in memory it has holes and takes {size(plan.address_bytes)}, {over} above the limit"
    yield ""
    yield from _slow(plan, against)
    yield from _moves(plan)


def _bars(plan: PlacementPlan, against: Baselines) -> Iterator[str]:
    """Yield the times as bars; the longest time has a full bar."""
    name = "first touch" if plan.status == BASELINE else f"{plan.formulation} plan"
    rows: list[tuple[str, float | None]] = [(f"all in {plan.fast}", against.all_fast_ns), (name, plan.predicted_ns)]
    if plan.status != BASELINE:
        rows.append(("first touch", against.first_touch_ns))
    longest = max(ns for _, ns in rows if ns is not None) or 1.0
    width = max(len(label) for label, _ in rows)
    for label, ns in rows:
        if ns is None:
            yield f"  {label:{width}}  n/a: was not measured, or breaks the limit"
            continue
        base = against.all_fast_ns
        more = "" if not base or ns == base else f"  {'+' if ns > base else ''}{percent(ns / base - 1)}"
        bar = "#" * max(1, round(BAR * ns / longest))
        yield f"  {label:{width}}  {duration_ns(ns):>9}  {bar:{BAR}}{more}".rstrip()


def _quality(plan: PlacementPlan) -> str:
    if plan.status == BASELINE:
        return "a baseline: nothing was optimised"
    by = f"{plan.solver}, {span(plan.solve_s)}"
    if plan.status == OPTIMAL:
        return f"no placement of this kind is faster by more than {100 * (plan.gap or 0):.2f} % ({by})"
    if plan.gap is None:
        return f"the best that was found; how far it is from the optimum is not known ({by})"
    why = f"; {plan.why}" if plan.why else ""
    return f"the best that was found: no placement of this kind is faster by more than {percent(plan.gap)} ({by}){why}"


def _slow(plan: PlacementPlan, against: Baselines) -> Iterator[str]:
    """Yield the storages in slow memory, the largest first."""
    placed: dict[str, list[str]] = {}
    whole: dict[str, bool] = {}
    for each in plan.spans:
        whole[each.storage] = whole.get(each.storage, True) and each.pool == plan.slow
        if each.pool == plan.slow:
            placed.setdefault(each.storage, []).append(f"{each.first}-{each.last}")
    if not placed:
        yield f"nothing has to live in {plan.slow}"
        return
    total = sum(against.sizes.get(storage, 0) for storage in placed)
    every = f"{len(placed)} of {len(whole)} tensors that may be placed, {size(total)}"
    yield f"may live in {plan.slow}: {every}"
    rows = sorted(placed, key=lambda storage: (-against.sizes.get(storage, 0), storage))
    yield f"  {'size':>9}  {'ops':14}  tensor"
    for storage in rows[:MOST_ROWS]:
        when = ", ".join(placed[storage]) + (" (always)" if whole[storage] else "")
        yield f"  {size(against.sizes.get(storage)):>9}  {when:14}  {storage}"
    if len(rows) > MOST_ROWS:
        yield f"  and {len(rows) - MOST_ROWS} smaller ones (--json has all)"


def _moves(plan: PlacementPlan) -> Iterator[str]:
    if not plan.moves:
        return
    moved = size(sum(move.size_bytes for move in plan.moves))
    yield ""
    hidden = f", {sum(m.overlapped for m in plan.moves)} of them during ops" if plan.formulation == ASYNC else ""
    yield f"{len(plan.moves)} moves, {moved}{hidden}; ops wait {duration_ns(plan.move_ns)} for them"
    for move in plan.moves[:MOST_ROWS]:
        way = f"{move.source} to {move.target}, {duration_ns(move.time_ns)}"
        yield f"  {size(move.size_bytes):>9}  {_when(move):14}  {move.storage}: {way}"
    if len(plan.moves) > MOST_ROWS:
        yield f"  and {len(plan.moves) - MOST_ROWS} more (--json has all)"


def _when(move: Move) -> str:
    return f"{'during' if move.overlapped else 'before'} op {move.op}"


def curve_lines(points: Sequence[ParetoPoint], formulation: str, fast: str, all_fast_ns: float | None) -> Iterator[str]:
    """Yield the curve as a plot of characters, and its points below; a line marks the time of all in the fast pool."""
    if not points:
        return
    behind = "" if all_fast_ns is None else f", {ALL_FAST} all in {fast}"
    yield f"time of a step by fast memory: {PLAN} {formulation} plan, {TOUCH} first touch, {BOTH} both{behind}"
    times = [ns for p in points for ns in (p.predicted_ns, p.first_touch_ns, all_fast_ns) if ns is not None]
    low, high = min(times), max(times)

    def row_of(ns: float) -> int:
        return PLOT_HEIGHT - 1 - round((ns - low) / (high - low or 1) * (PLOT_HEIGHT - 1))

    cells = [[" "] * PLOT_WIDTH for _ in range(PLOT_HEIGHT)]
    if all_fast_ns is not None:
        cells[row_of(all_fast_ns)] = [ALL_FAST] * PLOT_WIDTH
    most = max(point.limit_bytes for point in points) or 1
    for point in points:
        x = round(point.limit_bytes / most * (PLOT_WIDTH - 1))
        for ns, mark in ((point.predicted_ns, PLAN), (point.first_touch_ns, TOUCH)):
            if ns is not None:
                y = row_of(ns)
                cells[y][x] = mark if cells[y][x] in (" ", ALL_FAST, mark) else BOTH
    for y, row in enumerate(cells):
        label = duration_ns(high) if not y else duration_ns(low) if y == PLOT_HEIGHT - 1 else ""
        yield f"  {label:>9} |{''.join(row)}".rstrip()
    yield f"  {'':9} +{'-' * PLOT_WIDTH}"
    yield f"  {'':9}  0{size(most):>{PLOT_WIDTH - 1}}"
    yield ""
    yield f"  {'limit':>9}  {'plan':>9}  {'gap':>6}  {'first touch':>11}"
    for point in points:
        gap = percent(point.gap)
        times_ = f"{duration_ns(point.predicted_ns):>9}  {gap:>6}  {duration_ns(point.first_touch_ns):>11}"
        yield f"  {size(point.limit_bytes):>9}  {times_}"


def _share(part: float) -> str:
    return f"{100 * part:.0f} %"


def _exactly(bytes_: int) -> str:
    return f"{size(bytes_)}" if bytes_ < 1000 else f"{size(bytes_)} ({bytes_} bytes)"


def _shown(count: int) -> str:
    return f"{count}" if count <= MOST_ROWS else f"{MOST_ROWS} of {count}"
