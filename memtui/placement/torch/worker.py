"""The process that captures, measures and runs; the only process of ``memtui place`` that imports torch.

The process reads requests from its standard input, answers each on its standard output (``worker_protocol``), and ends
when its input ends. It checks its input between measurements, so it does not outlive the process that started it. The
output of the user's model is discarded.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import traceback
from typing import Any, TextIO

import psutil

from memtui.core.frozen_imports import frozen_imports
from memtui.core.json_fields import to_json
from memtui.core.units import size
from memtui.placement.memory import NoMemory
from memtui.placement.pool_specs import parse_pool
from memtui.placement.worker_protocol import (
    Answer,
    CapturedStep,
    CaptureStep,
    CreatedPools,
    CreatePools,
    Environment,
    ExecutedPlans,
    ExecutePlans,
    Failed,
    InGraphTimes,
    IsolatedTimes,
    MeasureBandwidths,
    MeasuredBandwidths,
    Ready,
    Request,
    TimeInGraph,
    TimeIsolated,
    Unable,
    request_of,
)
from memtui.probes.host import processor_name

SWITCH_S = 1e-4  # the longest wait of the thread that moves tensors for a thread that runs Python
ROOM = 0.8  # the part of the free memory that may be used


class ParentExited(Exception):
    """The process that sends requests has ended."""


class Worker:
    """Holds one captured step and its pools, and executes requests."""

    def __init__(self, requests: TextIO, answers: TextIO, threads: int) -> None:
        """Take the streams of requests and answers. Raises ImportError without torch."""
        with frozen_imports():
            import torch

            from memtui.placement.torch.clock import Clock, resolution_ns

        self._torch, self._requests, self._answers = torch, requests, answers
        # As the bench does: one CPU is left to the rest of the machine.
        torch.set_num_threads(threads or max(1, len(os.sched_getaffinity(0)) - 1))
        self._clock = Clock()
        self._resolution_ns = resolution_ns(self._clock)
        self._captured: Any = None
        self._machine: Any = None
        self._measuring: Any = None
        self._seed = 0

    def serve(self) -> None:
        """Answer requests until the input ends."""
        environment = Environment(
            self._torch.__version__,
            self._torch.get_num_threads(),
            processor_name(),
            self._torch.backends.cpu.get_cpu_capability(),
        )
        self._send(Ready(self._resolution_ns, environment))
        for line in self._requests:
            try:
                self._send(self._answer(request_of(json.loads(line))))
            except (BrokenPipeError, ParentExited):
                return
            except Exception as error:
                traceback.print_exc()
                self._send(Failed(type(error).__name__, self._why(error)))

    def _answer(self, request: Request) -> Answer:
        match request:
            case CaptureStep():
                return self._capture(request)
            case CreatePools():
                return self._create_pools(request)
            case MeasureBandwidths():
                return self._measure_bandwidths()
            case TimeIsolated(op, configurations, seconds):
                return IsolatedTimes(self._measuring.isolated(op, configurations, seconds))
            case TimeInGraph(placements, seconds):
                return InGraphTimes(self._measuring.in_graph(placements, seconds))
            case ExecutePlans():
                return self._execute(request)

    def _why(self, error: Exception) -> str:
        from memtui.placement.torch.models import NoStep

        line = str(error).partition("\n")[0]
        return line if isinstance(error, NoMemory | NoStep) else f"{type(error).__name__}: {line}"

    def _capture(self, request: CaptureStep) -> CapturedStep:
        from memtui.placement.torch.capture import capture
        from memtui.placement.torch.models import build

        self._seed = request.seed
        captured = capture(build(request.model, request.batch, request.seed), request.model)
        self._captured = captured
        copied = tuple(kernel.op.name for kernel in captured.kernels if kernel.copies)
        return CapturedStep(captured.graph, captured.fingerprint, copied)

    def _create_pools(self, request: CreatePools) -> CreatedPools:
        from memtui.placement.torch.placed_step import Machine
        from memtui.placement.torch.pools import Pool
        from memtui.placement.torch.timers import Measuring

        self._check_room(len(request.names))
        pools = []
        for name in request.names:
            try:
                pools.append(Pool(parse_pool(name)))
            except NoMemory as error:
                raise NoMemory(f"{name}: {error}" if not str(error).startswith(name) else str(error)) from None
        self._machine = Machine(self._captured, pools, self._clock)
        self._measuring = Measuring(self._machine, self._seed, self._check_listener)
        return CreatedPools(tuple(pool.report for pool in pools))

    def _check_room(self, pools: int) -> None:
        """Raise NoMemory where memory is short: Linux overcommits, and would kill the process later."""
        needed = pools * sum(storage.size_bytes for storage in self._captured.graph.storages.values())
        free = psutil.virtual_memory().available
        if needed > ROOM * free:
            raise NoMemory(f"every tensor in every pool takes {size(needed)}, and {size(free)} of memory are free")

    def _measure_bandwidths(self) -> MeasuredBandwidths:
        from memtui.placement.torch.bandwidth import measure

        return MeasuredBandwidths(tuple(measure(list(self._machine.pools.values()), self._clock)))

    def _execute(self, request: ExecutePlans) -> ExecutedPlans:
        from memtui.placement.torch.execution import execute

        plans = execute(self._machine, request.plans, request.repeats, self._seed, self._check_listener)
        return ExecutedPlans(tuple(plans))

    def _check_listener(self) -> None:
        """Raise ParentExited when the other end of the input is closed: a waiting parent sends nothing."""
        if select.select([self._requests], [], [], 0)[0]:
            raise ParentExited

    def _send(self, answer: Answer) -> None:
        self._answers.write(json.dumps(to_json(answer), separators=(",", ":")) + "\n")
        self._answers.flush()


def main() -> int:
    """Run the command line of the process and return its exit status."""
    parser = argparse.ArgumentParser(prog="memtui.placement.torch.worker")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    # From here on the standard streams lead to /dev/null, for the user's model.
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    sys.setswitchinterval(SWITCH_S)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    try:
        Worker(requests, answers, options.threads).serve()
    except (ImportError, RuntimeError) as error:
        print(json.dumps(to_json(Unable(str(error).partition("\n")[0]))), file=answers, flush=True)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
