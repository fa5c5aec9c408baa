"""A whole window of the sampler, from pause to send, and its parts, per GiB of 4 KiB pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.run import ROOT, Run
from benchmarks.table import Row, row
from benchmarks.targets import PATTERN_PAGES_PER_GIB, needs_root, pattern, status_bytes, training
from benchmarks.timed_sampler import PARTS
from memtui.core.procfs import read_stat
from memtui.core.samples import Options
from memtui.recording.sampler.commands import SamplerConfig

WHOLE_MS_PER_GIB, PAUSED_MS_PER_GIB = 20, 13
INTERVAL_NS = 300_000_000


def measure(run: Run) -> Iterator[Row]:
    """A target that touches everything in every window, one that touches a twenty-fifth of it, and a training."""
    needs_root()
    gib, windows = (0.25, 8) if run.quick else (2, 40)
    pages = int(gib * PATTERN_PAGES_PER_GIB)
    touched = pages // 25
    for name, words in (
        (f"{gib:g} GiB, all touched", ("loop", "--pages", pages)),
        (f"{gib:g} GiB, {touched:,} pages touched", ("random", "--pages", pages, "--touched", touched)),
    ):
        with pattern(*words) as pid:
            yield from _rows(name, pid, windows, run)
    with training(images=4000 if run.quick else 50_000) as target:
        yield from _rows("training", target.pid, windows, run)


def _rows(name: str, pid: int, windows: int, run: Run) -> Iterator[Row]:
    rss_gib = status_bytes(pid, "VmRSS") / 2**30
    found = _windows(pid, windows, run.folder / "windows.json")

    def figures(part: str) -> list[float]:
        return [1e3 * window.get(part, 0.0) / rss_gib for window in found]

    yield row(f"whole sample, {name}", figures("whole"), "ms/GiB", WHOLE_MS_PER_GIB)
    yield row(f"paused, {name}", figures("paused"), "ms/GiB", PAUSED_MS_PER_GIB)
    for part in PARTS:
        yield row(f"part of it: {part}", figures(part), "ms/GiB")


def _windows(pid: int, windows: int, path: Path) -> list[dict[str, float]]:
    """Seconds in each part of each window but the first, of the product's own sampler."""
    found = windows_of(pid, windows, path, "benchmarks.timed_sampler", interval_s=INTERVAL_NS / 1e9)
    return [window for window in found if "walk" in window]


def windows_of(
    pid: int, windows: int, path: Path, module: str, *, interval_s: float, tracker: str = "pagetable"
) -> list[dict[str, Any]]:
    """What a sampler that is watched notes of each window but the first; ``cat`` takes its frames."""
    interval_ns = int(interval_s * 1e9)
    duration_ns = (windows + 1) * (interval_ns + 50_000_000)
    options = Options(interval_ns, tracker, duration_ns=duration_ns, children=False)
    order = SamplerConfig(pid, read_stat(pid).start_ticks, options)
    command = [sys.executable, "-m", module, str(path)]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
        assert cat.stdin is not None
        sampler = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=cat.stdin)
        cat.stdin.close()
        assert sampler.stdin is not None
        try:
            os.write(sampler.stdin.fileno(), order.to_line())
            code = sampler.wait(60 + duration_ns / 1e9)
        finally:
            sampler.kill()
            sampler.stdin.close()
            sampler.wait()
    if code:
        raise RuntimeError(f"the sampler exited with {code}")
    return json.loads(path.read_text())[1:]
