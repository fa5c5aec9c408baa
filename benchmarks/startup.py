"""How soon there is something to see: ``--help``, and the first whole picture of a replay."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.recording import of_training
from benchmarks.repeated import repeat
from benchmarks.run import Run, memtui
from benchmarks.seek import long_session
from benchmarks.table import Row, row
from benchmarks.terminal import Terminal

HELP_S, FIRST_PAINT_S = 0.15, 0.5
LARGE_BYTES = 1 << 30
_WSS = re.compile(r"working set .* (?:now|here) [\d.]+ [KMG]iB")


def measure(run: Run) -> Iterator[Row]:
    """Files are in the page cache: the first of the runs is left out."""
    times = 3 if run.quick else 10
    yield row("memtui --help", [_help() for _ in range(times + 1)][1:], "s", HELP_S)
    training, long = of_training(run, 0.2), long_session(run)
    large = run.folder / "large.memtui"
    repeat(long, large, LARGE_BYTES >> 5 if run.quick else LARGE_BYTES)
    for name, path in (
        (f"training, {training.all_samples} samples", training.path),
        ("long", long),
        (f"{large.stat().st_size >> 20} MiB", large),
    ):
        found = [_first_paint(path, run.folder) for _ in range(times + 1)][1:]
        yield row(f"first paint of replay, {name}", found, "s", FIRST_PAINT_S)


def _help() -> float:
    begin = time.perf_counter()
    subprocess.run(memtui("--help"), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def _first_paint(path: Path, folder: Path) -> float:
    with Terminal(memtui("replay", path), home=folder) as terminal:
        terminal.wait_quiet(1.0, 20)
        found = terminal.when(painted)
        if found is None:
            raise RuntimeError(f"no picture of {path.name}:\n{terminal.text()}")
        return found


def painted(text: str) -> bool:
    """Whether the table and a working-set size stand on the screen."""
    return "address ranges" in text and _WSS.search(text) is not None
