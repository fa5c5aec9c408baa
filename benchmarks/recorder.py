"""CPU time of sampler and recorder per sample of the bundled training."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.recording import of_training
from benchmarks.run import Run
from benchmarks.table import Row, row


def measure(run: Run) -> Iterator[Row]:
    """Nothing is promised here; the slow-down of the target is what counts."""
    for interval_s in (0.2, 1.0):
        found = of_training(run, interval_s)
        for part in ("sampler", "recorder"):
            values = found.cpu_ms_per_sample(part)
            yield row(f"CPU of the {part} per sample, training at {interval_s:g} s", values, "ms")
