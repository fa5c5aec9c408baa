"""A capture of memray (``memray run -o FILE``): every allocation of a process with its call stack.

memray's own reader reads it, in a process of its own (``memray_worker``). A block is freed by address, a mapping also
in part. memray writes a reading of its clock every 10 ms or so, and nothing else has a time.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES, PHASES, StepTrace
from memtui.analysis.stack_capture import Readings, StackBlocks, StackCapture, call_text, times_of
from memtui.core.call_stacks import CallStacks, Frame
from memtui.core.text import one_line
from memtui.core.units import size
from memtui.formats import reading
from memtui.formats.call_paths import CallPaths, call_path
from memtui.formats.imported import Imported, NotImportable, Part
from memtui.formats.input_file import Input
from memtui.session.tables.imported import NO_CLOCK, WALL, ImportedFrom

FORMAT = "memray capture"
MISSING = "is a capture of memray, which is not installed: pip install 'memtui[memray]'"
_LZ4_MAGIC, _MAGIC = b"\x04\x22\x4d\x18", b"memray\0"
_HEAD_BYTES = 64  # within which a packed capture has its magic, too: LZ4 copies what it has not seen before
_NS_PER_MS = 1_000_000
_UNKNOWN, _BETWEEN = CATEGORIES.index("unknown"), PHASES.index("between")
_TIMING, _ADDING_UP = "reading the times of its rows", "adding up its allocations"
_TIMES = "times: memray reads its clock every 10 ms or so; rows have the time of the next reading after them"
_ABSENT = (
    "kinds: memray does not know what a block is for",
    "memory that was not allocated while memray ran, and what the C library maps for its own use",
)


def certainty(head: bytes) -> float:
    """Return 1 for the first bytes of a capture, else 0."""
    return float(head.startswith(_MAGIC) or (head.startswith(_LZ4_MAGIC) and _MAGIC in head[:_HEAD_BYTES]))


def parse(source: Input) -> Imported:
    """Return the content of a capture. Raises NotImportable."""
    if find_spec("memray") is None:
        raise NotImportable(MISSING)
    file = source.regular_file()
    if file is not None:
        head, columns = _run_worker(file)
    else:  # memray reads files and no pipes
        with _unpacked(source) as copy:
            head, columns = _run_worker(copy)
    reading.start(_ADDING_UP)
    try:
        return _imported(head, columns)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise NotImportable(f"is not a capture that memray reads: {error}") from None


def _unpacked(source: Input) -> IO[bytes]:
    """Return a copy of a capture as a file without a name. Raises NotImportable."""
    try:
        copy = tempfile.TemporaryFile(buffering=0)
        try:
            while chunk := source.read():
                while chunk:
                    chunk = chunk[copy.write(chunk) :]
        except BaseException:
            copy.close()
            raise
    except OSError as error:
        why = f"cannot be unpacked into the folder for temporary files (set TMPDIR to another one): {error.strerror}"
        raise NotImportable(why) from None
    return copy


def _run_worker(file: IO[bytes]) -> tuple[dict[str, Any], list[NDArray[np.int64]]]:
    """Return what the worker says of a capture. Raises NotImportable."""
    argv = [sys.executable, "-P", "-m", "memtui.formats.memray_worker"]
    with subprocess.Popen(argv, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as worker:
        assert worker.stdout is not None
        line = _follow(worker.stdout)
        body = worker.stdout.read()
    if worker.returncode:
        raise NotImportable(f"is damaged: memray's reader ended with {_ending(worker.returncode)}")
    head = json.loads(line)
    if "error" in head:
        raise NotImportable(one_line(head["error"]))
    edges = np.cumsum([0, *head["lengths"]]) * 8
    return head, [np.frombuffer(body[low:high], np.int64).copy() for low, high in pairwise(edges)]


def _ending(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"


class _Progress:
    """How far the worker is."""

    def __init__(self) -> None:
        self.allocations = self.frees = 0

    def so_far(self) -> reading.FileSummary:
        """Return what the worker read so far."""
        return reading.FileSummary(FORMAT, self.allocations, self.frees)


def _follow(output: IO[bytes]) -> bytes:
    """Report the progress of the worker; return its first line that is about something else."""
    progress, timing = _Progress(), False
    reading.parsed_by(progress)
    for line in output:
        if not line.startswith(b'{"share"'):
            return line
        message = json.loads(line)
        if "allocations" in message:
            progress.allocations, progress.frees = message["allocations"], message["frees"]
        elif not timing:
            timing = True
            reading.start(_TIMING)
        reading.advance(message["share"])
    return b""


def _imported(head: dict[str, Any], columns: list[NDArray[np.int64]]) -> Imported:
    """Return the content of what the worker read. Raises ValueError, KeyError, TypeError."""
    capture = _capture(head, columns)
    if not len(capture.blocks):
        raise NotImportable("has no allocation")
    warnings = [*capture.stacks.warnings()]
    dumped = not head["dump_status"]
    if dumped and not head["whole"]:
        warnings.append("has no end: its program was killed, or the file is cut off; what there is of it was read")
    trace = trace_of(capture)
    if trace.peak_bytes != head["peak_bytes"]:
        reason = "frees that it did not see, or mappings over one another"
        warnings.append(
            f"memray counts a peak of {size(head['peak_bytes'])}, this is {size(trace.peak_bytes)}: {reason}"
        )
    timed = len(capture.readings) > 0
    absent = (_TIMES, *_ABSENT) if timed else _ABSENT
    if head["aggregated"]:
        absent = (
            "single allocations: it is aggregated; there are two rows of each stack, the peak and the end",
            *absent,
        )
    elif not dumped:
        reason = f"memray, which was to list every record, ended with {_ending(head['dump_status'])}"
        absent = (f"times, and whether it has its end: {reason}", *absent)
    elif not timed:
        absent = ("times: this memray does not say where in the file its readings of the clock are", *absent)
    clock = WALL if timed else NO_CLOCK
    about = ImportedFrom(FORMAT, clock=clock, absent=absent, warnings=tuple(warnings))
    return Imported((Part(trace),), about, stacks=capture.stacks, capture=capture)


def _capture(head: dict[str, Any], columns: list[NDArray[np.int64]]) -> StackCapture:
    parent, frame, *block_columns, times_ms, reading_rows = columns
    rows = int(head["rows"])
    block_columns[4][block_columns[4] < 0] = rows
    frames = [Frame(str(function), str(file), int(line)) for function, file, line in head["frames"]]
    stacks = CallStacks(frames, parent.tolist(), frame.tolist())
    stacks.dropped = int(head["dropped"])
    order = np.argsort(block_columns[3], kind="stable")  # what stays of a mapping came later
    start_ns = int(head["start_ms"]) * _NS_PER_MS
    if len(reading_rows):
        t_ns = np.maximum.accumulate(np.maximum(times_ms * _NS_PER_MS, start_ns))
        readings, last_ns = Readings(reading_rows, t_ns), int(t_ns[-1])
    else:
        readings, last_ns = Readings(), start_ns
    end_ns = max(int(head["end_ms"]) * _NS_PER_MS, last_ns)  # 0 where the program was killed
    capture = StackCapture(
        pid=int(head["pid"]),
        rows=rows,
        start_ns=start_ns,
        end_ns=end_ns,
        stacks=stacks,
        blocks=StackBlocks.of(np.stack(block_columns)[:, order]),
        readings=readings,
    )
    capture.check()
    return capture


def trace_of(capture: StackCapture) -> StepTrace:
    """Return a capture as a trace: rows are allocations and frees, operations the stacks of calls.

    Its times are in ns; those of a capture without readings are the numbers of rows. Raises ValueError.
    """
    blocks = capture.blocks
    gone = np.flatnonzero((blocks.freed < capture.rows) & (blocks.size_bytes > 0))
    block = np.concatenate((gone, np.arange(len(blocks))))
    row = np.concatenate((blocks.freed[gone], blocks.allocated))
    change = np.concatenate((-blocks.size_bytes[gone], blocks.size_bytes))
    order = np.argsort(row, kind="stable")  # of one row, what goes comes first
    row, block, change = row[order], block[order], change[order]
    paths = CallPaths()
    used, inverse = np.unique(blocks.stack, return_inverse=True)
    names = [paths.number(call_path(map(call_text, capture.stacks.stack(number)))) for number in used.tolist()]
    op = np.array(names, np.int64)[inverse][block]
    timed = len(capture.readings) > 0
    t_ns = times_of(row, capture.readings, capture.end_ns) if timed else row
    columns = np.stack((
        t_ns, change, block, np.full(len(row), _UNKNOWN), np.full(len(row), _BETWEEN), op, np.full(len(row), -1)
    ))  # fmt: skip
    trace = StepTrace.from_columns(
        columns,
        step=0,
        start_ns=capture.start_ns if timed else 0,
        end_ns=capture.end_ns if timed else max(capture.rows, 1),
        existing=0,
        names=tuple(paths.names),
        copy=False,
    )
    return replace(trace, stack=blocks.stack[block])
