"""Timers of ops in configurations: each op by itself, or in runs of the whole step. Imports torch."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from memtui.placement.graph import Configuration
from memtui.placement.torch.placed_step import Call, Machine

LEAST, MOST = 6, 200  # samples of one configuration; with fewer there is no 95 % interval of the median
WARM_UPS = 2


class Measuring:
    """Measures on a machine. Everything that is measured together is measured in turns, in random order.

    A drift, such as that of the processor's clock, then looks like noise and not like a difference of configurations.
    """

    def __init__(self, machine: Machine, seed: int, still_wanted: Callable[[], object]) -> None:
        """``still_wanted`` is called between turns, and raises when no process waits for the result any more."""
        self._machine, self._seed, self._still_wanted = machine, seed, still_wanted
        self._chance = random.Random(seed)
        self._index = machine.captured.graph.index
        self._ran = False

    def isolated(self, op: str, configurations: Sequence[Configuration], seconds: float) -> list[list[float]]:
        """Return the times in ns of an op by itself, a list for each configuration.

        Args:
            op: name of the op.
            configurations: configurations of the op.
            seconds: measuring time of each configuration.
        """
        self._run_once()
        calls = [self._alone(op, configuration) for configuration in configurations]
        times: list[list[float]] = [[] for _ in configurations]
        for call, restore in calls:
            for _ in range(WARM_UPS):
                restore()
                self._machine.timed_ns(call)
        for order in self._turns(len(configurations), seconds):
            for index in order:
                call, restore = calls[index]
                restore()
                times[index].append(self._machine.timed_ns(call))
        return times

    def in_graph(self, placements: Sequence[Mapping[str, str]], seconds: float) -> list[list[list[float]]]:
        """Return the times in ns of all ops in runs of the step: for each placement, for each run, for each op."""
        programs = [self._machine.program(placed) for placed in placements]
        runs: list[list[list[float]]] = [[] for _ in placements]
        self._run_once()
        for program in programs:
            self._run(program)
        for order in self._turns(len(programs), seconds):
            for index in order:
                runs[index].append(self._run(programs[index]))
        return runs

    def _turns(self, of: int, seconds: float) -> Iterator[list[int]]:
        """Yield random orders until the time is over: at least ``LEAST`` of them, and at most ``MOST``."""
        end = time.monotonic() + seconds * of
        for number in range(MOST):
            if number >= LEAST and time.monotonic() > end:
                return
            self._still_wanted()
            yield self._chance.sample(range(of), of)

    def _run(self, program: Sequence[Call]) -> list[float]:
        self._machine.refresh(self._seed)
        with torch.no_grad():
            return self._machine.times_ns(program)

    def _run_once(self) -> None:
        """Fill the buffers by runs of the step, because the time of an op may depend on its numbers."""
        if not self._ran:
            self._machine.reset(self._seed)
            for _ in range(WARM_UPS):
                self._run(self._machine.program({}))
            self._ran = True

    def _alone(self, op: str, configuration: Configuration) -> tuple[Call, Callable[[], None]]:
        """Return the call of an op in a configuration, and a function that restores the memory it overwrites."""
        machine, graph = self._machine, self._machine.captured.graph
        kernel = machine.captured.kernels[self._index[op]]
        of = [graph.tensor[tensor].storage for tensor in kernel.op.tensors]
        where = dict(zip(of, configuration.pools, strict=True))
        for storage, pool in where.items():
            if pool != machine.fast.name:
                machine.buffer(storage, pool).copy_(machine.buffer(storage, machine.fast.name))
        call = machine.call(kernel, lambda storage: where.get(storage, machine.fast.name))
        memories = [machine.buffer(s, where.get(s, machine.fast.name)) for s in machine.written(kernel)]
        before = [memory.clone() for memory in memories]

        def restore() -> None:
            for memory, saved in zip(memories, before, strict=True):
                memory.copy_(saved)
            machine.wait_for_device()

        return call, restore
