"""Cut a long trace into stretches that can be displayed one at a time, each with the blocks alive when it began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import PHASES, StepTrace

LONGEST = 1 << 18  # rows of a stretch: decoded, indexed and drawn in a fifth of a second
_MOST_ALIVE = 16  # blocks for each row of the stretch before
_BETWEEN = PHASES.index("between")


def within(trace: StepTrace, first_ns: int, last_ns: int) -> StepTrace:
    """Return the part of a trace from one moment up to, and without, another one."""
    low, high = np.searchsorted(trace.t_ns[trace.existing :], (first_ns, last_ns)) + trace.existing
    start_ns = min(max(trace.start_ns, first_ns), trace.end_ns)
    return _Cutter(trace).part(int(low), int(high), trace.step, start_ns, max(start_ns, min(trace.end_ns, last_ns)))


def stretches(trace: StepTrace, begins: Sequence[tuple[int, int]] = (), longest: int = LONGEST) -> Iterator[StepTrace]:
    """Yield the parts of a trace in order; the trace itself where nothing cuts it.

    Args:
        trace: the trace to cut.
        begins: (time, number) of steps, rising; each step starts a stretch of that number. Without steps, numbers count
            from that of the trace.
        longest: a stretch of more rows is cut, too.

    Every block that is alive is a row of the next stretch, so the trace is not cut where such rows would far outnumber
    the rows before: all stretches together have a small multiple of the rows of the trace.
    """
    n = len(trace)
    edges = {trace.existing: trace.step}
    for t_ns, number in begins:
        edges[int(np.searchsorted(trace.t_ns[trace.existing :], t_ns)) + trace.existing] = number
    alive = np.cumsum(np.sign(trace.delta_bytes))
    starts: list[int] = []
    for row in sorted(row for row in edges if row < n):
        if not starts or (row - starts[-1]) * _MOST_ALIVE >= alive[row]:
            starts.append(row)
    rows: list[tuple[int, int]] = []
    for row, end in pairwise([*starts, n]):
        number = edges[row]
        while row < end:
            rows.append((row, number))
            row += max(longest, int(alive[row]))
            number += not begins
    if len(rows) < 2:
        yield replace(trace, step=rows[0][1]) if rows else trace
        return
    cutter = _Cutter(trace)
    for (low, number), high in zip(rows, [*(row for row, _ in rows[1:]), n], strict=True):
        start_ns = trace.start_ns if low == trace.existing else int(trace.t_ns[low])
        end_ns = trace.end_ns if high == n else int(trace.t_ns[high])
        yield cutter.part(low, high, number, start_ns, end_ns)


class _Cutter:
    """Cutter of a trace, with the lifetime of each of its blocks."""

    def __init__(self, trace: StepTrace) -> None:
        self._trace = trace
        n = len(trace)
        self._born = np.flatnonzero(trace.delta_bytes > 0)
        frees = np.flatnonzero(trace.delta_bytes < 0)
        died_of = np.full(n, n)
        died_of[trace.block[frees]] = frees
        self._died = died_of[trace.block[self._born]]

    def part(self, low: int, high: int, step: int, start_ns: int, end_ns: int) -> StepTrace:
        """Return the rows from ``low`` up to ``high``, after one row for each block that is alive before them."""
        trace = self._trace
        before = self._born[(self._born < low) & (self._died >= low)]
        rows = np.concatenate((before, np.arange(low, high)))
        columns = trace.to_columns()[:, rows]
        count = len(before)
        columns[0, :count] = start_ns
        columns[4, :count] = _BETWEEN
        columns[2] = np.unique(columns[2], return_inverse=True)[1]
        used, places = np.unique(columns[5:], return_inverse=True)
        named = used[used >= 0]
        columns[5:] = places.reshape(2, -1) - (len(used) - len(named))
        names = tuple(trace.names[index] for index in named.tolist())
        part = _trace(columns, step, start_ns, end_ns, count, names)
        return part if trace.stack is None else replace(part, stack=trace.stack[rows])


def joined(parts: Sequence[StepTrace]) -> StepTrace:
    """Invert ``stretches``: one trace again, with the number of the first part.

    Raises:
        ValueError: they do not follow one another.
    """
    if len(parts) == 1:
        return parts[0]
    names: list[str] = []
    tables: list[NDArray[np.int64]] = []
    stacks: list[NDArray[np.int64]] = []
    alive = np.empty(0, np.int64)  # blocks, in the order they came
    blocks = 0
    for number, part in enumerate(parts):
        columns = part.to_columns()
        columns[5:] = np.where(columns[5:] < 0, -1, columns[5:] + len(names))
        names += part.names
        born = np.flatnonzero(part.delta_bytes > 0)
        of_block = np.arange(len(part)) + blocks  # those of no bytes have a number of their own, too
        blocks += len(part)
        if number:
            if part.existing != len(alive):
                raise ValueError("the stretches do not follow one another")
            of_block[part.block[: part.existing]] = alive
        ends = np.bincount(part.block[part.delta_bytes < 0], minlength=len(part)) > 0
        columns[2] = of_block[part.block]
        alive = of_block[part.block[born]][~ends[part.block[born]]]
        tables.append(columns[:, part.existing if number else 0 :])
        stack = np.full(len(part), -1) if part.stack is None else part.stack
        stacks.append(stack[part.existing if number else 0 :])
    columns = np.concatenate(tables, axis=1)
    columns[2] = np.unique(columns[2], return_inverse=True)[1]
    first, last = parts[0], parts[-1]
    trace = _trace(columns, first.step, first.start_ns, last.end_ns, first.existing, tuple(names))
    has_stacks = any(part.stack is not None for part in parts)
    return replace(trace, stack=np.concatenate(stacks)) if has_stacks else trace


def _trace(
    columns: NDArray[np.int64], step: int, start_ns: int, end_ns: int, existing: int, names: tuple[str, ...]
) -> StepTrace:
    return StepTrace.from_columns(
        columns, step=step, start_ns=start_ns, end_ns=end_ns, existing=existing, names=names, copy=False
    )
