"""Comparisons, plans and curves as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memtui.core.units import duration_ns, percent, size, span
from memtui.placement.plan import ASYNC, BASELINE, OPTIMAL, Move, PlacementPlan
from memtui.placement.profile import Profile
from memtui.placement.slowdown import Effect
from memtui.placement.solve.pareto import ParetoPoint
from memtui.placement.solve.problem import PAGE_BYTES
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


def head(profile: Profile) -> Iterator[str]:
    """Yield what was measured, and which of its pools are not what they are called."""
    pools = ", ".join(pool.name for pool in profile.pools)
    yield f"{profile.graph.name}: {len(profile.graph.ops)} ops, pools {pools}"
    for pool in profile.pools:
        if pool.emulated:
            yield f"{pool.name} is {EMULATED}"
        if pool.note:
            yield f"{pool.name}: {pool.note}"


def verdict(found: Comparison) -> str:
    """Return the verdict in a sentence with its figures."""
    near, correlation = found.within(WITHIN), found.correlation
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
    }[found.verdict]


def comparison(found: Comparison) -> Iterator[str]:
    """Return all lines about two ways of timing."""
    below = len(found.pairs) - len(found.judged)
    yield f"{found.first} against {found.second}: {len(found.judged)} of {len(found.pairs)} pairs judged" + (
        f", {below} below the noise floor of {duration_ns(found.floor_ns)}, ten steps of the clock" if below else ""
    )
    if found.unmatched:
        yield f"  {found.unmatched} pairs were timed in one of the two ways only"
    yield from textwrap.wrap(verdict(found), COLUMNS, initial_indent="  ", subsequent_indent="  ")
    if not found.ratios:
        return
    names = ("least", "quartile", "median", "quartile", "most")
    yield "  ratio    " + "   ".join(f"{name} {value:.2f}" for name, value in zip(names, found.five, strict=True))
    yield "  within   " + "   ".join(f"{_share(part)}: {_share(found.within(part) or 0)}" for part in (0.1, 0.2, 0.5))
    for which, mode in (("first", found.first), ("second", found.second)):
        spread = found.spread(which)
        if spread is None:
            yield f"  spread   {mode}: one sample each"
        else:
            small = f"{_share(spread[1])} of pairs below {_share(WITHIN)}"
            judged = "small" if spread[1] >= ENOUGH else "not small"
            yield f"  spread   {mode}: median {percent(spread[0])}, {small}: {judged}"
    outliers = found.outliers
    if outliers:
        yield ""
        yield f"  {'ratio':>7}  {found.first:>12}  {found.second:>12}  far from the others: {_shown(len(outliers))}"
        for pair in outliers[:MOST_ROWS]:
            times = f"{duration_ns(pair.first_ns):>12}  {duration_ns(pair.second_ns):>12}"
            yield f"  {pair.ratio or 0:>7.2f}  {times}  {pair.op} {pair.configuration}"


def effects(found: Mapping[str, Effect], fast: str, slow: str, mode: str) -> Iterator[str]:
    """Yield what one tensor in slow memory does."""
    if found:
        yield f"with one tensor in {slow} and all else in {fast} ({mode}), an op takes"
    for which, effect in found.items():
        words = f"median {effect.median:.2f}, worst {effect.worst:.2f} times as long"
        yield f"  {which:7} {words} ({effect.ops} measured)"


@dataclass(frozen=True, slots=True)
class Baselines:
    """What a plan is held against.

    Attributes:
        all_fast_ns: everything in fast memory, whatever the limit; None where that was not measured.
        first_touch_ns: None where first touch breaks the limit, or was not measured.
        peak_bytes: the most that is alive at once, in whole pages.
        sizes: bytes of each storage that may be placed.
    """

    all_fast_ns: float | None
    first_touch_ns: float | None
    peak_bytes: int
    sizes: Mapping[str, int]


def plan(found: PlacementPlan, against: Baselines) -> Iterator[str]:
    """Yield a plan: what it costs, what may live in slow memory, what is moved."""
    limit = f"at most {_exactly(found.limit_bytes)} in {found.fast}"
    yield f"{found.formulation}, {limit} of {size(against.peak_bytes)} alive, in pages of {size(PAGE_BYTES)}"
    yield ""
    yield from _bars(found, against)
    yield ""
    yield f"  {_quality(found)}; {found.mode} times"
    yield f"  {found.fast} holds {size(found.fast_peak_bytes)} at most, {found.slow} {size(found.slow_peak_bytes)}"
    if found.address_bytes is not None and found.address_bytes > found.limit_bytes:
        over = size(found.address_bytes - found.limit_bytes)
        yield f"  laid out in memory it has holes and takes {size(found.address_bytes)}, {over} above the limit"
    yield ""
    yield from _slow(found, against)
    yield from _moves(found)


def _bars(found: PlacementPlan, against: Baselines) -> Iterator[str]:
    """Yield the times one below the other, the longest a whole bar."""
    name = "first touch" if found.status == BASELINE else f"{found.formulation} plan"
    rows: list[tuple[str, float | None]] = [(f"all in {found.fast}", against.all_fast_ns), (name, found.predicted_ns)]
    if found.status != BASELINE:
        rows.append(("first touch", against.first_touch_ns))
    longest = max(ns for _, ns in rows if ns is not None) or 1.0
    width = max(len(words) for words, _ in rows)
    for words, ns in rows:
        if ns is None:
            yield f"  {words:{width}}  n/a: was not measured, or breaks the limit"
            continue
        base = against.all_fast_ns
        more = "" if not base or ns == base else f"  {'+' if ns > base else ''}{percent(ns / base - 1)}"
        bar = "#" * max(1, round(BAR * ns / longest))
        yield f"  {words:{width}}  {duration_ns(ns):>9}  {bar:{BAR}}{more}".rstrip()


def _quality(found: PlacementPlan) -> str:
    if found.status == BASELINE:
        return "a baseline: nothing was optimised"
    by = f"{found.solver}, {span(found.solve_s)}"
    if found.status == OPTIMAL:
        return f"no placement of this kind is faster by more than {100 * (found.gap or 0):.2f} % ({by})"
    if found.gap is None:
        return f"the best that was found; how far it is from the optimum is not known ({by})"
    why = f"; {found.why}" if found.why else ""
    return f"the best that was found: no placement of this kind is faster by more than {percent(found.gap)} ({by}){why}"


def _slow(found: PlacementPlan, against: Baselines) -> Iterator[str]:
    """Yield what may live in slow memory, the largest first."""
    placed: dict[str, list[str]] = {}
    whole: dict[str, bool] = {}
    for each in found.spans:
        whole[each.storage] = whole.get(each.storage, True) and each.pool == found.slow
        if each.pool == found.slow:
            placed.setdefault(each.storage, []).append(f"{each.first}-{each.last}")
    if not placed:
        yield f"nothing has to live in {found.slow}"
        return
    total = sum(against.sizes.get(storage, 0) for storage in placed)
    every = f"{len(placed)} of {len(whole)} tensors that may be placed, {size(total)}"
    yield f"may live in {found.slow}: {every}"
    rows = sorted(placed, key=lambda storage: (-against.sizes.get(storage, 0), storage))
    yield f"  {'size':>9}  {'ops':14}  tensor"
    for storage in rows[:MOST_ROWS]:
        when = ", ".join(placed[storage]) + (" (always)" if whole[storage] else "")
        yield f"  {size(against.sizes.get(storage)):>9}  {when:14}  {storage}"
    if len(rows) > MOST_ROWS:
        yield f"  and {len(rows) - MOST_ROWS} smaller ones (--json has all)"


def _moves(found: PlacementPlan) -> Iterator[str]:
    if not found.moves:
        return
    moved = size(sum(move.size_bytes for move in found.moves))
    yield ""
    hidden = f", {sum(m.overlapped for m in found.moves)} of them during ops" if found.formulation == ASYNC else ""
    yield f"{len(found.moves)} moves, {moved}{hidden}; ops wait {duration_ns(found.move_ns)} for them"
    for move in found.moves[:MOST_ROWS]:
        way = f"{move.source} to {move.target}, {duration_ns(move.time_ns)}"
        yield f"  {size(move.size_bytes):>9}  {_when(move):14}  {move.storage}: {way}"
    if len(found.moves) > MOST_ROWS:
        yield f"  and {len(found.moves) - MOST_ROWS} more (--json has all)"


def _when(move: Move) -> str:
    return f"{'during' if move.overlapped else 'before'} op {move.op}"


def curve(points: Sequence[ParetoPoint], formulation: str, fast: str, all_fast_ns: float | None) -> Iterator[str]:
    """Yield the curve as a picture of characters, and its points below; all in the fast pool is a line behind them."""
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
