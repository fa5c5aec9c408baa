"""Lets programs grow into a memory limit, and checks what memtui foretold when a third of the way was left.

Run as ``python -m benchmarks.forecasts [RUNS]`` (root): 20 runs unless told otherwise, three at a time. Each program
grows in a cgroup of its own until the kernel kills it after 1.5 to 5 minutes, and is recorded with the default options
meanwhile. A forecast hits where the time that was left lies between half and twice of what it said. Exits with 1 if
fewer than nine of ten do.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.run import memtui, say
from memtui.core.units import size, span
from memtui.reports.source import Source
from memtui.reports.verdict.recent import Recent
from memtui.study.runs.cgroup_limit import LimitGroup

RUNS, AT_ONCE, LEAST_HITS = 20, 3, 0.9
LEAST_S, MOST_S = 90.0, 300.0  # until the kernel kills
WAY_GONE = 2 / 3
FACTOR = 2.0
MIB = 1 << 20
# `add` keeps that many MiB more, and touches them; `rate` is in MiB a second, and all begin with 40 MiB.
_PROGRAM = """
import random, sys, time
rate, chance = float(sys.argv[1]), random.Random(int(sys.argv[2]))
kept = []
def add(mib):
    kept.append(bytearray(b"x") * int(mib * (1 << 20)))
add(40)
began_s = time.monotonic()
def wait():
    time.sleep(0.1)
    return time.monotonic() - began_s
"""
KINDS = {
    "steady": "held = 0.0\nwhile True:\n    now = wait() * rate\n    add(now - held)\n    held = now",
    "by steps of 4 s": "held = 0.0\nwhile True:\n    now = wait() // 4 * 4 * rate\n    if now > held:\n"
    "        add(now - held)\n        held = now",
    "in bursts of random size": "while True:\n    wait()\n    if chance.random() < 0.05:\n"
    "        add(chance.uniform(0, 4) * rate)",
    "saw-tooth": "held, n = 0.0, 0\nwhile True:\n    now = wait()\n    n += 1\n    add(now * rate - held)\n"
    "    held = now * rate\n    saw = bytearray(b'y') * int(n % 80 * (1 << 19))",
    "after a start of 100 MiB": "add(100)\nheld = 0.0\nwhile True:\n    now = wait() * rate\n    add(now - held)\n"
    "    held = now",
}


class Outcome(NamedTuple):
    """What a run came to. ``forecast_s``: the forecast when a third of the way was left; None: it said nothing."""

    kind: str
    whole_s: float
    left_s: float
    forecast_s: float | None
    text: str

    @property
    def hit(self) -> bool:
        """Whether the forecast was right within a factor of two."""
        return self.forecast_s is not None and self.left_s / FACTOR <= self.forecast_s <= self.left_s * FACTOR


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    outcomes = []
    with ProcessPoolExecutor(AT_ONCE) as pool:
        for outcome in pool.map(watch, range(runs)):
            outcomes.append(outcome)
            say(f"{'hit   ' if outcome.hit else 'missed'} {outcome.text}")
    hits = sum(outcome.hit for outcome in outcomes)
    print(f"{hits} of {runs} forecasts hit within a factor of {FACTOR:g} when a third of the way was left")
    return 0 if hits >= LEAST_HITS * runs else 1


def watch(number: int) -> Outcome:
    """Record one program until it is killed, and return what was said of it."""
    chance = random.Random(number)
    kind = list(KINDS)[number % len(KINDS)]
    rate_mib_per_s = chance.uniform(1.0, 4.0)
    limit_bytes = round((60 + 100 * ("100 MiB" in kind) + rate_mib_per_s * chance.uniform(LEAST_S, 200.0)) * MIB)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "s.memtui"
        group = LimitGroup.make()
        try:
            group.limit(limit_bytes, 0, 10.0)
            words = [sys.executable, "-c", _PROGRAM + KINDS[kind], f"{rate_mib_per_s:.3f}", str(number)]
            target = subprocess.Popen(["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', group.folder, *words])
            began_ns = time.monotonic_ns()
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            recording = subprocess.Popen(memtui("record", target.pid, "-o", path), **quiet)
            status = target.wait(2 * MOST_S)
            killed_ns = time.monotonic_ns()
            recording.wait(60)
        finally:
            group.remove()
        at_ns = began_ns + round(WAY_GONE * (killed_ns - began_ns))
        forecast_s, looked_ns = _forecast(path, at_ns)
    whole_s, left_s = (killed_ns - began_ns) / 1e9, (killed_ns - looked_ns) / 1e9
    forecast = "nothing" if forecast_s is None else span(forecast_s)
    text = (
        f"{number:2} {kind}, {rate_mib_per_s:.1f} MiB/s, limit {size(limit_bytes)}: killed ({status}) after "
        f"{span(whole_s)}; {span(left_s)} before that it said {forecast}"
    )
    return Outcome(kind, whole_s, left_s, forecast_s, text)


def _forecast(path: Path, at_ns: int) -> tuple[float | None, int]:
    """Return the forecast at the last window that ended by then, in seconds, and when that window ended."""
    with closing(Source(path)) as source:
        index = max(int(source.samples.end_ns.searchsorted(at_ns, side="right")) - 1, 0)
        recent = Recent(source, index)
        limit = recent.limit
        forecast = limit.forecast if limit is not None and limit.cgroup else None
        return None if forecast is None else forecast.full_in_s, recent.end_ns


if __name__ == "__main__":
    sys.exit(main())
