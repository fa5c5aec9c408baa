"""Graphs and profiles for the tests of placement: those worked out by hand, chains, and any."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import strategies as st

from memtui.placement.graph import ARGUMENT, CONSTANT, INTERMEDIATE, RESULT, Configuration, Graph, Op, Tensor
from memtui.placement.plan import FORMULATIONS, STATUSES, Move, PlacementPlan, Span
from memtui.placement.profile import MODES, Pool, Profile, Samples

FAST, SLOW = "dram", "slow"
BASE_NS = 10.0


def graph_of(ops: Mapping[str, tuple[str, str]], sizes: Mapping[str, int], name: str = "by hand") -> Graph:
    """``{"n1": ("x", "t1")}``: what each op reads and writes; what has no size is an argument or a result."""
    sides = {op: (reads.split(), writes.split()) for op, (reads, writes) in ops.items()}
    written = {tensor for _, writes in sides.values() for tensor in writes}
    tensors = dict.fromkeys(tensor for reads, writes in sides.values() for tensor in (*reads, *writes))
    roles = {t: INTERMEDIATE if t in sizes else RESULT if t in written else ARGUMENT for t in tensors}
    return Graph(
        name,
        tuple(Op.of(op, "any", reads, writes) for op, (reads, writes) in sides.items()),
        tuple(Tensor(t, sizes.get(t, 8), role) for t, role in roles.items()),
    )


def profile_of(
    graph: Graph,
    slow_read_ns: Mapping[str, float],
    slow_write_ns: Mapping[str, float],
    slow: Pool,
    base_ns: Mapping[str, float] | None = None,
) -> Profile:
    """An op costs its base (10), and more for each tensor in slow memory that it reads or writes."""
    samples = []
    for op in graph.ops:
        choices = [(FAST, SLOW) if graph.is_free(t, (FAST, SLOW)) else (FAST,) for t in op.tensors]
        for pools in itertools.product(*choices):
            inputs, outputs = pools[: len(op.inputs)], pools[len(op.inputs) :]
            cost = (base_ns or {}).get(op.name, BASE_NS)
            cost += sum(slow_read_ns[t] for t, pool in zip(op.inputs, inputs, strict=True) if pool == SLOW)
            cost += sum(slow_write_ns[t] for t, pool in zip(op.outputs, outputs, strict=True) if pool == SLOW)
            samples.append(Samples(op.name, Configuration(inputs, outputs), MODES[0], (cost,), (0,)))
    return Profile(graph, (Pool(FAST), slow), tuple(samples))


def times_of(profile: Profile, slower_by: float, spread: float, count: int) -> Profile:
    """Return the profile with this number of samples; those with slow memory take ``slower_by`` ns longer."""
    samples = []
    for s in profile.samples:
        ns = 100.0 + (slower_by if SLOW in s.configuration.pools else 0.0)
        times = tuple(ns + spread * (n / (count - 1) - 0.5) for n in range(count))
        samples.append(replace(s, time_ns=times, run=tuple(range(count))))
    return Profile(profile.graph, profile.pools, tuple(samples))


def slow_pool(
    out_ns: float,
    in_ns: float,
    async_out_ns: float | None = None,
    async_in_ns: float | None = None,
    fixed_ns: float | None = None,
    start_ns: float | None = None,
) -> Pool:
    """By what the move of a byte takes, what any move takes, and what starting one during an op does."""
    rates = [None if ns is None else 1e9 / ns for ns in (in_ns, out_ns, async_in_ns, async_out_ns)]
    return Pool(SLOW, False, "", *rates, *[fixed_ns] * 4, start_ns)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
numbers = st.floats(0, 1e15)


@st.composite
def graphs(draw: st.DrawFn, most_ops: int = 7) -> Graph:
    """Any graph, with arguments, constants, results, and ops that write in place."""
    tensors = [Tensor("x", draw(st.integers(0, 9)), ARGUMENT), Tensor("c", 1, CONSTANT)]
    ops = []
    for index in range(draw(st.integers(1, most_ops))):
        reads = draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=3))
        written = []
        for number in range(draw(st.sampled_from((1, 1, 1, 2)))):
            role = draw(st.sampled_from((INTERMEDIATE,) * 4 + (RESULT,)))
            free = [t for t in reads if t.role == INTERMEDIATE]
            tensor = Tensor(f"t{index}.{number}", draw(st.integers(1, 9)), role)
            if free and number == 0 and role == INTERMEDIATE and draw(st.integers(0, 3)) == 0:
                tensor = Tensor(tensor.name, free[0].size_bytes, role, group=free[0].storage)
                tensors = [Tensor(t.name, t.size_bytes, t.role, t.storage if t.name == free[0].name else t.group)
                           for t in tensors]  # fmt: skip
            tensors.append(tensor)
            written.append(tensor)
        ops.append(Op.of(f"n{index}", "any", [t.name for t in reads], [t.name for t in written], f"key {index % 3}"))
    return Graph("any", tuple(ops), tuple(tensors))


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Any profile, which may have samples of few configurations or none."""
    graph = draw(graphs())
    some = st.one_of(st.none(), st.floats(1, 1e12))
    pools = tuple(
        Pool(name, draw(st.booleans()), draw(st.text(max_size=5)), *(draw(some) for _ in range(9)))
        for name in draw(st.lists(names, min_size=1, max_size=3, unique=True))
    )
    samples = {}
    for op in draw(st.lists(st.sampled_from(graph.ops), max_size=4)):
        pool = st.sampled_from([pool.name for pool in pools])
        sides = (tuple(draw(pool) for _ in side) for side in (op.inputs, op.outputs))
        times = draw(st.lists(numbers, max_size=4))
        item = Samples(
            op.name, Configuration(*sides), draw(st.sampled_from(MODES)), tuple(times), (*range(len(times)),)
        )
        samples[item.op, item.configuration, item.mode] = item
    about = draw(st.dictionaries(st.text(max_size=4), st.one_of(st.text(max_size=4), st.integers(-9, 9)), max_size=3))
    return Profile(graph, pools, tuple(samples.values()), draw(numbers), about)


@st.composite
def plans(draw: st.DrawFn) -> PlacementPlan:
    """Any plan, whatever it may mean."""
    whole = st.integers(0, 1 << 40)
    pool = st.sampled_from((FAST, SLOW))
    spans = draw(st.lists(st.builds(lambda s, p, a, n: Span(s, p, a, a + n), names, pool, whole, whole), max_size=3))
    moves = draw(
        st.lists(st.builds(Move, names, pool, pool, whole, whole, numbers, st.booleans(), numbers), max_size=3)
    )
    maybe = st.one_of(st.none(), numbers)
    return PlacementPlan(
        draw(st.sampled_from(FORMULATIONS)), FAST, SLOW, draw(st.booleans()), draw(names), draw(whole), tuple(spans),
        tuple(moves), draw(numbers), draw(whole), draw(whole), draw(st.sampled_from(STATUSES)), draw(maybe),
        draw(maybe), draw(numbers), draw(names), draw(st.one_of(st.none(), whole)),
        draw(st.text(max_size=5)),
    )  # fmt: skip
