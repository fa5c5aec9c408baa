"""A child process that reads a memray capture with memray's own reader: the only one that imports memray.

memray reads a capture in C++ and trusts it: a file that is damaged, or made for the purpose, may end the process. The
capture is standard input, a regular file. To standard output go lines of JSON, some of progress (``{"share": ...}``,
of the rows themselves and then of their times) and then ``{"error": ...}`` or what ``memray_capture`` reads, followed
by its columns, i8 each.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import IO, Any

from memtui.analysis.stack_capture import MOST_BLOCKS, MOST_READINGS
from memtui.core.call_stacks import CallStacks, Frame
from memtui.core.processes import exit_with_parent

CAPTURE = "/proc/self/fd/0"
DUMP_RECORDS = f"""
import sys
from memtui.core.processes import exit_with_parent
exit_with_parent(int(sys.argv[1]))
import memray
memray.dump_all_records({CAPTURE!r})
"""
_PYMALLOC_FREE, _FREE, _MMAP, _MUNMAP = 1, 5, 14, 15  # memray.AllocatorType
_PROGRESS_ROWS = 1 << 16
_READING = re.compile(rb"MEMORY_RECORD time=(\d+) ")


Progress = Callable[[int, int | None], None]
"""Takes how many rows were read, and how many of them allocate; None: only the times of rows are read."""


class _Blocks:
    """The blocks of a capture, found by address where they are freed."""

    def __init__(self) -> None:
        self.columns = [array("q") for _ in range(6)]
        self._alive: dict[int, int] = {}
        self._starts: list[int] = []  # of mappings, rising, and the number of the block of each
        self._mappings: list[int] = []

    def add(self, row: int, address: int, size_bytes: int, stack: int, count: int = 1) -> int:
        """Add a block and return its number. ``count``: of allocations."""
        number = len(self.columns[0])
        if number >= MOST_BLOCKS:
            raise ValueError(f"has more than {MOST_BLOCKS} allocations: let memray capture a shorter part")
        for column, value in zip(self.columns, (address, size_bytes, stack, row, -1, count), strict=True):
            column.append(value)
        return number

    def allocate(self, row: int, address: int, size_bytes: int, stack: int) -> None:
        """Add a block; what was at its address is gone, where its free was not captured."""
        self.free(row, address)
        self._alive[address] = self.add(row, address, size_bytes, stack)

    def free(self, row: int, address: int) -> None:
        """Free the block at an address, where one is known."""
        number = self._alive.pop(address, None)
        if number is not None:
            self.columns[4][number] = row

    def map(self, row: int, address: int, size_bytes: int, stack: int) -> None:
        """Add a mapping, which takes the place of all others there."""
        self.unmap(row, address, size_bytes)
        self._put(address, self.add(row, address, size_bytes, stack))

    def unmap(self, row: int, address: int, size_bytes: int) -> None:
        """Take away a range of addresses; what stays of a mapping on either side are blocks of its own."""
        end = address + size_bytes
        first = bisect_right(self._starts, address)
        first -= first > 0 and self._end(self._mappings[first - 1]) > address
        last = bisect_left(self._starts, end)
        gone = self._mappings[first:last]
        del self._starts[first:last], self._mappings[first:last]
        for number in gone:
            self._split(number, row, address, end)

    def _split(self, number: int, row: int, address: int, end: int) -> None:
        start, old_end = self.columns[0][number], self._end(number)
        stack, allocated, parts = self.columns[2][number], self.columns[3][number], []
        if start < address:
            parts.append((start, address))
        if old_end > end:
            parts.append((end, old_end))
        if not parts:
            self.columns[4][number] = row
            return
        # The block becomes the part that goes; those that stay are new ones, as old as it was.
        self.columns[0][number] = max(start, address)
        self.columns[1][number] = min(old_end, end) - max(start, address)
        self.columns[4][number] = row
        for low, high in parts:
            self._put(low, self.add(allocated, low, high - low, stack))

    def _put(self, address: int, number: int) -> None:
        index = bisect_left(self._starts, address)
        self._starts.insert(index, address)
        self._mappings.insert(index, number)

    def _end(self, number: int) -> int:
        return self.columns[0][number] + self.columns[1][number]


class _Stacks:
    """The stacks of memray's records, each asked for once."""

    def __init__(self, native: bool) -> None:
        self.table = CallStacks()
        self._native = native
        self._numbers: dict[Any, int] = {}

    def number(self, record: Any) -> int:
        """Return the number of a record's stack; -1 where it has none."""
        key = (
            (record.stack_id, record.native_stack_id, record.native_segment_generation)
            if self._native
            else record.stack_id
        )
        number = self._numbers.get(key)
        if number is None:
            stack = record.hybrid_stack_trace() if self._native else record.stack_trace()
            number = self._numbers[key] = self.table.add([Frame(*frame) for frame in stack])
        return number


