"""``memtui bench`` against ``torch.utils.benchmark`` on the same operators."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.run import Run, say
from benchmarks.table import Row, Skip, slower
from memtui.bench.configuration import Configuration, make
from memtui.bench.cpu_speed import Yardstick, slower_readings
from memtui.bench.messages import Done, Failed
from memtui.bench.plan import CPU_BLOCK_NS, BenchPlan
from memtui.bench.result import Conditions, Series, Visit, evaluate
from memtui.bench.undisturbed_blocks import quiet_blocks
from memtui.bench.worker_client import WorkerProcess

PLAN = BenchPlan(windows=3, patience=4, seconds=0.5, warm_up_s=4.0)
TORCH_S = 1.5  # as much load as the windows of the plan
BLOCK_S = CPU_BLOCK_NS / 1e9
# As the other tool calls them: with the same tensors every time, which lie in the cache.
GIVEN = {"cache": "warm", "weights": "same"}
CHOSEN = (
    ("conv2d", {"n": 1, "cin": 64, "cout": 64, "h": 28, "k": 3}),
    ("linear", {"m": 64, "in": 512, "out": 512}),
    ("relu", {"elements": 1 << 16}),
)


def measure(run: Run) -> Iterator[Row]:
    """Pairs of both, one after the other, one thread each; who is first takes turns. Only quiet blocks count."""
    try:
        import torch
        from torch.utils.benchmark import Timer
    except ImportError:
        raise Skip("torch is not installed") from None
    torch.set_num_threads(1)
    pairs = 3 if run.quick else 10
    worker, yardstick = WorkerProcess("cpu", 1), Yardstick(torch, 1)
    try:
        for op, given in CHOSEN:
            configuration = make(op, {**given, **GIVEN})
            operator, p = configuration.operator, configuration.parameters
            inputs = tuple(torch.randn(t.shape) for t in operator.inputs(p))
            weights = tuple(torch.randn(t.shape) for t in operator.weights(p))
            names = {"call": operator.bind(torch, p), "x": inputs, "w": weights}
            timer = Timer("call(x, w)", globals=names, num_threads=1)
            ours: list[float | None] = []
            theirs: list[float | None] = []
            for pair in range(pairs):
                for mine in (pair % 2 == 0, pair % 2 == 1):
                    if mine:
                        ours.append(_ours(worker, configuration))
                    else:
                        with torch.inference_mode():
                            theirs.append(_theirs(timer, yardstick))
                say(f"operators: {op}, pair {pair + 1} of {pairs}: {ours[-1]:.0f} {theirs[-1]:.0f} ns")
            yield slower(f"{configuration.title}: time by memtui against torch.utils.benchmark", ours, theirs)
    finally:
        worker.close()


def _theirs(timer: Any, yardstick: Yardstick) -> float:
    """Median nanoseconds of a call, while the CPU ran at its full speed, as for ours."""
    calls = max(1, round(BLOCK_S / timer.blocked_autorange().median))
    blocks: list[float] = []
    readings = [yardstick.read()]
    end = time.monotonic() + TORCH_S
    while time.monotonic() < end:
        blocks.append(timer.timeit(calls).median * 1e9)
        readings.append(yardstick.read())
    quiet = quiet_blocks(blocks, slower_readings(readings), yardstick.limit_ns())
    return float(np.median(quiet if len(quiet) else blocks))


def _ours(worker: WorkerProcess, configuration: Configuration) -> float:
    worker.measure(configuration, PLAN)
    while True:
        reply = worker.receive(60)
        if reply is None or isinstance(reply, Failed):
            raise RuntimeError(f"the worker: {reply}")
        if isinstance(reply, Done):
            visit = Visit(reply.windows, Series(), Conditions(yard_limit_ns=reply.yard_limit_ns))
            found = evaluate(configuration, PLAN, visit).measured_ns  # theirs is not brought to any other speed, either
            assert found is not None
            return found
