"""Peak memory of sampler and recorder."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.recording import Recorded, of_training, record
from benchmarks.run import Run
from benchmarks.table import Row, once
from benchmarks.targets import PATTERN_PAGES_PER_GIB, needs_root, pattern

LIMIT_MIB, LIMIT_SHARE = 60, 0.005  # of the target's RSS


def measure(run: Run) -> Iterator[Row]:
    """The training, and much memory of which everything, or a random part, is touched in every window."""
    needs_root()
    seconds = 3 if run.quick else 30
    yield from _rows("training", of_training(run, 0.2))
    gib = 0.5 if run.quick else 4
    pages = int(gib * PATTERN_PAGES_PER_GIB)
    for name, words in (
        ("all touched", ("loop", "--pages", pages)),
        ("a random half touched", ("random", "--pages", pages, "--touched", pages // 2)),
    ):
        with pattern(*words) as pid:
            found = record(pid, run.folder / f"memory-{name.replace(' ', '-')}.memtui", 0.2, seconds)
        yield from _rows(f"{gib:g} GiB, {name}", found)


def _rows(name: str, found: Recorded) -> Iterator[Row]:
    limit = LIMIT_MIB + LIMIT_SHARE * found.target_rss_bytes / 2**20
    for part, peak in (("sampler", found.sampler_peak_bytes), ("recorder", found.recorder_peak_bytes)):
        yield once(f"peak RSS of the {part}, {name}", peak / 2**20, "MiB", limit)