def read_capture(
    reader: Any, progress: Progress = lambda rows, allocations: None
) -> tuple[dict[str, Any], list[array[int]]]:
    """Return the description of an open ``memray.FileReader`` and its columns. Raises ValueError, OverflowError."""
    about = reader.metadata
    stacks, blocks, rows, allocations = _Stacks(about.has_native_traces), _Blocks(), 0, 0
    aggregated = about.file_format.name == "AGGREGATED_ALLOCATIONS"
    if aggregated:
        rows = _read_sums(reader, stacks, blocks)
    else:
        for rows, record in enumerate(reader.get_allocation_records(), start=1):
            row, allocator = rows - 1, record.allocator
            if allocator in (_FREE, _PYMALLOC_FREE):
                blocks.free(row, record.address)
            elif allocator == _MUNMAP:
                blocks.unmap(row, record.address, record.size)
            elif allocator == _MMAP:
                allocations += 1
                blocks.map(row, record.address, record.size, stacks.number(record))
            else:
                allocations += 1
                blocks.allocate(row, record.address, record.size, stacks.number(record))
            if not rows % _PROGRESS_ROWS:
                progress(rows, allocations)
    readings_ms = [snapshot.time for snapshot in reader.get_memory_snapshots()]
    head = {
        "pid": about.pid,
        "rows": rows,
        "start_ms": round(about.start_time.timestamp() * 1000),
        "end_ms": round(about.end_time.timestamp() * 1000),
        "peak_bytes": about.peak_memory,
        "native": about.has_native_traces,
        "python_allocators": about.trace_python_allocators,
        "aggregated": aggregated,
        "frames": [list(frame) for frame in stacks.table.frames],
        "dropped": stacks.table.dropped,
    }
    columns = [array("q", stacks.table.parent), array("q", stacks.table.frame), *blocks.columns]
    return head, [*columns, array("q", readings_ms)]


def _read_sums(reader: Any, stacks: _Stacks, blocks: _Blocks) -> int:
    """Read an aggregated capture: two rows, what was allocated at the peak and what at the end; return their number."""
    for row, records in enumerate((reader.get_high_watermark_allocation_records, reader.get_leaked_allocation_records)):
        for record in records(merge_threads=True):
            number = blocks.add(row, -1, record.size, stacks.number(record), max(record.n_allocations, 1))
            if not row:
                blocks.columns[4][number] = 1
    return 2


def count_rows(
    text: Iterable[bytes], progress: Progress = lambda rows, allocations: None
) -> tuple[list[int], list[int], bool]:
    """Return the times of memray's readings in ms, the rows before each, and whether a capture has its end.

    ``text``: what ``memray parse`` writes, a line for each record in their order.
    """
    times_ms, rows, count, whole = [], [], 0, False
    for line in text:
        if line.startswith(b"ALLOCATION "):
            count += 1
            if not count % _PROGRESS_ROWS:
                progress(count, None)
        elif match := _READING.match(line):
            times_ms.append(int(match[1]))
            rows.append(count)
        else:
            whole = whole or line.startswith((b"TRAILER", b"AGGREGATED_TRAILER"))
    return times_ms, rows, whole


def main() -> None:
    """Write the capture, or why it cannot be read, to standard output."""
    exit_with_parent()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever memray prints is not part of the answer

    try:
        head, columns = _read(output)
    except ImportError as error:
        head, columns = {"error": f"needs memray, which cannot be imported ({error}): pip install 'memtui[memray]'"}, []
    except (OSError, ValueError, OverflowError, RuntimeError, IndexError, UnicodeError) as error:
        head, columns = {"error": f"is not a capture that memray reads: {error}"}, []
    except MemoryError:
        head, columns = {"error": "is of more data than there is memory for"}, []
    head["lengths"] = [len(column) for column in columns]
    with output:
        output.write(json.dumps(head).encode() + b"\n")
        for column in columns:
            output.write(column.tobytes())


def _read(output: IO[bytes]) -> tuple[dict[str, Any], list[array[int]]]:
    import memray

    def progress(rows: int, allocations: int | None) -> None:
        so_far = {} if allocations is None else {"allocations": allocations, "frees": rows - allocations}
        output.write(json.dumps({"share": rows / max(total, 1), **so_far}).encode() + b"\n")
        output.flush()

    with memray.FileReader(CAPTURE, max_memory_records=MOST_READINGS) as reader:
        total = reader.metadata.total_allocations
        head, columns = read_capture(reader, progress)
    with start_dump() as dump:
        assert dump.stdout is not None
        times_ms, rows, head["whole"] = count_rows(dump.stdout, progress)
    head["dump_status"] = dump.returncode
    if times_ms != columns[-1].tolist() or head["aggregated"]:
        rows = []  # another version of memray, which writes other lines
    return head, [*columns, array("q", rows)]


def start_dump() -> subprocess.Popen[bytes]:
    """Start the process that writes each record of the capture as a line."""
    argv = [sys.executable, "-P", "-c", DUMP_RECORDS, str(os.getpid())]
    return subprocess.Popen(argv, stdin=0, stdout=subprocess.PIPE)


if __name__ == "__main__":
    main()
