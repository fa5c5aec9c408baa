"""What watching costs: CPU of the viewer and bytes to the terminal, a refresh a second."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from benchmarks.run import Run, memtui
from benchmarks.table import Row, row
from benchmarks.targets import needs_root, training
from benchmarks.terminal import COLUMNS, ROWS, Terminal

CPU_PERCENT, REFRESH_KB = 1.5, 50
GAP_S = 0.3  # between the last byte of one refresh and the first of the next
SETTLE_S = 8.0
SPAN_S = 3  # CPU is averaged over so many refreshes


def measure(run: Run) -> Iterator[Row]:
    """``memtui attach`` on the bundled training, followed live: its first process is the viewer."""
    needs_root()
    seconds = 6 if run.quick else 60
    with training() as target:
        words = memtui(
            "attach", target.pid, "--interval", 0.2, "--max-overhead", "none", "-o", run.folder / "viewer.memtui"
        )
        with Terminal(words, home=run.folder) as terminal:
            _wait_until_live(terminal)
            time.sleep(SETTLE_S)
            begin, cpu = time.monotonic(), [_cpu_seconds(terminal.process.pid)]
            for span in range(seconds // SPAN_S):
                time.sleep(max(0.0, begin + (span + 1) * SPAN_S - time.monotonic()))
                cpu.append(_cpu_seconds(terminal.process.pid))
            end = time.monotonic()
            kept = [(t, len(data)) for t, data in list(terminal.chunks) if begin <= t < end]
    size = f"{COLUMNS}x{ROWS}"
    used = [100 * (after - before) / SPAN_S for before, after in itertools.pairwise(cpu)]
    yield row(f"CPU of the viewer, live, {size}", used, "%", CPU_PERCENT)
    yield row(f"bytes per refresh, {size}", [b / 1e3 for b in refreshes(kept)], "kB", REFRESH_KB)


def refreshes(chunks: list[tuple[float, int]]) -> list[int]:
    """Bytes of each burst of output; bursts are apart by at least ``GAP_S``."""
    found: list[int] = []
    last = float("-inf")
    for t, size in chunks:
        if t - last > GAP_S:
            found.append(0)
        found[-1] += size
        last = t
    return found


def _cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, by its clock (the number is the kernel's name for it)."""
    return time.clock_gettime_ns(~pid << 3 | 2) / 1e9


def _wait_until_live(terminal: Terminal) -> None:
    deadline = time.monotonic() + 30
    while "LIVE" not in terminal.text():
        if time.monotonic() > deadline or terminal.process.poll() is not None:
            raise RuntimeError(f"the screen did not go live:\n{terminal.text()}")
        time.sleep(0.5)
