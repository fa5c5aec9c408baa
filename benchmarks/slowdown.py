"""How much slower the bundled training is while memtui records it: interleaved blocks with and without."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.recording import recording
from benchmarks.run import Run, say
from benchmarks.table import Row, slower
from benchmarks.targets import Training, needs_root, training

LIMITS_PERCENT = {0.2: 4, 1.0: 2}
SETTLE_SECONDS = 1.0


def measure(run: Run) -> Iterator[Row]:
    """Pairs of neighbouring blocks; which half of a pair comes first takes turns, so that a drift cancels."""
    needs_root()
    pairs, seconds = (4, 4.0) if run.quick else (20, 10.0)
    with training() as target:
        for interval_s, limit in LIMITS_PERCENT.items():
            on: list[float | None] = []
            off: list[float | None] = []
            for pair in range(pairs):
                for recorded in (pair % 2 == 0, pair % 2 == 1):
                    if recorded:
                        path = run.folder / f"slowdown-{interval_s:g}-{pair}.memtui"
                        with recording(target.pid, path, interval_s):
                            on.append(_block(target, seconds))
                        path.unlink()
                    else:
                        off.append(_block(target, seconds))
                say(f"slowdown: {interval_s:g} s, pair {pair + 1} of {pairs}: {on[-1]} {off[-1]} s per step")
            yield slower(f"training slowed down, recorded at {interval_s:g} s", on, off, limit)


def _block(target: Training, seconds: float) -> float | None:
    time.sleep(SETTLE_SECONDS)
    begin = time.monotonic()
    time.sleep(seconds)
    return target.seconds_per_step(begin, begin + seconds)
