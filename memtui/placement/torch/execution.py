"""Execution of plans: tensors lie and move as the plan says, and results are compared with the unplaced step.

Imports torch.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from statistics import median

import torch
from torch.utils._pytree import tree_flatten, tree_map

from memtui.placement import memory
from memtui.placement.address_allocator import Arenas, lay_out
from memtui.placement.plan import Move, PlacementPlan
from memtui.placement.torch.kernels import is_recorded
from memtui.placement.torch.placed_step import Call, Machine
from memtui.placement.torch.tensor_moves import Copy, Mover
from memtui.placement.worker_protocol import Agreement, ExecutedPlan

WARM_UPS = 2
CLOSE = 1e-4  # relative; bound on the rounding of another order of summation, with 32-bit numbers

_Run = tuple[list[float], float]  # time of each op with its moves, time of all moves that ops wait for, in ns


@dataclass
class Stage:
    """One op of a plan, with the moves before and during it."""

    call: Call
    before: list[Copy] = field(default_factory=list)
    meanwhile: list[Copy] = field(default_factory=list)


class Execution:
    """One plan on a machine."""

    def __init__(self, machine: Machine, plan: PlacementPlan) -> None:
        """Raise NoMemory."""
        self._machine = machine
        graph = machine.captured.graph
        self.arenas: Arenas = lay_out(graph, plan)
        self.memory = {pool: machine.pools[pool].take(size) for pool, size in self.arenas.size_bytes.items() if size}
        self.stages = [Stage(self._call(index, plan)) for index in range(len(graph.ops))]
        # Moves out of fast memory come first: moves into it may reuse their bytes.
        for move in sorted(plan.moves, key=lambda move: move.target == plan.fast):
            copy = self._copy(move)
            (self.stages[move.op].meanwhile if move.overlapped else self.stages[move.op].before).append(copy)
        self._mover = Mover(machine.clock, machine.wait_for_device)

    def _bytes(self, storage: str, pool: str, op: int) -> torch.Tensor:
        piece = self.arenas.piece(storage, pool, op)
        if piece is None:  # it exists before the step, or is a result: not part of the plan
            return self._machine.buffer(storage, pool)
        return self.memory[pool][piece.start : piece.start + piece.size_bytes]

    def _call(self, op: int, plan: PlacementPlan) -> Call:
        fast = self._machine.fast.name

        def where(storage: str) -> str:
            try:
                return plan.pool_of(storage, op)
            except KeyError:
                return fast

        kernel = self._machine.captured.kernels[op]
        return self._machine.call(kernel, where, lambda storage, pool: self._bytes(storage, pool, op))

    def _copy(self, move: Move) -> Copy:
        # Before a move the source lies where it was for the op before.
        op = move.op if move.overlapped else move.op - 1
        source = self._bytes(move.storage, move.source, op)
        target = self._bytes(move.storage, move.target, move.op)
        pools = self._machine.pools
        reads, writes = pools[move.source].read_wait_ns, pools[move.target].write_wait_ns
        return Copy(target, source, reads(move.size_bytes) + writes(move.size_bytes))

    def run(self) -> _Run:
        """Run the step once; return the times of ops and of moves."""
        machine = self._machine
        ops: list[float] = []
        moves = 0.0
        for moving, stages in groupby(self.stages, lambda stage: bool(stage.before or stage.meanwhile)):
            if not moving:
                ops += machine.times_ns([stage.call for stage in stages])
                continue
            for stage in stages:
                if stage.before:
                    moves += self._mover.now(stage.before)
                if stage.meanwhile:
                    ops.append(self._mover.during(stage.meanwhile, partial(machine.timed_ns, stage.call))[0])
                else:
                    ops.append(machine.timed_ns(stage.call))
        return ops, moves

    def pages(self) -> dict[str, dict[str, int]]:
        """Return pages of each arena by the NUMA node that they are on, as far as the kernel reports."""
        pages = {}
        for pool, arena in self.memory.items():
            if arena.device.type == "cpu":
                try:
                    counts = memory.nodes_of(arena.numpy())
                except memory.NoMemory:
                    continue
                pages[pool] = {str(node): count for node, count in sorted(counts.items())}
        return pages

    def close(self) -> None:
        self._mover.close()


def execute(
    machine: Machine, plans: Sequence[PlacementPlan], repeats: int, seed: int, still_wanted: Callable[[], object]
) -> list[ExecutedPlan]:
    """Run the step without placement, then by each plan, in turns and random order. Raises NoMemory.

    Args:
        machine: the step and its pools.
        plans: the plans to execute.
        repeats: number of timed runs of each plan.
        seed: of random numbers in the step, and of the order.
        still_wanted: function that is called between runs.

    Returns:
        For each plan its times, and whether its results are equal.
    """
    with torch.no_grad():
        expected = unplaced(machine, seed)
        executions = [Execution(machine, plan) for plan in plans]
        agreements = []
        for execution in executions:
            machine.reset(seed)
            execution.run()
            agreements.append(agreement(machine.results(), expected))
        runs: list[list[_Run]] = [[] for _ in plans]
        chance = random.Random(seed)
        for turn in range(WARM_UPS + repeats):
            for index in chance.sample(range(len(plans)), len(plans)):
                still_wanted()
                for _ in range(2):  # in a training the run before is of the same plan, and fills the caches
                    machine.refresh(seed)
                    took = executions[index].run()
                if turn >= WARM_UPS:
                    runs[index].append(took)
        executed = []
        for execution, plan, of_plan, results in zip(executions, plans, runs, agreements, strict=True):
            executed.append(_executed(execution, plan, of_plan, results))
            execution.close()
    return executed


def _executed(execution: Execution, plan: PlacementPlan, runs: Sequence[_Run], results: Agreement) -> ExecutedPlan:
    sizes = execution.arenas.size_bytes
    return ExecutedPlan(
        times_ns=tuple(sum(ops) + moves for ops, moves in runs),
        op_ns=tuple(median(times) for times in zip(*(ops for ops, _ in runs), strict=True)),
        move_ns=median(moves for _, moves in runs),
        agreement=results,
        fast_bytes=sizes[plan.fast],
        slow_bytes=sizes[plan.slow],
        pages=execution.pages(),
    )


def unplaced(machine: Machine, seed: int) -> list[torch.Tensor]:
    """Return the results of the step as torch runs it; on a GPU, with everything in the fast pool."""
    captured = machine.captured
    machine.reset(seed)
    if machine.fast.device.type != "cpu":
        for call in machine.program({}):
            call.start()
        return machine.results()
    saved = {storage: given.clone() for storage, given in captured.given.items()}
    torch.manual_seed(seed)
    # Without gradients nothing is recorded; some operators still need to run as in a training step.
    recorded = any(is_recorded(kernel.target) for kernel in captured.kernels)
    inputs = tree_map(lambda tensor: tensor.detach(), captured.inputs)
    with torch.set_grad_enabled(recorded):
        flat, _ = tree_flatten(captured.module(*inputs))
    changed = [layout.over(captured.given[layout.storage]).clone() for layout in captured.changed]
    for storage, before in saved.items():
        captured.given[storage].copy_(before)
    return [*(tensor.detach().clone() for tensor in flat if isinstance(tensor, torch.Tensor)), *changed]


def agreement(results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> Agreement:
    """Return whether results are the same bit by bit, or nearly, and their largest difference."""
    equal = all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
    apart = [_apart(a.double(), b.double()) for a, b in zip(results, expected, strict=True) if b.numel()]
    finite = all(map(math.isfinite, apart))
    worst = max(apart, default=0.0) if finite else None
    return Agreement(equal, equal or (worst is not None and worst <= CLOSE), worst)


def _apart(result: torch.Tensor, expected: torch.Tensor) -> float:
    most = float(expected.abs().max())
    return float((result - expected).abs().max()) / (most or 1.0)
