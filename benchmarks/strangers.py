"""How much slower programs get that nobody wrote for memtui, with the default options, and what memtui says of that."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recording import recording
from benchmarks.run import ROOT, Run, memtui, say
from benchmarks.table import Row, row
from benchmarks.targets import needs_root
from benchmarks.window_cost import costs_s, listening
from memtui.session.session import Session

PROGRAMS = ROOT / "tests" / "end_to_end" / "strangers" / "programs"
FOR_EVER = "1000000"
# Name and size in MiB, the module that it needs, and how long it takes until its first step.
ALL = (
    (("random_writes.c",), "", 2.0),
    (("random_writes.c", "3072"), "", 8.0),
    (("numpy_power.py",), "numpy", 3.0),
    (("numpy_memmap.py",), "numpy", 3.0),
    (("sklearn_boosting.py",), "sklearn", 10.0),
    (("torch_language_model.py",), "torch", 10.0),
    (("torch_workers.py",), "torch", 10.0),
)
LIMIT_PERCENT = 2.0
WINDOWS_S, QUICK_S = 90.0, 20.0


@dataclass(frozen=True, slots=True)
class Spacing:
    """How far windows are apart whose cost is measured: ``window_cost.costs_s``."""

    interval_s: float
    after_s: float
    beside_s: float


NEAR, FAR = Spacing(1.8, 0.4, 0.6), Spacing(3.5, 1.2, 0.8)
FAR_MIB = 512


def measure(run: Run) -> Iterator[Row]:
    """Measure each program in pairs of blocks, watched and not, and what one window costs it."""
    needs_root()
    for (name, *size), needs, begin_s in ALL:
        program = f"{name} {size[0]} MiB" if size else name
        if needs and importlib.util.find_spec(needs) is None:
            yield Row(program, failed=f"{needs} is not installed")
            continue
        command = _command((name, FOR_EVER, *size), run.folder)
        blocks = ("--blocks", 2, "--seconds", 5) if run.quick else ("--blocks", 6, "--seconds", 10)
        found = _calibrated(command, run.folder, begin_s, blocks)
        cost, lost = found["slow_down"], found["overhead"]["lost_fraction"]
        value, low, high = (None if cost[name] is None else 100 * cost[name] for name in ("median", "low", "high"))
        say(f"{program}: {value} [{low}, {high}] %, estimated {lost}")
        yield Row(f"{program} slowed down, default options", "%", value, low, high, cost["count"], LIMIT_PERCENT)
        yield Row("... as memtui estimates it", "%", None if lost is None else 100 * lost)
        spacing = FAR if size and int(size[0]) >= FAR_MIB else NEAR
        yield from _windows(command, run.folder, begin_s, spacing, QUICK_S if run.quick else WINDOWS_S)


def _command(program: tuple[str, ...], folder: Path) -> list[str]:
    name, *words = program
    if not name.endswith(".c"):
        return [sys.executable, str(PROGRAMS / name), *words]
    made = folder / "program"
    subprocess.run(["cc", "-O2", "-o", made, PROGRAMS / name], check=True)
    return [str(made), *words]


def _calibrated(command: list[str], folder: Path, begin_s: float, options: tuple[object, ...]) -> dict[str, Any]:
    """Start a program and return what ``memtui calibrate --json`` says of it."""
    log = folder / "steps"
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as target:
        try:
            time.sleep(begin_s)
            calibrate = memtui("calibrate", target.pid, "--json", *options)
            done = subprocess.run(calibrate, stdout=subprocess.PIPE, text=True, check=True)
        finally:
            target.kill()
    return dict(json.loads(done.stdout))


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
                target.kill()
    reader = Session(path)
    table = reader.samples
    reader.close()
    made_s = steps.timeline_s
    for what, ends_s in (
        ("... a moment without a window costs", np.arange(unwatched_s, unwatched_s + seconds, spacing.interval_s)),
        ("... a window costs", table.end_ns / 1e9),
    ):
        yield row(what, [1e3 * cost for cost in costs_s(made_s, ends_s, spacing.after_s, spacing.beside_s)], "ms")
    yield row("... as memtui estimates it", table.lost_ns[1:] / 1e6, "ms")
    yield row("... of that, held", table.paused_ns[1:] / 1e6, "ms")
