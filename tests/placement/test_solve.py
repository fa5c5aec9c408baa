"""The solvers: cases worked out by hand, and brute force on small graphs."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.placement import profiles as training_steps
from memtui.core.errors import UserError
from memtui.placement.graph import Graph
from memtui.placement.plan import ASYNC, FIRST_TOUCH, OPTIMAL, STATIC, SYNC
from memtui.placement.profile import Pool, Profile, Samples
from memtui.placement.solvers.branch_and_bound import TooLarge, exact
from memtui.placement.solvers.first_touch import BestFit, first_touch
from memtui.placement.solvers.fragmentation import in_order, largest_first, layout_extents, pieces, tightened
from memtui.placement.solvers.limit import limit_of, parse_ratio
from memtui.placement.solvers.pareto import curve
from memtui.placement.solvers.problem import Item, Problem, check, problem_of
from memtui.placement.solvers.schedule import B, F, Path, S, after, cost, fixed_path, path_of, without_unused_copies
from memtui.placement.solvers.solver import PlanRequest, find, optimum
from tests.conftest import LONG
from tests.support.placement_cases import STATIC_CASE, SYNC_CASE
from tests.support.placements import SLOW, graph_of, profile_of, slow_pool, times_of

ASYNC_CASE = profile_of(
    graph_of(
        {
            "f1": ("x", "t1"), "f2": ("t1", "t2"), "g": ("t2", "u"), "f3": ("t2", "t3"), "b2": ("t3 u", "t4"),
            "b1": ("t1 t4", "y"),
        },
        {"t1": 4, "t2": 3, "u": 1, "t3": 2, "t4": 1},
    ),
    {"t1": 20, "t2": 10, "u": 5, "t3": 5, "t4": 5},
    dict.fromkeys(("t1", "t2", "u", "t3", "t4"), 10),
    slow_pool(0.75, 0.5, async_out_ns=1 / 0.5, async_in_ns=1 / 0.8),
)  # fmt: skip


def problem(profile: Profile, limit: int) -> Problem:
    return problem_of(profile, SLOW, "isolated", limit, 1)


def best_ns(problem_: Problem, formulation: str) -> float:
    """Return the optimum of the linear program, checked by branch and bound where that has the formulation."""
    solved = optimum(problem_, formulation, 30.0, 0.0)
    total = cost(problem_, solved.paths)
    assert total.fits(problem_)
    assert total.total_ns is not None
    assert solved.finished
    assert solved.bound_ns == pytest.approx(total.total_ns)
    if formulation != ASYNC:
        tried = exact(problem_, first_touch(problem_), moves=formulation == SYNC)
        assert tried is not None
        assert cost(problem_, tried).total_ns == pytest.approx(total.total_ns)
    return total.total_ns


def first_touch_ns(problem_: Problem) -> float:
    total = cost(problem_, first_touch(problem_))
    assert total.fits(problem_)
    assert total.total_ns is not None
    return total.total_ns


@pytest.mark.parametrize(
    ("limit", "best", "baseline"),
    [
        (0, 58, 58), (1, 58, 58), (2, 54, 54), (3, 49, 49), (4, 49, 53), (5, 45, 53), (6, 45, 49), (7, 44, 44),
        (8, 44, 44), (9, 40, 40),
    ],
)  # fmt: skip
def test_static_case(limit: int, best: float, baseline: float) -> None:
    case = problem(STATIC_CASE, limit)
    assert [len(op.time_ns) for op in case.ops] == [2, 4, 8, 2]
    assert best_ns(case, STATIC) == best
    assert first_touch_ns(case) == baseline


def test_static_case_keeps_the_two_small_ones_at_five() -> None:
    plan = find(STATIC_CASE, PlanRequest(5, page_bytes=1))
    assert {span.storage: span.pool for span in plan.spans} == {"t1": SLOW, "t2": "dram", "t3": "dram"}
    assert (plan.fast_peak_bytes, plan.slow_peak_bytes, plan.status) == (5, 4, OPTIMAL)


@pytest.mark.parametrize(("limit", "static", "sync"), [(4, 100, 72.25), (7, 65, 55), (8, 50, 50)])
def test_sync_case(limit: int, static: float, sync: float) -> None:
    case = problem(SYNC_CASE, limit)
    assert sum(len(op.time_ns) for op in case.ops) == 18
    assert best_ns(case, STATIC) == static
    assert best_ns(case, SYNC) == pytest.approx(sync)


def test_sync_case_moves_the_first_activation_out_and_back() -> None:
    plan = find(SYNC_CASE, PlanRequest(7, SYNC, page_bytes=1))
    assert first_touch_ns(problem(SYNC_CASE, 7)) == 65
    assert plan.predicted_ns == 55
    assert [(m.storage, m.source, m.target, m.op, m.time_ns) for m in plan.moves] == [
        ("t1", "dram", SLOW, 2, 3.0),
        ("t1", SLOW, "dram", 4, 2.0),
    ]
    assert [(s.pool, s.first, s.last) for s in plan.spans if s.storage == "t1"] == [
        ("dram", 0, 1),
        (SLOW, 2, 3),
        ("dram", 4, 4),
    ]
    assert plan.move_ns == 5


def with_fixed(case: Profile, fixed_ns: float, start_ns: float = 0.0) -> Profile:
    """Return the profile with a fixed time for every move, and a start time for moves during ops."""
    fixed = dict.fromkeys(("read_fixed_ns", "write_fixed_ns", "async_read_fixed_ns", "async_write_fixed_ns"), fixed_ns)
    slow = replace(case.pools[1], **fixed, async_start_ns=start_ns)
    return Profile(case.graph, (case.fast, slow), case.samples)


@pytest.mark.parametrize(("fixed_ns", "moves", "best"), [(0, 2, 55), (3, 2, 61), (4.9, 2, 64.8), (5.1, 0, 65)])
def test_moves_happen_only_where_they_pay_with_their_fixed_time(fixed_ns: float, moves: int, best: float) -> None:
    """Without a fixed time the two moves take 5 and save 15."""
    profile = with_fixed(SYNC_CASE, fixed_ns)
    assert best_ns(problem(profile, 7), SYNC) == pytest.approx(best)
    plan = find(profile, PlanRequest(7, SYNC, page_bytes=1))
    assert (len(plan.moves), plan.predicted_ns) == (moves, pytest.approx(best))
    assert plan.move_ns == pytest.approx(moves and 5 + 2 * fixed_ns)


@pytest.mark.parametrize(("start_ns", "hidden", "best"), [(0, 2, 60), (1, 2, 62), (2.4, 1, 64.4), (3.1, 0, 65)])
def test_starting_a_move_during_an_op_is_not_hidden_by_it(start_ns: float, hidden: int, best: float) -> None:
    """Both moves are shorter than the ops during which they run; between ops they take 5 together."""
    profile = with_fixed(ASYNC_CASE, 0, start_ns)
    case = problem(profile, 8)
    assert best_ns(case, ASYNC) == pytest.approx(best)
    plan = find(profile, PlanRequest(8, ASYNC, page_bytes=1))
    assert plan.predicted_ns == pytest.approx(best)
    assert [move.overlapped for move in plan.moves].count(True) == hidden
    assert plan.move_ns == pytest.approx(best - 60)


def test_the_size_of_a_move_is_what_is_copied_and_not_its_page() -> None:
    plan = find(SYNC_CASE, PlanRequest(2 * 4096, SYNC))
    sizes = {s.name: s.size_bytes for s in SYNC_CASE.graph.storages.values()}
    slow = SYNC_CASE.pools[1]
    assert plan.moves
    for move in plan.moves:
        assert move.size_bytes == sizes[move.storage]
        assert move.time_ns == slow.move_ns(move.size_bytes, into_fast=move.target == "dram")


@pytest.mark.parametrize(
    ("slower_by", "spread", "count", "counted"),
    [
        (5, 0, 20, 105), (5, 50, 20, 105), (-5, 50, 20, 100), (-5, 1, 20, 95), (-5, 1, 5, 100), (-40, 50, 20, 60),
    ],
)  # fmt: skip
def test_a_slow_configuration_is_faster_only_where_samples_prove_it(
    slower_by: float, spread: float, count: int, counted: float
) -> None:
    profile = times_of(STATIC_CASE, slower_by, spread, count)
    case = problem(profile, 0)
    for op in case.ops:
        fast = (True,) * len(op.items)
        assert op.time_ns[fast] == 100
        assert [ns for where, ns in op.time_ns.items() if where != fast] == pytest.approx(
            [counted] * (len(op.time_ns) - 1)
        )
    for limit in (0, 4, 9):
        limited = problem(profile, limit)
        assert best_ns(limited, STATIC) == pytest.approx(brute_force_ns(limited, STATIC))
    if counted >= 100:
        assert find(profile, PlanRequest(0, page_bytes=1)).predicted_ns >= 400, (
            "no plan is faster than fast memory by luck"
        )


@pytest.mark.parametrize(("limit", "static", "sync", "meanwhile"), [(8, 75, 65, 60), (10, 60, 60, 60)])
def test_async_case(limit: int, static: float, sync: float, meanwhile: float) -> None:
    case = problem(ASYNC_CASE, limit)
    assert best_ns(case, STATIC) == static
    assert best_ns(case, SYNC) == pytest.approx(sync)
    assert best_ns(case, ASYNC) == pytest.approx(meanwhile)


def test_async_case_hides_both_moves() -> None:
    plan = find(ASYNC_CASE, PlanRequest(8, ASYNC, page_bytes=1))
    assert [(m.storage, m.op, m.overlapped) for m in plan.moves] == [("t1", 2, True), ("t1", 4, True)]
    assert [m.time_ns for m in plan.moves] == [8, 5]
    assert plan.move_ns == 0


@pytest.mark.parametrize(("pair", "after_it"), [((F, S), S), ((F, B), B), ((S, F), F), ((S, B), B)])
def test_a_move_while_an_op_touches_what_is_moved_is_impossible(pair: tuple[str, str], after_it: str) -> None:
    """Nothing is read or written while it is copied: such a schedule has no time, and not that of its ops alone."""
    case = problem(ASYNC_CASE, 20)
    paths = [fixed_path(item, F) for item in case.items]
    whole = cost(case, paths)
    assert (whole.total_ns, whole.moves) == (60, ())
    item = case.items[0]
    life = range(item.first, item.last + 1)
    between = [k for k in life if k not in item.accesses]
    assert (item.name, item.accesses, between) == ("t1", (0, 1, 5), [2, 3, 4])

    def moved(op: int) -> Any:
        paths[0] = tuple((pair[0],) * 2 if k < op else pair if k == op else (after_it,) * 2 for k in life)
        return cost(case, paths)

    assert moved(3).total_ns is not None
    assert [move.op for move in moved(3).moves] == [3]
    met = moved(1)
    assert met.total_ns is None
    assert [(move.op, move.overlapped, move.time_ns) for move in met.moves] == [(1, True, -1.0)]


def any_profile(chance: random.Random, most_ops: int = 7, in_place: bool = False) -> Profile:
    """A graph with any times, which need not add up tensor by tensor."""
    count = chance.randint(2, most_ops)
    ops: dict[str, tuple[str, str]] = {}
    sizes: dict[str, int] = {}
    for number in range(count):
        reads = chance.sample([*sizes], min(len(sizes), chance.randint(1, 2))) or ["x"]
        ops[f"n{number}"] = " ".join(reads), "y" if number == count - 1 else f"t{number}"
        if number < count - 1:
            sizes[f"t{number}"] = chance.randint(1, 5)
    graph = graph_of(ops, sizes)
    if in_place and (candidates := [op for op in graph.ops if op.inputs[0] in sizes and op.outputs[0] in sizes]):
        op = chance.choice(candidates)
        pair = {op.inputs[0], op.outputs[0]}
        tensors = (replace(t, group="both", size_bytes=3) if t.name in pair else t for t in graph.tensors)
        graph = Graph(graph.name, graph.ops, tuple(tensors))
    rates = (1e9 / chance.uniform(0.1, 3) for _ in range(4))
    profile = profile_of(graph, dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0), Pool(SLOW, False, "", *rates))
    samples = (
        Samples(s.op, s.configuration, s.mode, (chance.uniform(1, 5) + 4 * s.configuration.pools.count(SLOW),), (0,))
        for s in profile.samples
        if in_one_pool(graph, s)
    )
    return Profile(graph, profile.pools, tuple(samples))


def every_path(item: Item, formulation: str) -> Iterator[Path]:
    """Yield every path of an item, useful or not."""
    life = range(item.first, item.last + 1)
    if formulation == STATIC:
        yield from (fixed_path(item, F), fixed_path(item, S))
    elif formulation == SYNC:
        for begins in itertools.product((F, B, S), repeat=len(life)):
            if begins[0] != B:
                yield path_of(item, begins)
    else:
        choices = (
            [(s, after(item, k, s)) for s in (F, B, S)]
            if k in item.accesses
            else [*itertools.product((F, B, S), repeat=2)]
            for k in life
        )
        yield from (path for path in itertools.product(*choices) if path[0][0] != B)


def brute_force_ns(case: Problem, formulation: str) -> float | None:
    """Return the best time of all placements; None where there are too many of them."""
    paths = [[*{without_unused_copies(path) for path in every_path(item, formulation)}] for item in case.items]
    if math.prod(map(len, paths)) > 30_000:
        return None
    costs = (cost(case, choice) for choice in itertools.product(*paths))
    return min((c.total_ns for c in costs if c.fits(case) and c.total_ns is not None), default=math.inf)


def test_solvers_agree_with_brute_force_on_random_graphs() -> None:
    chance = random.Random(20)
    compared = 0
    while compared < (200 if LONG else 100):
        formulation = chance.choice((STATIC, STATIC, SYNC, ASYNC))
        most = {STATIC: 7, SYNC: 5, ASYNC: 4}[formulation]
        profile = any_profile(chance, most, in_place=chance.random() < 0.3)
        case = problem(profile, chance.randint(0, profile.graph.peak_bytes))
        tried = brute_force_ns(case, formulation)
        if tried is not None:
            compared += 1
            assert best_ns(case, formulation) == pytest.approx(tried, rel=1e-6), (formulation, compared)


def long_lived_profile(chance: random.Random) -> Profile:
    """One or two tensors that are accessed a few times with ops between that do not, and may be written in place.

    So a copy may be made long before it is used, be used twice, or be outdated; and moves are longer than some ops.
    What else the ops write is in fast memory, and leaves more or less room.
    """
    ops, sizes, newest = {"n0": ("x", "a0")}, {"a0": chance.randint(2, 5)}, {"a": "a0"}
    for number in range(1, chance.randint(5, 6)):
        reads = [name for name in newest.values() if chance.random() < 0.5]
        written = f"y{number}"
        if number == 1 and chance.random() < 0.4:
            newest["b"] = written = "b0"
        elif reads == [newest["a"]] and chance.random() < 0.3:
            newest["a"] = written = f"a{number}"
        ops[f"n{number}"] = " ".join(reads) or "x", written
        sizes[written] = sizes["a0"] if written[0] == "a" else chance.randint(1, 6)
    graph = graph_of(ops, sizes)
    tensors = (
        replace(t, group="a") if t.name in sizes and t.name[0] == "a"
        else replace(t, pools=("dram",)) if t.name[0] == "y" else t
        for t in graph.tensors
    )  # fmt: skip
    graph = Graph(graph.name, graph.ops, tuple(tensors))
    rates = [1e9 / (chance.choice((0.3, 1, 3)) * chance.uniform(0.5, 2)) for _ in range(4)]
    fixed = [chance.choice((0, 0, chance.uniform(0, 2))) for _ in range(5)]
    slow = Pool(SLOW, False, "", *rates, *fixed)
    worse = {name: chance.uniform(0, 20) for name in sizes}
    profile = profile_of(graph, worse, worse, slow, {op: chance.uniform(0.5, 9) for op in ops})
    return Profile(graph, profile.pools, tuple(s for s in profile.samples if in_one_pool(graph, s)))


def in_one_pool(graph: Graph, samples: Samples) -> bool:
    """Return whether tensors that share their memory are in one pool."""
    tensors = graph.ops[graph.index[samples.op]].tensors
    pools = {pool for t, pool in zip(tensors, samples.configuration.pools, strict=True) if graph.tensor[t].group}
    return len(pools) < 2


def test_moves_during_ops_agree_with_brute_force_where_tensors_live_long() -> None:
    chance = random.Random(24)
    compared = overlapped = early = 0
    while compared < (60 if LONG else 30):
        profile = long_lived_profile(chance)
        graph = profile.graph
        case = problem(profile, 0)
        case = problem(profile, chance.randint(max(case.required_fast_bytes(ASYNC)), graph.peak_bytes))
        if max(item.last - item.first + 1 - len(item.accesses) for item in case.items) > 3:
            continue
        tried = brute_force_ns(case, ASYNC)
        if tried is not None:
            compared += 1
            assert best_ns(case, ASYNC) == pytest.approx(tried, rel=1e-6), compared
            paths = optimum(case, ASYNC, 30.0, 0.0).paths
            overlapped += any(move.overlapped for move in cost(case, paths).moves)
            early += any(pair == (F, B) for path in paths for pair in path)
    assert overlapped >= 5
    assert early >= 1, "a tensor that stays is copied, and leaves later"


def test_few_moves_are_tried_first_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    from memtui.placement.solvers.ilp import Program

    whole, choices = Program.solve, []

    def no_plan_from_all(self: Program, time_limit_s: float, gap: float) -> Any:
        choices.append(self.overlapped)
        result = whole(self, time_limit_s, gap)
        return (None, result[1]) if self.overlapped == 8 else result

    case = problem(ASYNC_CASE, 8)
    monkeypatch.setattr(Program, "solve", no_plan_from_all)
    assert first_touch_ns(case) > 60
    assert cost(case, optimum(case, ASYNC, 30, 0, first_touch(case)).paths).total_ns == first_touch_ns(case)
    monkeypatch.setattr("memtui.placement.solvers.solver.MANY", 7)
    monkeypatch.setattr("memtui.placement.solvers.solver.NEAREST", 1)
    solved = optimum(case, ASYNC, 30, 0, first_touch(case))
    assert choices == [8, 4, 8]
    assert cost(case, solved.paths).total_ns == 60
    assert solved.bound_ns == pytest.approx(60)


def test_order_of_formulations_and_limits_on_random_graphs() -> None:
    chance = random.Random(21)
    for _ in range(25 if LONG else 10):
        profile = any_profile(chance, 9, in_place=chance.random() < 0.3)
        before = {STATIC: math.inf, SYNC: math.inf, ASYNC: math.inf}
        for limit in range(0, profile.graph.peak_bytes + 1, 2):
            case = problem(profile, limit)
            times = {f: best_ns(case, f) for f in before}
            assert first_touch_ns(case) >= times[STATIC] - 1e-6
            assert times[STATIC] >= times[SYNC] - 1e-6
            assert times[SYNC] >= times[ASYNC] - 1e-6
            assert all(times[f] <= before[f] + 1e-6 for f in before), "more memory never costs time"
            before = times


def test_order_and_bounds_of_training_steps_with_times_in_ns_and_sizes_in_bytes() -> None:
    for profile in itertools.islice(training_steps(20), 2):
        case = problem_of(profile, profile.pools[1].name, "isolated", 0)
        case = case.with_limits((max(case.all_bytes) // 2,) * len(case.ops))
        times = {}
        for formulation in (STATIC, SYNC, ASYNC):
            solved = optimum(case, formulation, 60.0, 0.005)
            total_ns = cost(case, solved.paths).total_ns
            assert total_ns is not None
            assert solved.finished
            assert solved.bound_ns is not None
            assert 0.99 * total_ns <= solved.bound_ns <= total_ns * (1 + 1e-9)
            times[formulation] = total_ns, solved.bound_ns
        assert first_touch_ns(case) >= times[STATIC][0] >= times[SYNC][0] >= times[ASYNC][0]
        assert times[ASYNC][0] < times[SYNC][1], "moves during ops pay"


def test_a_plan_is_never_worse_than_first_touch_though_it_must_be_laid_out() -> None:
    chance = random.Random(22)
    for _ in range(60):
        profile = any_profile(chance, 9)
        limit = chance.randint(0, profile.graph.peak_bytes)
        request = PlanRequest(limit, chance.choice((STATIC, SYNC)), page_bytes=1)
        plan = find(profile, request)
        assert plan.fast_peak_bytes <= limit
        assert plan.predicted_ns <= find(profile, replace(request, formulation=FIRST_TOUCH)).predicted_ns + 1e-9
        assert plan.bound_ns is not None
        assert plan.bound_ns <= plan.predicted_ns


def test_best_fit_takes_the_smallest_hole() -> None:
    room = BestFit(10)
    assert all(room.take(key, size) for key, size in enumerate((3, 1, 2, 4)))
    assert not room.take(4, 1)
    room.free(0)
    room.free(2)
    assert room.take(5, 2)
    assert room.take(6, 3)
    assert (room.address(5), room.address(6)) == (4, 0)


HOLES = graph_of(
    {"n1": ("x", "a c"), "n2": ("c", "y1"), "n3": ("a", "b e"), "n4": ("b", "d y2")},
    {"a": 2, "b": 2, "c": 4, "d": 4, "e": 1},
)
"""No more than 6 are alive at once, but there are no addresses for it: b lies beside a, and has to leave room for d."""
HOLES_CASE = profile_of(HOLES, dict.fromkeys("abcde", 5), dict.fromkeys("abcde", 5), slow_pool(1, 1))


def test_holes_are_seen_and_room_is_cut_around_them() -> None:
    case = problem(HOLES_CASE, 6)
    paths = optimum(case, STATIC, 10, 0).paths
    assert max(cost(case, paths).fast_bytes) == 6
    extents = layout_extents(case, paths)
    assert max(extents) == 8
    cut = tightened(case, extents, case.limit_bytes)
    assert cut.limit_bytes == (5, 5, 5, 5)


def test_a_plan_with_holes_is_solved_again() -> None:
    plan = find(HOLES_CASE, PlanRequest(6, page_bytes=1))
    assert plan.address_bytes is not None
    assert plan.address_bytes <= 6
    assert plan.bound_ns == 40, "the bound is that of the limit that was asked for"
    assert "holes" in plan.why
    assert find(HOLES_CASE, PlanRequest(9, page_bytes=1)).why == ""
    assert plan.predicted_ns == 45


def test_no_two_pieces_lie_in_one_place_at_one_time() -> None:
    chance = random.Random(23)
    for _ in range(100):
        profile = any_profile(chance, 9)
        case = problem(profile, profile.graph.peak_bytes)
        paths = [chance.choice([*every_path(item, STATIC)]) for item in case.items]
        stays = [*pieces(case, paths)]
        for addresses in (in_order(stays), largest_first(stays)):
            for first, second in itertools.combinations(range(len(stays)), 2):
                a, b = stays[first], stays[second]
                apart = a.last < b.first or b.last < a.first
                below = addresses[first] + a.size_bytes <= addresses[second]
                assert apart or below or addresses[second] + b.size_bytes <= addresses[first]


def test_sizes_are_whole_pages() -> None:
    case = problem_of(STATIC_CASE, SLOW, "isolated", 1 << 20)
    assert {item.size_bytes for item in case.items} == {4096}
    assert case.all_bytes == (4096, 8192, 12288, 4096)


def test_what_must_stay_fast_is_reported() -> None:
    tensors = (replace(t, pools=("dram",)) if t.name == "t2" else t for t in STATIC_CASE.graph.tensors)
    graph = Graph("", STATIC_CASE.graph.ops, tuple(tensors))
    profile = profile_of(graph, {"t1": 1, "t3": 1}, {"t1": 3, "t3": 3}, slow_pool(1, 1))
    with pytest.raises(UserError, match=r"limit of 2 B is below what must stay in dram: 3 B \(3 bytes\) while n2 runs"):
        find(profile, PlanRequest(2, page_bytes=1))
    assert find(profile, PlanRequest(3, page_bytes=1)).fast_peak_bytes == 3


def without(op: str, *pools: str) -> Profile:
    """Return the static case without the sample of one configuration."""
    left = (s for s in STATIC_CASE.samples if (s.op, s.configuration.pools) != (op, pools))
    return Profile(STATIC_CASE.graph, STATIC_CASE.pools, tuple(left))


def test_a_placement_that_was_not_measured_is_not_taken() -> None:
    profile = without("n1", "dram", SLOW)
    with pytest.raises(UserError, match="below what must stay in dram: 4 B"):
        check(problem(profile, 3), STATIC)
    assert find(profile, PlanRequest(4, page_bytes=1)).predicted_ns == 53


def test_first_touch_in_a_placement_that_was_not_measured_is_reported() -> None:
    profile = without("n2", "dram", SLOW)
    with pytest.raises(UserError, match="first-touch needs a placement that was not measured: n2"):
        find(profile, PlanRequest(4, FIRST_TOUCH, page_bytes=1))
    assert find(profile, PlanRequest(4, page_bytes=1)).predicted_ns == 49


@pytest.mark.parametrize(("text", "limit"), [("0:1", 900), ("1:1", 450), ("8:1", 100), ("1:0", 0), (" 2:1 ", 300)])
def test_ratio_is_slow_to_fast(text: str, limit: int) -> None:
    assert limit_of(parse_ratio(text), 900) == limit


@pytest.mark.parametrize("text", ["", "1", "0:0", "1:-1", "a:b", "1:2:3", "0.5:1"])
def test_no_ratio(text: str) -> None:
    with pytest.raises(ValueError, match="is not a ratio of slow to fast memory"):
        parse_ratio(text)


def test_curve_falls_and_ends_with_everything_fast() -> None:
    points = list(curve(STATIC_CASE, PlanRequest(0, page_bytes=1), 10))
    assert [(p.limit_bytes, p.predicted_ns, p.first_touch_ns) for p in points] == [
        (0, 58, 58), (1, 58, 58), (2, 54, 54), (3, 49, 49), (4, 49, 53), (5, 45, 53), (6, 45, 49), (7, 44, 44),
        (8, 44, 44), (9, 40, 40),
    ]  # fmt: skip


def test_bytes_that_the_solvers_tolerance_allowed_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    from memtui.placement.solvers.ilp import Program

    whole, limits = Program.solve, []

    def loose(self: Program, time_limit_s: float, gap: float) -> Any:
        limits.append(self.problem.limit_bytes)
        result = whole(self, time_limit_s, gap)
        return ([fixed_path(i, F) for i in self.problem.items], result[1]) if len(limits) == 1 else result

    monkeypatch.setattr(Program, "solve", loose)
    case = problem(STATIC_CASE, 5)
    solved = optimum(case, STATIC, 10, 0)
    assert limits == [(5, 5, 5, 5), (5, 3, 1, 5)], "four bytes are too many while n3 runs, two while n2 does"
    assert cost(case, solved.paths).fits(case)


@pytest.fixture
def without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("scipy", "scipy.optimize", "scipy.sparse"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("memtui.placement.solvers.milp", "memtui.placement.solvers.ilp"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_small_graphs_are_solved_without_scipy(without_scipy: None) -> None:
    plan = find(SYNC_CASE, PlanRequest(7, SYNC, page_bytes=1))
    assert (plan.predicted_ns, plan.solver, plan.status) == (55, "branch and bound", OPTIMAL)


def test_what_needs_scipy_says_so(without_scipy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"moves during ops needs the solver of scipy: pip install 'memtui\[place\]'"):
        find(ASYNC_CASE, PlanRequest(8, ASYNC, page_bytes=1))

    def too_large(*_: Any, **__: Any) -> None:
        raise TooLarge

    monkeypatch.setattr("memtui.placement.solvers.solver.exact", too_large)
    with pytest.raises(UserError, match=r"too large .* pip install 'memtui\[place\]'"):
        find(STATIC_CASE, PlanRequest(5, page_bytes=1))


@pytest.mark.parametrize(
    ("slow", "why"), [("numa:1", "no slow pool numa:1; it has slow"), ("dram", "no slow pool dram")]
)
def test_unknown_pool(slow: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        find(STATIC_CASE, PlanRequest(5, slow=slow))


def test_a_profile_without_samples_is_reported() -> None:
    with pytest.raises(UserError, match="no way of timing has every op: profile it to its end first"):
        find(Profile(STATIC_CASE.graph, STATIC_CASE.pools), PlanRequest(5))
    with pytest.raises(UserError, match="one pool only, dram"):
        find(Profile(STATIC_CASE.graph, STATIC_CASE.pools[:1]), PlanRequest(5))
