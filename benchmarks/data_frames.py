"""What ``memtui.open`` costs a program: its import, the windows of a long session, and its pages a part at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.run import Run
from benchmarks.seek import long_session
from benchmarks.table import Row, row

IMPORT_MS, WINDOWS_S, STREAM_MIB = 20.0, 0.3, 200.0
_IMPORT = """
import time
begin_ns = time.perf_counter_ns()
import memtui
print((time.perf_counter_ns() - begin_ns) / 1e6)
"""
# What pandas and pyarrow take to be imported is theirs.
_WINDOWS = """
import sys, time, pandas, pyarrow, memtui
for _ in range(2):
    begin_ns = time.perf_counter_ns()
    with memtui.open(sys.argv[1]) as session:
        session.windows.to_pandas()
    print((time.perf_counter_ns() - begin_ns) / 1e9)
"""
_PAGES = """
import sys, pandas, pyarrow, memtui
from benchmarks.targets import status_bytes
before_bytes = status_bytes("self", "VmHWM")  # ru_maxrss has that of the parent, too
with memtui.open(sys.argv[1]) as session:
    ...
print((status_bytes("self", "VmHWM") - before_bytes) / 2**20)
"""
_STREAMED = (
    "print(sum(part.num_rows for part in pyarrow.RecordBatchReader.from_stream(session.pages)), file=sys.stderr)"
)


def measure(run: Run) -> Iterator[Row]:
    """Files are in the page cache: the first of the runs is left out."""
    times, path = 3 if run.quick else 10, long_session(run)
    yield row("import memtui", [_printed(_IMPORT)[0] for _ in range(times + 1)][1:], "ms", IMPORT_MS)
    first, again = zip(*([_printed(_WINDOWS, path) for _ in range(times + 1)][1:]), strict=True)
    yield row("open a long session, and its windows in a data frame", again, "s", WINDOWS_S)
    yield row("... the first time, when memtui imports what that takes", first, "s")
    yield row("its pages a part at a time: memory", _printed(_PAGES.replace("...", _STREAMED), path), "MiB", STREAM_MIB)
    yield row("... and as a data frame", _printed(_PAGES.replace("...", "session.pages.to_pandas()"), path), "MiB")


def _printed(program: str, *argv: object) -> list[float]:
    """Return the numbers that a program prints."""
    command = [sys.executable, "-c", program, *map(str, argv)]
    return [
        float(line) for line in subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    ]
