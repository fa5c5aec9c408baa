"""Call stacks in a session: those of a snapshot come back, damaged ones are refused, redacted ones have no names."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from memtui.analysis import trace_segments
from memtui.formats.catalogue import import_bytes
from memtui.formats.session_writer import in_range, write
from memtui.reports.redact import RedactedSource
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from memtui.session.tables import call_stacks
from tests.support.stacked_snapshot import CALLS, FREE, MAIN, imported


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_segments.stretches, "__defaults__", ((), 3))
    write(imported(), tmp_path / "s.memtui")
    return tmp_path / "s.memtui"


def test_all_frames_of_every_row_come_back_also_of_blocks_from_before(path):
    with closing(Session(path)) as session:
        stacks = session.allocations.call_stacks()
        steps = [session.allocations.trace(step) for step in session.allocations.steps()]
    assert len(steps) == 2, "the file is cut into stretches"
    rows = [[stacks.stack(number) for number in trace.stack.tolist()] for trace in steps]
    expected = [(*CALLS, MAIN._replace(line=line)) for line in (9, 10, 9, 10)]
    assert rows[0] == [(MAIN,), *expected[:3]]
    assert rows[1] == [(MAIN,), *expected[:3], expected[3], (FREE,)], "what is alive keeps the stack that allocated it"
    whole = trace_segments.joined(steps)
    assert [stacks.stack(number) for number in whole.stack.tolist()] == [(MAIN,), *expected, (FREE,)]


def test_a_range_of_time_keeps_the_stacks_of_its_rows():
    part = in_range(imported(), (2e-6, None))
    trace, stacks = part.parts[0].trace, part.stacks
    lines = [[frame.line for frame in stacks.stack(number)][-1] for number in trace.stack.tolist()]
    assert lines == [9, 9, 10, 9, 10, 12]


def test_a_redacted_session_has_the_shape_of_its_stacks_and_no_names(path):
    with closing(RedactedSource(path)) as source:
        stacks = source.call_stacks()
        last = source.step_trace(source.allocation_steps()[-1]).stack[-1]
        first = source.step_trace(source.allocation_steps()[0]).stack[1]
    shown = stacks.stack(int(first))
    assert [frame.function for frame in shown] == ["at::empty", "function-1", "function-2", "function-3"]
    assert [frame.file for frame in shown] == ["", "source-1", "source-2", "source-3"]
    assert stacks.stack(int(last))[0].file == "source-3", "one file has one label"
    assert not any(frame.line for frame in stacks.frames)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE frame SET line = 1 << 40 WHERE id = 0",
        "DELETE FROM frame WHERE id = 0",
        "DELETE FROM call_stack WHERE id = 1",
        "UPDATE call_stack SET parent = id WHERE id = 1",
        "UPDATE call_stack SET frame = 1 << 40 WHERE id = 1",
        "UPDATE call_stack SET frame = 77 WHERE id = 1",
    ],
)
def test_a_damaged_table_of_stacks_is_refused(path, damage):
    with closing(sqlite3.connect(path)) as file:
        file.execute(damage)
        file.commit()
    with closing(Session(path)) as session, pytest.raises(SessionError, match="is damaged: call stacks"):
        session.allocations.call_stacks()


def test_a_stack_that_is_too_deep_is_refused(path, monkeypatch):
    monkeypatch.setattr(call_stacks, "MOST_CALLS", 3)
    with closing(Session(path)) as session, pytest.raises(SessionError, match="one has more than 3 calls"):
        session.allocations.call_stacks()


@pytest.mark.parametrize("damage", ["DELETE FROM call_stack", "UPDATE allocation_stack SET data = x'00'"])
def test_damaged_stacks_of_a_step_are_refused(path, damage):
    with closing(sqlite3.connect(path)) as file:
        file.execute(damage)
        file.commit()
    with closing(Session(path)) as session, pytest.raises(SessionError, match="is damaged: allocations of step"):
        session.allocations.trace(session.allocations.steps()[0])


def test_a_session_without_stacks_has_an_empty_table(tmp_path):
    write(import_bytes(b"[mem] Allocate 64 bytes GPU memory (x).\n"), tmp_path / "s.memtui")
    with closing(Session(tmp_path / "s.memtui")) as session:
        stacks = session.allocations.call_stacks()
        assert len(stacks) == 0
        assert session.allocations.trace(session.allocations.steps()[0]).stack is None
