"""How much slower a program gets while it is recorded with the default options, against a twin of it.

The speed of a shared machine changes by more from one minute to the next than memtui costs. So two copies of a program
run, each on a CPU of its own. One is recorded by a memtui on the same CPU, where all that it costs falls on that copy;
the other one says how fast the machine is meanwhile. Then they change roles: what differs between CPUs cancels, too.
That memtui has one CPU, which the program keeps busy, is the worst case: it counts its own CPU time as lost.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.recording import environment
from benchmarks.run import memtui
from benchmarks.window_cost import Steps, listening
from memtui.session.session import Session

SETTLE_S = 10.0  # of a recording: from then on it keeps its budget
BLOCK_S, QUICK_BLOCK_S = 40.0, 14.0


@dataclass(frozen=True, slots=True)
class Block:
    """One of the twins was recorded.

    Attributes:
        recorded: which one, 0 or 1.
        per_second: steps of each.
        windows: how many ended in the time that counts; 0: it cost nothing then but memtui's rest.
        lost_percent: of its time, as memtui estimates it; None where it could not.
    """

    recorded: int
    per_second: tuple[float, float]
    windows: int
    lost_percent: float | None


@dataclass(frozen=True, slots=True)
class Twin:
    """A running copy of the program."""

    pid: int
    cpu: int
    steps: Steps


def blocks(command: Sequence[str], folder: Path, begin_s: float, pairs: int, *, quick: bool = False) -> list[Block]:
    """Run the twins, ``begin_s`` of which is their start, and record each of them ``pairs`` times for 40 s.

    ``command`` prints a line on standard error for each step. Raises RuntimeError where a twin makes no steps.
    """
    cpus = sorted(os.sched_getaffinity(0))[:2]
    block_s, result = QUICK_BLOCK_S if quick else BLOCK_S, []
    with ExitStack() as stack:
        both = [stack.enter_context(_twin(command, cpu)) for cpu in cpus]
        time.sleep(begin_s)
        for _ in range(pairs):
            for recorded in random.sample((0, 1), 2):  # events at fixed times favour neither
                result.append(_block(both, recorded, folder / "twin.memtui", block_s))
    return result


def losses_percent(measured: Sequence[Block]) -> list[float]:
    """Return what being recorded cost, a value for each pair of blocks that follow one another."""
    losses = []
    for pair in zip(measured[::2], measured[1::2], strict=True):
        of_first, of_second = (
            math.log(block.per_second[0] / block.per_second[1]) for block in sorted(pair, key=lambda b: b.recorded)
        )
        losses.append(100 * -math.expm1((of_first - of_second) / 2))
    return losses


@contextmanager
def _twin(command: Sequence[str], cpu: int) -> Iterator[Twin]:
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        ["taskset", "-c", str(cpu), *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=variables
    ) as child:
        assert child.stderr is not None
        with listening(child.stderr) as steps:
            try:
                yield Twin(child.pid, cpu, steps)
            finally:
                kill(child)


def _block(twins: Sequence[Twin], recorded: int, path: Path, block_s: float) -> Block:
    path.unlink(missing_ok=True)
    twin, counted_s = twins[recorded], time.monotonic() + SETTLE_S
    argv = ["taskset", "-c", str(twin.cpu), *memtui("record", twin.pid, "-o", path, "--duration", block_s)]
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet, env=environment())
    try:
        time.sleep(block_s)
        end_s = time.monotonic()
        rates = [_rate(each.steps, counted_s, end_s) for each in twins]
        if child.wait(60):
            raise RuntimeError(f"memtui record exited with {child.returncode}")
    finally:
        child.kill()
        child.wait()
    reader = Session(path)
    samples = reader.samples
    reader.close()
    inside = (samples.end_ns >= counted_s * 1e9) & (samples.end_ns <= end_s * 1e9)
    lost_ns = samples.lost_ns[inside]
    lost = None if np.isnan(lost_ns).any() else float(lost_ns.sum() / (end_s - counted_s) / 1e7)
    return Block(recorded, (rates[0], rates[1]), len(lost_ns), lost)


def _rate(steps: Steps, begin_s: float, end_s: float) -> float:
    """Return steps a second. Raises RuntimeError where there are too few."""
    times_s = steps.timeline_s
    inside = times_s[(times_s >= begin_s) & (times_s <= end_s)]
    if len(inside) < 3:
        raise RuntimeError(f"{len(inside)} steps in {end_s - begin_s:.0f} s are too few for a rate")
    return float((len(inside) - 1) / (inside[-1] - inside[0]))


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a program with its children: the ranks of torchrun would go on without it, and keep its output open."""
    try:
        tree = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in tree:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
