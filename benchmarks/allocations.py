"""The screen of recorded training steps, in a real terminal: from the key to the last byte that answers it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import traced
from benchmarks.run import Run, memtui
from benchmarks.startup import painted
from benchmarks.table import Row, row
from benchmarks.terminal import Terminal

OPEN_S, STEP_MS = 1.0, 30
RIGHT, DOWN, RUB_OUT, ESCAPE = "\x1b[C", "\x1b[B", "\x7f", "\x1b"
QUIET_S = 0.25  # longer than anything a key does
LISTS = (
    ("tensors", "1", RIGHT),
    ("events", "2", RIGHT),
    ("events, next row", "2", DOWN),
    ("layers", "3", RIGHT),
)


def measure(run: Run) -> Iterator[Row]:
    """One step of a million rows, and two thousand of five hundred."""
    large, times = (20_000, 5) if run.quick else (1_000_000, 30)
    many = 100 if run.quick else 2_000
    for name, steps, rows in (("a step", 1, large), (f"{many:,} steps", many, 500)):
        path = run.folder / f"{steps}.memtui"
        traced.write_session(path, steps, rows)
        what = f"{name} of {rows:,} rows"
        opened = [_open(path, run.folder) for _ in range(2 if run.quick else 6)]
        yield row(f"{what}: first paint of replay", [first for first, _ in opened], "s", OPEN_S)
        yield row(f"{what}: the screen opens", [then for _, then in opened], "s", OPEN_S)
        with Terminal(memtui("replay", path), home=run.folder) as terminal:
            _enter(terminal)
            for words, choose, key in LISTS:
                terminal.send(choose + "P")
                terminal.wait_quiet(1.0, 10)
                found = [1e3 * _answer(terminal, key) for _ in range(times)]
                yield row(f"{what}: a key, {words}", found, "ms", STEP_MS)
            yield row(f"{what}: a letter of a filter", _filter(terminal, times // 5), "ms", STEP_MS)
            if steps > 1:
                found = [1e3 * _answer(terminal, "N") for _ in range(times)]
                yield row(f"{what}: to the previous step", found, "ms")
            terminal.send("q")


def _open(path: Path, folder: Path) -> tuple[float, float]:
    """Seconds until a replay shows its session, and from the key to the picture of a step."""
    with Terminal(memtui("replay", path), home=folder) as terminal:
        sent = _enter(terminal)
        first = terminal.when(painted)
        found = terminal.when(lambda text: "recorded   step" in text and "alive at the cursor" in text)
        terminal.send("q")
        if first is None or found is None:
            raise RuntimeError(f"no step of {path.name}:\n{terminal.text()}")
        return first, found - (sent - terminal.began)


def _enter(terminal: Terminal) -> float:
    """Press the key once the screen of the session stands; when that was."""
    terminal.wait_quiet(1.0, 30)
    sent, before = time.monotonic(), len(terminal.chunks)
    terminal.send("a")
    while b"recorded   step" not in b"".join(data for _, data in terminal.chunks[before:]):
        if time.monotonic() > sent + 60:
            raise RuntimeError(f"no step is shown:\n{terminal.text()}")
        time.sleep(0.05)
    terminal.wait_quiet(0.5, 60)
    return sent


def _filter(terminal: Terminal, times: int) -> list[float]:
    """Milliseconds of each letter typed and taken back, in the list of events."""
    terminal.send("2/")
    terminal.wait_quiet(1.0, 10)
    found = [1e3 * _answer(terminal, key) for _ in range(times) for key in (*"gelu", *[RUB_OUT] * 4)]
    terminal.send(ESCAPE)
    terminal.wait_quiet(1.0, 10)
    return found


def _answer(terminal: Terminal, key: str) -> float:
    """Seconds from a key to the last byte that it made."""
    sent, before = time.monotonic(), len(terminal.chunks)
    terminal.send(key)
    while len(terminal.chunks) == before:
        if time.monotonic() > sent + 10:
            raise RuntimeError(f"nothing answers {key!r}:\n{terminal.text()}")
        time.sleep(0.002)
    terminal.wait_quiet(QUIET_S, 10)
    return terminal.chunks[-1][0] - sent
