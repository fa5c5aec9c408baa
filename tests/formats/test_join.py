"""A capture and a recording of the same process become one session; what does not belong together is refused."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.stack_capture import Readings
from memtui.core import call_stacks
from memtui.core.errors import UserError
from memtui.core.page_set import PageSet
from memtui.core.samples import Clock, Options
from memtui.formats.join import write_joined
from memtui.session import file_format, page_windows
from memtui.session.file_format import SCHEMA_VERSION, SessionError
from memtui.session.process_reader import ProcessReader
from memtui.session.session import Session
from tests.support.sessions import hello, messages, write_session
from tests.support.stack_captures import WALL_NS, capture_of_messages, imported, same


@pytest.fixture
def recording(tmp_path):
    return write_session(tmp_path / "run.memtui", messages(20))


def test_the_copy_has_both_and_the_recording_is_as_it_was(recording, tmp_path):
    before = recording.read_bytes()
    capture = capture_of_messages(3.0)
    path = tmp_path / "joined.memtui"
    assert write_joined(imported(capture), recording, path) == (14, ())
    assert recording.read_bytes() == before
    assert (path.stat().st_mode & 0o777) == 0o600
    joined, original = Session(path), Session(recording)
    (stored,) = joined.captures.all()
    shifted = replace(
        capture,
        start_ns=capture.start_ns - WALL_NS,
        end_ns=capture.end_ns - WALL_NS,
        readings=capture.readings.moved(-WALL_NS),
    )
    same(stored, shifted)
    assert len(joined.samples) == len(original.samples) == 20
    assert joined.imported() is None
    for sample in range(20):
        assert np.array_equal(
            list(joined.pages.page_set(sample, 1).runs()), list(original.pages.page_set(sample, 1).runs())
        )


def test_windows_are_counted_a_few_at_a_time_and_no_pages_are_decoded(recording, tmp_path, monkeypatch):
    spans, samples = [], ProcessReader.samples

    def read(self, first, last):
        spans.append(last - first)
        return samples(self, first, last)

    monkeypatch.setattr(page_windows, "_SAMPLES_AT_ONCE", 3)
    monkeypatch.setattr(ProcessReader, "samples", read)
    monkeypatch.delattr(PageSet, "decode")
    assert write_joined(imported(capture_of_messages(3.0)), recording, tmp_path / "joined.memtui") == (14, ())
    assert (len(spans), max(spans)) == (7, 2)


def test_two_processes_can_be_joined_one_after_the_other(recording, tmp_path):
    first, second = tmp_path / "a.memtui", tmp_path / "b.memtui"
    write_joined(imported(capture_of_messages()), recording, first)
    with pytest.raises(SessionError, match="has a capture of process 4242 already"):
        write_joined(imported(capture_of_messages()), first, second)
    other = tmp_path / "other.memtui"
    connection = sqlite3.connect(first)
    with connection:
        connection.execute("INSERT INTO process VALUES (2, 4243, 4242, 778, 0, 'worker', 'child')")
        connection.execute("UPDATE process_sample SET id = id + 1")
        connection.execute("UPDATE page_set SET id = id + 1")
    connection.close()
    write_joined(imported(capture_of_messages(pid=4243)), first, other)
    one, two = Session(other).captures.all()
    assert [one.pid, two.pid] == [4242, 4243]
    for capture in (one, two):
        calls = [capture.stacks.stack(number)[0].function for number in capture.blocks.stack.tolist()]
        assert calls == ["passing", "hot", "cold", "moving"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pid": 99}, "has no process 99, which the capture is of; it has 4242"),
        (
            {"start_ns": WALL_NS + 10**12, "end_ns": WALL_NS + 10**13},
            "no window of process 4242 lies within the capture",
        ),
        ({"start_ns": 0, "end_ns": 10**9}, "no window of process 4242 lies within the capture"),
    ],
)
def test_a_capture_of_another_process_or_time_is_refused(changes, why, recording, tmp_path):
    capture = replace(capture_of_messages(), **changes)
    if "start_ns" in changes:
        readings = Readings(np.array([0, 4]), np.array([changes["start_ns"], changes["end_ns"]]))
        capture = replace(capture, readings=readings)
    with pytest.raises(SessionError, match=why):
        write_joined(imported(capture), recording, tmp_path / "joined.memtui")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.memtui"]


def test_what_has_no_addresses_is_refused(recording, tmp_path):
    capture = capture_of_messages()
    for other in (None, replace(capture, readings=Readings())):
        with pytest.raises(UserError, match="cannot be joined: it has no addresses or no times"):
            write_joined(replace(imported(capture), capture=other), recording, tmp_path / "joined.memtui")


def test_a_recording_without_pages_or_of_a_part_of_the_memory_is_refused(tmp_path):
    without = write_session(tmp_path / "a.memtui", messages(20, tracked=False))
    with pytest.raises(SessionError, match="stored no pages of process 4242 during the capture"):
        write_joined(imported(capture_of_messages()), without, tmp_path / "joined.memtui")
    stream = [hello(options=Options(200, pages="sampled")), *list(messages(20))[1:]]
    sampled = write_session(tmp_path / "b.memtui", stream)
    with pytest.raises(SessionError, match="reads a part of the memory in each window"):
        write_joined(imported(capture_of_messages()), sampled, tmp_path / "joined.memtui")


def test_an_older_session_is_refused(recording, tmp_path):
    connection = sqlite3.connect(recording)
    tables = file_format._TABLES_SINCE.get(SCHEMA_VERSION, frozenset())
    columns = [
        (table, name)
        for table, names in file_format.missing_columns(SCHEMA_VERSION - 1).items()
        for name in sorted(names)
        if table not in tables
    ]
    later = "".join(f"DROP TABLE {table};" for table in tables)
    later += "".join(f"ALTER TABLE {table} DROP COLUMN {name};" for table, name in columns)
    connection.executescript(f"{later} PRAGMA user_version={SCHEMA_VERSION - 1}")
    connection.close()
    with pytest.raises(SessionError, match=f"only sessions of format {SCHEMA_VERSION} can be added to"):
        write_joined(imported(capture_of_messages()), recording, tmp_path / "joined.memtui")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.memtui"]


def test_a_session_that_is_there_stays_unless_forced(recording, tmp_path):
    path = write_session(tmp_path / "joined.memtui", messages(3))
    with pytest.raises(UserError, match="exists already"):
        write_joined(imported(capture_of_messages()), recording, path)
    write_joined(imported(capture_of_messages()), recording, path, force=True)
    assert len(Session(path).samples) == 20


def test_call_stacks_that_find_no_room_are_told_of(recording, tmp_path, monkeypatch):
    path = tmp_path / "joined.memtui"
    given = imported(capture_of_messages(3.0))
    monkeypatch.setattr(call_stacks, "MOST_STACKS", 3)
    windows, warnings = write_joined(given, recording, path)
    assert (windows, warnings) == (
        14, ("it has more or deeper call stacks than fit into a session; left out: 2",)
    )  # fmt: skip
    (stored,) = Session(path).captures.all()
    assert sorted(stored.blocks.stack.tolist()) == [-1, -1, 1, 2]


def test_the_clock_of_a_recording_moves_the_capture(tmp_path):
    clock = Clock(5 * 10**9, WALL_NS + 5 * 10**9, 0, "11111111-2222-3333-4444-555555555555")
    recording = write_session(tmp_path / "run.memtui", [hello(clock=clock), *list(messages(20))[1:]])
    assert write_joined(imported(capture_of_messages(3.0)), recording, tmp_path / "joined.memtui") == (14, ())
