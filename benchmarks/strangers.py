"""How much slower programs get that nobody wrote for memtui, with the default options, and what memtui says of that."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.run import ROOT, Run, memtui, say
from benchmarks.table import Row
from benchmarks.targets import needs_root

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
# As often as it goes: what is lost then is much more than the noise of a machine, so that the estimate can be judged.
OFTEN = ("--interval", "0.1", "--max-overhead", "none")


def measure(run: Run) -> Iterator[Row]:
    """Measure each program in pairs of blocks, watched and not."""
    needs_root()
    for (name, *size), needs, begin_s in ALL:
        program = f"{name} {size[0]} MiB" if size else name
        if needs and importlib.util.find_spec(needs) is None:
            yield Row(program, failed=f"{needs} is not installed")
            continue
        for what, options, pairs, seconds, limit in (
            ("default options", (), 6, 10, LIMIT_PERCENT),
            ("every 0.1 s, no budget", OFTEN, 6, 6, None),
        ):
            blocks = ("--blocks", 2, "--seconds", 5) if run.quick else ("--blocks", pairs, "--seconds", seconds)
            found = calibrated((name, FOR_EVER, *size), run.folder, begin_s, (*blocks, *options))
            cost, lost = found["slow_down"], found["overhead"]["lost_fraction"]
            bounds = [None if cost[name] is None else 100 * cost[name] for name in ("median", "low", "high")]
            say(f"{program}, {what}: {bounds} %, estimated {lost}")
            yield Row(f"{program} slowed down, {what}", "%", *bounds, cost["count"], limit)
            yield Row("... as memtui estimates it", "%", None if lost is None else 100 * lost)


def calibrated(program: tuple[str, ...], folder: Path, begin_s: float, options: tuple[object, ...]) -> dict[str, Any]:
    """Start a program with its arguments and return what ``memtui calibrate --json`` says of it."""
    log = folder / "steps"
    name, *words = program
    command = [sys.executable, str(PROGRAMS / name), *words]
    if name.endswith(".c"):
        made = folder / "program"
        subprocess.run(["cc", "-O2", "-o", made, PROGRAMS / name], check=True)
        command = [str(made), *words]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as target:
        try:
            time.sleep(begin_s)
            calibrate = memtui("calibrate", target.pid, "--json", *options)
            done = subprocess.run(calibrate, stdout=subprocess.PIPE, text=True, check=True)
        finally:
            target.kill()
    return dict(json.loads(done.stdout))
