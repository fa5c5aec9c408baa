"""Join a capture with call stacks and a recording of the same process: a copy of the recording that has both.

The two know each other by the pid and by the wall clock, of which the recording has one reading. Nothing of the
recording is changed.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from memtui.analysis.stack_capture import StackCapture
from memtui.analysis.stack_use import covers, has_places
from memtui.core.call_stacks import CallStacks
from memtui.core.errors import UserError
from memtui.formats.imported import Imported, NotImportable
from memtui.formats.session_writer import write_as
from memtui.session.file_format import SessionError
from memtui.session.page_windows import windows_of
from memtui.session.session import Session
from memtui.session.tables.call_stacks import stack_records
from memtui.session.tables.captures import capture_records
from memtui.session.writer import SessionWriter

_S = 1e9


def write_joined(
    imported: Imported, recording: Path, path: Path, *, force: bool = False
) -> tuple[int, tuple[str, ...]]:
    """Write the copy, whole or not at all; return how many of its windows the capture covers, and warnings.

    Raises UserError and SessionError.
    """
    capture = imported.capture
    if capture is None or not has_places(capture):
        raise NotImportable("cannot be joined: it has no addresses or no times, which a capture of memray has")
    session = Session(recording)
    with closing(session):
        shift_ns = session.hello.clock.monotonic_ns - session.hello.clock.wall_ns
        moved = replace(
            capture,
            start_ns=capture.start_ns + shift_ns,
            end_ns=capture.end_ns + shift_ns,
            readings=capture.readings.moved(shift_ns),
        )
        windows = _covered_windows(session, moved)
        stacks = session.allocations.call_stacks()
        first_id = session.captures.next_id()
    joined = _renumbered(moved, stacks)

    def fill(writer: SessionWriter) -> None:
        writer.insert(stack_records(joined.stacks))
        writer.insert(capture_records(joined, first_id))

    write_as(path, fill, force=force, copy_of=recording)
    return windows, joined.stacks.warnings()


def _covered_windows(session: Session, capture: StackCapture) -> int:
    """Return how many windows with pages of its process a capture covers. Raises SessionError where none is."""
    path = session.path
    if session.alive:
        raise SessionError(f"{path}: is still recorded: join it when it has ended (memtui stop)")
    if capture.start_ns < 0:
        raise _elsewhere(session, capture)
    if session.hello.options.samples_pages:
        raise SessionError(f"{path}: reads a part of the memory in each window; record it with --pages exact")
    processes = session.processes.all()
    keys = {process.key for process in processes if process.pid == capture.pid}
    if not keys:
        pids = ", ".join(str(pid) for pid in sorted({process.pid for process in processes})[:8])
        raise SessionError(f"{path}: has no process {capture.pid}, which the capture is of; it has {pids}")
    if capture.pid in session.captures.pids():
        raise SessionError(f"{path}: has a capture of process {capture.pid} already")
    inside = [
        window
        for window in windows_of(session.processes.samples, session.samples, keys)
        if covers(capture, window.start_ns, window.end_ns)
    ]
    stored = sum(window.process in session.pages.processes(window.sample) for window in inside)
    if not inside:
        raise _elsewhere(session, capture)
    if not stored:
        why = session.hello.pages.reason or "the tracker sees none"
        raise SessionError(f"{path}: stored no pages of process {capture.pid} during the capture: {why}")
    return stored


def _elsewhere(session: Session, capture: StackCapture) -> UserError:
    start_ns = session.hello.clock.monotonic_ns
    low, high = ((t_ns - start_ns) / _S for t_ns in (capture.start_ns, capture.end_ns))
    times = f"the capture is from {low:.1f} s to {high:.1f} s after its beginning"
    return SessionError(f"{session.path}: no window of process {capture.pid} lies within the capture: {times}")


def _renumbered(capture: StackCapture, stored: CallStacks) -> StackCapture:
    """Return a capture whose stacks follow those that a session has already."""
    stacks = CallStacks(stored.frames, stored.parent, stored.frame)
    frames = [stacks.add_frame(frame) for frame in capture.stacks.frames]
    numbers: list[int] = []
    for parent, frame in zip(capture.stacks.parent, capture.stacks.frame, strict=True):
        caller = numbers[parent] if parent >= 0 else -1
        lost = frames[frame] < 0 or (parent >= 0 and caller < 0)
        stacks.dropped += lost
        numbers.append(-1 if lost else stacks.add_call(caller, frames[frame]))
    of_stack = np.array([*numbers, -1], np.int64)  # the last one is of -1
    return replace(capture, stacks=stacks, blocks=replace(capture.blocks, stack=of_stack[capture.blocks.stack]))
