"""Importing what other tools wrote, as a user does it: the whole command, and the first picture of the session."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.run import Run, memtui
from benchmarks.table import Row, row
from benchmarks.terminal import Terminal

SMALL_ROWS, SMALL_S = 5_700, 0.5
LARGE_ROWS, QUICK_ROWS = 1_000_000, 20_000
OPEN_S = 1.0


def measure(run: Run) -> Iterator[Row]:
    """A text of ZPP-MEM as long as those of its history, and large files of three kinds."""
    times = 3 if run.quick else 10
    small = run.folder / "small.txt"
    small.write_text(zpp_text(SMALL_ROWS))
    session = run.folder / "small.memtui"
    found = [_import(small, session) for _ in range(times + 1)][1:]
    yield row(f"import of {SMALL_ROWS:,} rows of ZPP text", found, "s", SMALL_S)
    rows = QUICK_ROWS if run.quick else LARGE_ROWS
    for name, write in (("ZPP text", _zpp), ("a Chrome trace", _chrome), ("a CUDA snapshot", _snapshot)):
        large, session = run.folder / "large", run.folder / f"{write.__name__}.memtui"
        write(large, rows)
        what = f"{rows:,} rows of {name} ({large.stat().st_size >> 20} MiB)"
        yield row(f"import of {what}", [_import(large, session) for _ in range(1 if run.quick else 3)], "s")
        yield row(f"replay of {what}: first picture", [_open(session, run.folder) for _ in range(times)], "s", OPEN_S)


def _import(path: Path, session: Path) -> float:
    begin = time.perf_counter()
    subprocess.run(memtui("import", path, "-o", session, "--force"), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def _open(path: Path, folder: Path) -> float:
    with Terminal(memtui("replay", path), home=folder) as terminal:
        terminal.wait_quiet(1.0, 20)
        found = terminal.when(lambda text: "alive at the cursor" in text and "held" in text)
        terminal.send("q")
        if found is None:
            raise RuntimeError(f"no picture of {path.name}:\n{terminal.text()}")
        return found


def zpp_text(rows: int) -> str:
    """A net that is trained: half of the rows change nothing, the others come and go."""
    chance, held, usage, lines = random.Random(1), [], 0, []
    for n in range(rows):
        scope = ("forward", "gradients", "optimizer")[n % 3000 // 1000]
        op, change = f"{scope}/layer_{n % 30}/MatMul", 0
        if held and (len(held) > 300 or chance.random() < 0.23):
            op, size = held.pop(chance.randrange(len(held)))
            change = -size
        elif chance.random() < 0.3:
            change = chance.randrange(1, 1 << 20)
            held.append((op, change))
        usage += change
        lines.append(f"{1_560_104_632_000_000 + 10 * n} {usage} {change} {op}\n")
    return "".join(lines)


def _zpp(path: Path, rows: int) -> None:
    path.write_text(zpp_text(rows))


def _chrome(path: Path, rows: int) -> None:
    events = []
    for n in range(rows):
        where = {"pid": 1, "tid": 1, "ts": 2 * n + 0.5}
        size, address = (4096, n // 2 % 500 + 1) if n % 2 == 0 else (-4096, n // 2 % 500 + 1)
        told = {"Bytes": size, "Addr": address, "Total Allocated": 4096, "Device Type": 0, "Device Id": -1}
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", **where, "ts": 2 * n, "dur": 1.5})
        events.append({"ph": "i", "name": "[memory]", **where, "args": told})
    path.write_text(json.dumps({"baseTimeNanoseconds": 10**18, "traceEvents": events}))


def _snapshot(path: Path, rows: int) -> None:
    frames = [[{"name": f"f{k}", "filename": f"/x/m{k}.py", "line": k} for k in range(n, n + 10)] for n in range(100)]
    events = []
    for n in range(rows // 2):
        common = {"addr": 4096 * (n + 1), "size": 4096, "stream": 0, "time_us": 10**15 + n}
        events.append({"action": "alloc", **common, "frames": frames[n % 100]})
        events.append({"action": "free_completed", **common, "frames": []})
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}))
