"""How much slower programs get that nobody wrote for memtui, with the default options, and what memtui says of that."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import twins
from benchmarks.recording import recording
from benchmarks.run import ROOT, Run, say
from benchmarks.table import Row, ratio, row
from benchmarks.targets import needs_root
from benchmarks.window_cost import costs_s, listening
from memtui.session.sample_arrays import SampleArrays
from memtui.session.session import Session

PROGRAMS = ROOT / "tests" / "end_to_end" / "strangers" / "programs"
FOR_EVER = 1_000_000
RANKS = ("torch_ranks.py",)  # of which torchrun starts two
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0")


@dataclass(frozen=True, slots=True)
class Spacing:
    """How far windows are apart whose cost is measured: ``window_cost.costs_s``."""

    interval_s: float
    after_s: float
    beside_s: float


NEAR, FAR = Spacing(1.8, 0.4, 0.6), Spacing(3.5, 1.2, 0.8)  # far: of large programs, and of long steps
STEPS_AFTER = 4  # least count of steps in the time after a window: what it costs is in whole steps


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the module that it needs, how long it takes until its first step, and its size if it takes one."""

    name: str
    needs: str
    begin_s: float
    mib: int | None = None
    spacing: Spacing = NEAR


ALL = (
    Program("random_writes.c", "", 2.0),
    Program("random_writes.c", "", 3.0, 512, FAR),
    Program("random_writes.c", "", 8.0, 3072, FAR),
    Program("numpy_power.py", "numpy", 3.0),
    Program("numpy_memmap.py", "numpy", 3.0),
    Program("sklearn_boosting.py", "sklearn", 10.0, spacing=FAR),
    Program("xgboost_trees.py", "xgboost", 10.0, spacing=FAR),
    Program("torch_language_model.py", "torch", 10.0),
    Program("torch_resnet18.py", "torch", 10.0),
    Program("torch_workers.py", "torch", 10.0),
    Program("torch_ranks.py", "torch", 20.0),
)
LIMIT_PERCENT = 2.0
LEAST_RATIO, MOST_RATIO = 0.67, 1.33  # of the estimate to what was measured
WINDOWS_S, QUICK_S = 90.0, 20.0


def measure(run: Run) -> Iterator[Row]:
    """Measure how much slower each program gets than its twin, and what one window costs it."""
    needs_root()
    all_losses: list[float] = []
    for program in ALL:
        name = f"{program.name} {program.mib} MiB" if program.mib else program.name
        if program.needs and importlib.util.find_spec(program.needs) is None:
            yield Row(name, failed=f"{program.needs} is not installed")
            continue
        size = () if program.mib is None else (program.mib,)
        command = command_of(program.name, FOR_EVER, *size, folder=run.folder)
        yield from _slow_down(run, name, command, program.begin_s, all_losses)
        yield from _windows(command, run.folder, program.begin_s, program.spacing, QUICK_S if run.quick else WINDOWS_S)
    yield row("all of them slowed down, default options", all_losses, "%", LIMIT_PERCENT)


def _slow_down(run: Run, name: str, command: list[str], begin_s: float, all_losses: list[float]) -> Iterator[Row]:
    """Measure how much slower a program gets than its twin, and add that to all losses."""
    if len(os.sched_getaffinity(0)) < 2:
        yield Row(f"{name} slowed down, default options", failed="twins need two CPUs")
        return
    blocks = twins.blocks(command, run.folder, begin_s, 1 if run.quick else 4, quick=run.quick)
    losses = twins.losses_percent(blocks)
    estimates = [block.lost_percent for block in blocks if block.lost_percent is not None]
    say(f"{name}: {losses} %, estimated {estimates}")
    all_losses += losses
    yield row(f"{name} slowed down, default options", losses, "%", LIMIT_PERCENT)
    yield row("... as memtui estimates it", estimates, "%")
    yield row("... windows in the 30 s of a block that count", [block.windows for block in blocks], "")


def command_of(name: str, *words: object, folder: Path) -> list[str]:
    """Return the command that runs a program of these; ``folder`` is for what has to be compiled."""
    if name.endswith(".c"):
        compiled = folder / Path(name).stem
        subprocess.run(["cc", "-O2", "-o", compiled, PROGRAMS / name], check=True)
        return [str(compiled), *map(str, words)]
    return [sys.executable, *(TORCHRUN if name in RANKS else ()), str(PROGRAMS / name), *map(str, words)]


def _windows(command: list[str], folder: Path, begin_s: float, spacing: Spacing, seconds: float) -> Iterator[Row]:
    """Measure what windows cost a program, beside what memtui estimates, and what as many moments without one cost."""
    path = folder / "windows.memtui"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as target:
        assert target.stderr is not None
        with listening(target.stderr) as steps:
            try:
                time.sleep(begin_s)
                unwatched_s = time.monotonic()
                time.sleep(seconds)
                with recording(target.pid, path, spacing.interval_s):
                    time.sleep(seconds)
            finally:
                twins.kill(target)
    reader = Session(path)
    table = reader.samples
    reader.close()
    yield from compared(steps.timeline_s, unwatched_s + np.arange(0, seconds, spacing.interval_s), table, spacing)


def compared(
    steps_s: NDArray[np.float64], unwatched_s: NDArray[np.float64], table: SampleArrays, spacing: Spacing
) -> Iterator[Row]:
    """Compare what windows cost, and moments without one, with what memtui estimated."""
    step_s = float(np.median(np.diff(steps_s))) if len(steps_s) > 1 else np.inf
    if step_s > spacing.after_s / STEPS_AFTER:
        yield Row(
            "... a window costs", failed=f"a step takes {step_s:.2g} s: too long to see in it what a window costs"
        )
        return
    costs_ms = {}
    for what, ends_s in (("moment without a window", unwatched_s), ("window", table.end_ns / 1e9)):
        costs_ms[what] = [1e3 * cost for cost in costs_s(steps_s, ends_s, spacing.after_s, spacing.beside_s)]
        yield row(f"... a {what} costs", costs_ms[what], "ms")
    estimates_ms = table.lost_ns[1:] / 1e6
    yield row("... as memtui estimates it", estimates_ms, "ms")
    yield row("... of that, held", table.paused_ns[1:] / 1e6, "ms")
    yield ratio("... estimate / measured", estimates_ms, costs_ms["window"], LEAST_RATIO, MOST_RATIO)
