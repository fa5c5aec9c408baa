"""Captures with call stacks for tests."""

from __future__ import annotations

import numpy as np

from memtui.analysis.stack_capture import Readings, StackBlocks, StackCapture
from memtui.core.call_stacks import CallStacks, Frame
from memtui.core.samples import Options
from memtui.formats.imported import Imported, Part
from memtui.formats.join import write_joined
from memtui.formats.memray_capture import trace_of
from memtui.session.tables.imported import ImportedFrom
from tests.support.sessions import hello, messages, write_session

MAIN, STEP, MAKE = Frame("main", "/x/train.py", 3), Frame("step", "/x/train.py", 9), Frame("make", "/x/model.py", 4)


def stacks_of(*stacks):
    """Stacks whose outermost call comes first."""
    table = CallStacks()
    for stack in stacks:
        table.add(stack[::-1])
    return table


def capture_of(blocks, rows, readings=((0, 100),), stacks=None):
    """``blocks``: (bytes, stack, row of the allocation, row of the free)."""
    columns = [(4096 * number, *block, 1) for number, block in enumerate(blocks)]
    numbers, times = zip(*readings, strict=True) if readings else ((), ())
    capture = StackCapture(
        pid=7,
        rows=rows,
        start_ns=100,
        end_ns=1000,
        stacks=stacks or stacks_of([MAIN], [MAIN, STEP]),
        blocks=StackBlocks.of(np.array(columns, np.int64).T.reshape(6, -1)),
        readings=Readings(np.array(numbers, np.int64), np.array(times, np.int64)),
    )
    capture.check()
    return capture


def small_capture():
    """Three blocks, one of no known stack, and a call whose name is not text."""
    stacks = stacks_of([MAIN], [MAIN, STEP], [Frame("\udcff\n", "", 0)])
    blocks = [(10, 0, 0, 3), (5, -1, 1, 5), (9, 2, 4, 5)]
    return capture_of(blocks, 5, ((0, 150), (4, 200)), stacks)


def same(one, other):
    """Assert that two captures are equal in all numbers."""
    assert (one.pid, one.rows, one.start_ns, one.end_ns) == (other.pid, other.rows, other.start_ns, other.end_ns)
    for left, right in (
        (one.blocks.columns, other.blocks.columns),
        (one.stacks.parent, other.stacks.parent),
        (one.stacks.frame, other.stacks.frame),
        (one.readings.rows, other.readings.rows),
        (one.readings.t_ns, other.readings.t_ns),
    ):
        assert np.array_equal(left, right)
    assert one.stacks.frames == other.stacks.frames


WALL_NS = 1_790_000_000_000_000_000  # of the session that ``messages`` makes, whose own clock begins with 0
HOT, COLD, MOVING, PASSING = (
    Frame(name, "/x/train.py", line) for line, name in enumerate(("hot", "cold", "moving", "passing"))
)


def capture_of_messages(seconds=10.0, pid=4242, hot="hot"):
    """What allocated the memory that the windows of ``messages`` touch; it begins 0.1 s after them.

    ``hot``: the 4 MiB of the heap that every window touches; ``cold``: the 4 MiB of it that none does; ``moving``: all
    of the data, of which each window touches 8 MiB; ``passing``: a MiB in the hot part, before ``hot`` was there.
    """
    stacks = stacks_of([MAIN, HOT._replace(function=hot)], [MAIN, COLD], [MAIN, MOVING], [MAIN, PASSING])
    hot_stack, cold, moving, passing = (n for n in range(len(stacks)) if stacks.parent[n] >= 0)
    mib, heap, data = 1 << 20, 0x5550_0000_0000, 0x7F00_0000_0000
    blocks = [
        (heap + 16, mib, passing, 0, 1, 1),
        (heap, 4 * mib, hot_stack, 1, 9, 1),
        (heap + 4 * mib, 4 * mib, cold, 2, 9, 1),
        (data, 64 * mib, moving, 3, 9, 1),
    ]
    start_ns = WALL_NS + 100_000_000
    readings = Readings(np.array([0, 4, 4]), start_ns + np.array([0, 1, round(1e9 * seconds)]))
    capture = StackCapture(
        pid, 9, start_ns, start_ns + round(1e9 * seconds), stacks, StackBlocks.of(np.array(blocks).T), readings
    )
    capture.check()
    return capture


def imported_of_messages(**changes):
    """Such a capture as a file that was read; it ends 3 s after it began."""
    return imported(capture_of_messages(**{"seconds": 3.0, **changes}))


def imported(capture):
    return Imported((Part(trace_of(capture)),), ImportedFrom("memray capture"), stacks=capture.stacks, capture=capture)


def joined_session(folder):
    """A recording with resident pages every fifth window, joined with a capture of its process."""
    stream = [hello(options=Options(200_000_000, keep_resident=True)), *list(messages(20))[1:]]
    recording = write_session(folder / "run.memtui", stream)
    write_joined(imported_of_messages(), recording, folder / "joined.memtui")
    return folder / "joined.memtui"
