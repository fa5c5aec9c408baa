"""Size of a session per sample."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.recording import Recorded, of_training, record
from benchmarks.run import Run
from benchmarks.table import Row, once
from benchmarks.targets import needs_root, pattern

LIMIT_KB = 30
PAGES = 262_144  # 1 GiB
SCATTERED = (25_000, PAGES // 2)  # half of them hold one bit of information per page: nothing compresses that


def measure(run: Run) -> Iterator[Row]:
    """A closed session, all that is in it by the number of its samples."""
    needs_root()
    yield _row("training at 0.2 s", of_training(run, 0.2))
    for touched in SCATTERED:
        with pattern("random", "--pages", PAGES, "--touched", touched) as pid:
            found = record(pid, run.folder / f"scattered-{touched}.memtui", 0.2, 3 if run.quick else 30)
        yield _row(f"{touched:,} pages scattered over 1 GiB", found)


def _row(name: str, found: Recorded) -> Row:
    what = f"session per sample, {name} ({found.all_samples} samples)"
    return once(what, found.file_bytes / found.all_samples / 1e3, "kB", LIMIT_KB)
