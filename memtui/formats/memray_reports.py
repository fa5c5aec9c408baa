"""What memray writes about a capture: flame graph and table (HTML), and transform to CSV, gprof2dot and speedscope.

They have sums by call stack: of what was allocated at the peak, or was left at the end with ``--leaks``. No
address, no time. A table has the innermost call only; ``memray stats --json`` has no stacks, so it is refused.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import unescape
from typing import Any, NamedTuple

import numpy as np

from memtui.analysis.stack_capture import NO_ADDRESS, Readings, StackBlocks, StackCapture
from memtui.core.call_stacks import CallStacks, Frame
from memtui.formats.imported import Imported, NotImportable, Part
from memtui.formats.memray_capture import trace_of
from memtui.session.tables.imported import NO_CLOCK, ImportedFrom

_DATA = re.compile(r"^\s*const packed_data = (.*);$", re.MULTILINE)
_CSV_HEAD = b"allocator,num_allocations,size,tid,thread_name,stack_trace"
_INSTEAD = "import the capture itself"
_ABSENT = (
    "addresses and times: it is a report on a capture of memray, with what was allocated at its peak (or left, of one "
    "on leaks) by call stack",
    "kinds: memray does not know what a block is for",
)

_ABSENT_IN = {
    "table": ("callers: a table has the innermost call only",),
    "gprof2dot": ("numbers of allocations and lines: gprof2dot has none; each sum counts as one allocation",),
}


_DAMAGED = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, csv.Error)


class _Sum(NamedTuple):
    stack: int
    size_bytes: int
    allocations: int


_Sums = Callable[[CallStacks], Iterator[_Sum]]


def certainty_of_text(data: bytes) -> float:
    """Return 1 for a page or a table that memray wrote, else 0."""
    page = data[:64].lstrip()[:9].lower() == b"<!doctype" and b"<title>memray - " in data
    return float(page or data.startswith(_CSV_HEAD))


def certainty(document: Any) -> float:
    """Return 1 for a JSON document of memray, else 0."""
    if not isinstance(document, dict):
        return 0.0
    speedscope = str(document.get("exporter", "")).startswith("memray@")
    gprof2dot = isinstance(document.get("costs"), list) and {"events", "functions"} <= document.keys()
    statistics = {"total_bytes_allocated", "top_allocations_by_size"} <= document.keys()
    return float(speedscope or gprof2dot or statistics)


def parse_text(data: bytes) -> Imported:
    """Return the content of a page or of a CSV file. Raises NotImportable."""
    try:
        text = data.decode()
        return _imported("CSV", partial(_of_csv, text)) if data.startswith(_CSV_HEAD) else _of_page(text)
    except _DAMAGED as error:
        raise NotImportable(f"is not a report of memray: {error}") from None


def parse(document: Any) -> Imported:
    """Return the content of a JSON document. Raises NotImportable."""
    try:
        if "events" in document:
            return _imported("gprof2dot", partial(_of_gprof2dot, document))
        if "profiles" in document:
            return _imported("speedscope", partial(_of_speedscope, document))
    except _DAMAGED as error:
        raise NotImportable(f"is not a report of memray: {error}") from None
    raise NotImportable(f"has statistics of memray without call stacks: {_INSTEAD}")


def _of_csv(text: str, stacks: CallStacks) -> Iterator[_Sum]:
    most = csv.field_size_limit(len(text) + 1)  # the stack of a deep recursion is a field of more than csv allows
    try:
        for row in csv.DictReader(io.StringIO(text)):
            calls = [call.rsplit(";", 2) for call in filter(None, row["stack_trace"].split("|"))]
            yield _sum(stacks, [_call(*call) for call in calls], row["size"], row["num_allocations"])
    finally:
        csv.field_size_limit(most)


def _of_gprof2dot(document: Any, stacks: CallStacks) -> Iterator[_Sum]:
    calls = [_call(entry["name"], entry["module"], 0) for entry in document["functions"]]
    for event in document["events"]:
        yield _sum(stacks, _at(calls, event["callchain"]), event["cost"][0], 1)


def _of_speedscope(document: Any, stacks: CallStacks) -> Iterator[_Sum]:
    frames = document["shared"]["frames"]
    calls = [_call(frame["name"], frame.get("file", ""), frame.get("line", 0)) for frame in frames]
    sizes, counts = document["profiles"]
    counted = {tuple(stack): count for stack, count in zip(counts["samples"], counts["weights"], strict=True)}
    for stack, size_bytes in zip(sizes["samples"], sizes["weights"], strict=True):
        yield _sum(stacks, _at(calls, stack[::-1]), size_bytes, counted.get(tuple(stack), 1))


def _of_page(text: str) -> Imported:
    match = _DATA.search(text)
    if match is None:
        raise ValueError("it has no data")
    document = json.loads(match[1])
    if isinstance(document, list):
        return _imported("table", partial(_of_table, document))
    if "intervals" in document:
        raise NotImportable(f"is a temporal flame graph of memray, which has no sums: {_INSTEAD}")
    if document["inverted_no_imports_nodes"]:
        raise NotImportable(f"is an inverted flame graph of memray, which lacks callers: {_INSTEAD}")
    return _imported("flame graph", partial(_of_flame_graph, document))


def _of_table(rows: list[Any], stacks: CallStacks) -> Iterator[_Sum]:
    for row in rows:
        function, _, location = unescape(row["stack_trace"]).partition(" at ")
        file, _, line = location.rpartition(":")
        yield _sum(stacks, [_call(function, file, line)], row["size"], row["n_allocations"])


def _of_flame_graph(document: Any, stacks: CallStacks) -> Iterator[_Sum]:
    nodes, strings = document["nodes"], [unescape(text) for text in document["strings"]]
    frames = [
        _call(strings[function], strings[file], line)
        for function, file, line in zip(nodes["function"], nodes["filename"], nodes["lineno"], strict=True)
    ]
    below = np.zeros((2, len(frames)), np.int64)
    numbers = [-1] * len(frames)  # of the stacks; the first node is not a call, but all of them
    reached = [True] + [False] * (len(frames) - 1)
    for node, children in enumerate(nodes["children"]):
        for child in children:
            if not node < child < len(frames) or not reached[node]:
                raise ValueError("a call comes before its caller")
            reached[child] = True
            number = stacks.add_frame(frames[child])
            if number < 0 or (node and numbers[node] < 0):
                stacks.dropped += 1
            else:
                numbers[child] = stacks.add_call(numbers[node], number)
            below[:, node] += nodes["value"][child], nodes["n_allocations"][child]
    for stack, below_bytes, below_count, size_bytes, count in zip(
        numbers, *below.tolist(), nodes["value"], nodes["n_allocations"], strict=True
    ):
        if size_bytes - below_bytes or count - below_count:
            yield _Sum(stack, int(size_bytes - below_bytes), max(int(count - below_count), 1))


def _at(calls: Sequence[Frame], numbers: Sequence[int]) -> list[Frame]:
    if min(numbers, default=0) < 0:
        raise IndexError("a call below the first one")
    return [calls[number] for number in numbers]


def _call(function: Any, file: Any, line: Any) -> Frame:
    return Frame(str(function), str(file), int(line or 0))


def _sum(stacks: CallStacks, innermost_first: Sequence[Frame], size_bytes: Any, count: Any) -> _Sum:
    return _Sum(stacks.add(innermost_first), int(size_bytes), max(int(count), 1))


def _imported(what: str, sums: _Sums) -> Imported:
    stacks = CallStacks()
    columns = [(NO_ADDRESS, item.size_bytes, item.stack, 0, 1, item.allocations) for item in sums(stacks)]
    if not columns:
        raise NotImportable("has no allocation")
    blocks = StackBlocks.of(np.array(columns, np.int64).T.copy())
    capture = StackCapture(0, 1, 0, 1, stacks, blocks, Readings())
    capture.check()
    absent = (*_ABSENT_IN.get(what, ()), *_ABSENT)
    about = ImportedFrom(f"memray {what}", clock=NO_CLOCK, absent=absent, warnings=stacks.warnings())
    return Imported((Part(trace_of(capture)),), about, stacks=stacks, capture=capture)
