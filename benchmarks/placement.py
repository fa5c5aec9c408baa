"""How near to the optimum plans are, and after how long: training steps of 64 to 300 ops with made-up times."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

from benchmarks.run import Run
from benchmarks.table import Row, row
from memtui.placement.configurations import all_configurations, configurations
from memtui.placement.graph import ARGUMENT, RESULT, Graph, Op, Tensor
from memtui.placement.plan import ASYNC, STATIC, SYNC
from memtui.placement.profile import Pool, Profile, Samples
from memtui.placement.solvers.problem import problem_of
from memtui.placement.solvers.schedule import cost
from memtui.placement.solvers.solver import optimum

POOLS = ("dram", "emulated:29,12")
READ_SLOWER, WRITE_SLOWER = 1.06, 5.2  # medians of the notebook's 18 inputs and 25 outputs
BYTES_PER_NS = 40.0


SIZES = (  # ops, formulation, seconds, gap that is promised after them
    (64, STATIC, 10.0, 1.0), (64, SYNC, 10.0, 1.0), (64, ASYNC, 10.0, 1.0),
    (300, STATIC, 60.0, 1.0), (300, SYNC, 60.0, 1.0), (300, ASYNC, 60.0, 2.0),
)  # fmt: skip


def measure(run: Run) -> Iterator[Row]:
    """Fast memory for half of the most that is alive; the gap is the solver's, before holes are looked for."""
    for ops, formulation, limit_s, limit in SIZES:
        if run.quick and ops > 64:
            continue
        made = list(itertools.islice(profiles(ops), 1 if run.quick else 5))
        found = [_solved(profile, formulation, limit_s) for profile in made]
        count = sum(len(all_configurations(profile.graph, POOLS)) for profile in made) // len(made)
        what = f"{formulation}, {ops} ops, about {count} configurations"
        yield row(f"{what}: gap", [100 * gap for gap, _ in found], "%", limit)
        yield row(f"{what}: seconds, {limit_s:.0f} at most, until 1 %", [took_s for _, took_s in found], "s")


def _solved(profile: Profile, formulation: str, limit_s: float) -> tuple[float, float]:
    """Gap and seconds."""
    problem = problem_of(profile, POOLS[1], "isolated", 0)
    problem = problem.with_limits((max(problem.all_bytes) // 2,) * len(problem.ops))
    begin_s = time.monotonic()
    solved = optimum(problem, formulation, limit_s, 0.01)
    took_s = time.monotonic() - begin_s
    total_ns = cost(problem, solved.paths).total_ns
    assert total_ns is not None
    return (total_ns - (solved.bound_ns or 0.0)) / total_ns, took_s


def profiles(ops: int) -> Iterator[Profile]:
    """Training steps of so many ops: what the forward pass makes is read again, in the opposite order, much later."""
    for seed in itertools.count(1):
        yield _timed(training_step(ops, random.Random(seed)), random.Random(seed))


def training_step(ops: int, chance: random.Random) -> Graph:
    """Forward ops with one or two activations each, then for each of them a backward op that reads both."""
    forward = ops // 2
    size = {"x": 1 << 20}
    made: list[Op] = []
    kept: list[tuple[str, ...]] = []
    before = "x"
    for at in range(forward):
        outputs = [f"a{at}"] if chance.random() < 0.9 else [f"a{at}", f"m{at}"]
        size |= {name: chance.randint(64, 4096) << 10 for name in outputs}
        skip = [f"a{at - 3}"] if at >= 3 and chance.random() < 0.15 else []
        made.append(Op.of(f"forward{at}", "forward", [before, f"w{at}", *skip], outputs))
        kept.append((before, *outputs))
        before = outputs[0]
    gradient = before
    for at in reversed(range(ops - forward)):
        reads = [gradient, f"w{at}", *dict.fromkeys(kept[min(at, forward - 1)])]
        name = f"g{at}"
        size[name] = size[kept[min(at, forward - 1)][0]]
        made.append(Op.of(f"backward{at}", "backward", reads, [name if at else "result"]))
        gradient = name
    written = {tensor for op in made for tensor in op.outputs}
    names = dict.fromkeys(tensor for op in made for tensor in op.tensors)
    roles = {
        n: "intermediate" if n in written and n != "result" else RESULT if n == "result" else ARGUMENT for n in names
    }
    return Graph("a training step", tuple(made), tuple(Tensor(n, size.get(n, 1 << 20), roles[n]) for n in names))


def _timed(graph: Graph, chance: random.Random) -> Profile:
    samples = []
    for op in graph.ops:
        reads, writes = (
            [(chance.lognormvariate(0, 0.3), graph.tensor[t].size_bytes) for t in side]
            for side in (op.inputs, op.outputs)
        )
        slower = [(READ_SLOWER, part) for part in reads] + [(WRITE_SLOWER, part) for part in writes]
        for made in configurations(graph, op, POOLS):
            ns = sum(
                luck * size / BYTES_PER_NS * (factor if pool == POOLS[1] else 1.0)
                for (factor, (luck, size)), pool in zip(slower, made.pools, strict=True)
            )
            samples.append(Samples(op.name, made, "isolated", (ns * chance.uniform(0.98, 1.02),), (0,)))
    slow = Pool(POOLS[1], True, "", 29e9, 12e9, 2e9, 2.5e9)
    return Profile(graph, (Pool(POOLS[0]), slow), tuple(samples))
