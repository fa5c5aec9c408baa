"""The VMAs of a session: their rows, and what was accessed, resident and shared of each in a sample."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.core.samples import End, Process, ProcessWindow, Vma, VmaTable, Window
from memtui.recording.recorder.session_builder import SessionBuilder
from memtui.recording.wire import Message
from memtui.session import vma_reader
from memtui.session.blobs import UNKNOWN_BYTES
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from memtui.session.writer import SessionWriter
from tests.support import sessions
from tests.support.sessions import CODE, DATA, HEAP, STACK, messages, write_session

SAMPLES = 150
PAGE = 4096


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return write_session(tmp_path_factory.mktemp("session") / "s.memtui", messages(SAMPLES))


@pytest.fixture
def reader(path) -> Iterator[Session]:
    with closing(Session(path)) as reader:
        yield reader


def test_address_ranges(reader):
    rows = reader.vmas.rows()
    assert [(r.start, r.name, r.filtered, r.pid) for r in rows] == [
        (HEAP, "[heap]", "", 4242),
        (DATA, "", "", 4242),
        (CODE, "/usr/lib/libtorch_cpu.so", "exec", 4242),
        (STACK, "[stack]", "", 4242),
    ]
    assert {(r.first_sample, r.last_sample) for r in rows} == {(0, SAMPLES - 1)}
    names = {r.id: r.name for r in rows}
    samples, ids, values = reader.vmas.wss(10, 11)
    assert samples.tolist() == [10] * 4 + [11] * 4
    got = {names[i]: v for i, v in zip(ids[:4].tolist(), values[:4].tolist(), strict=True)}
    assert got == {"[heap]": 4 << 20, "": 8 << 20, "/usr/lib/libtorch_cpu.so": 300 * 4096, "[stack]": 8 * 4096}
    rss = {names[i]: v for i, v in reader.vmas.rss(13).items()}
    assert rss["[heap]"] == 4 << 20
    assert reader.vmas.rss(-1) == {}


@given(st.lists(st.integers(0, SAMPLES - 1), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_what_a_reader_keeps_changes_no_answer(path, asked):
    """Requests forwards, backwards and again have the same answers as from a new session."""
    with closing(Session(path)) as session:
        for sample in asked:
            with closing(Session(path)) as new:
                assert session.vmas.rss(sample) == new.vmas.rss(sample)
                for mine, theirs in zip(
                    session.vmas.wss(sample - 5, sample), new.vmas.wss(sample - 5, sample), strict=True
                ):
                    assert mine.tolist() == theirs.tolist()


def test_what_a_reader_keeps_is_bounded(path, monkeypatch):
    monkeypatch.setattr("memtui.session.row_cache.KEEP_ROWS", 10)
    with closing(Session(path)) as reader:
        for sample in range(0, SAMPLES, 3):
            reader.vmas.wss(sample, sample + 2)
            assert 0 < len(reader.vmas._accessed) <= 10
        reader.vmas.wss(0, SAMPLES)
        assert len(reader.vmas._accessed) == 0


HALF = DATA + 50 * PAGE
WHOLE = Vma(DATA, DATA + 100 * PAGE, "rw-p", "")


def tables(*tables_of: tuple[Vma, ...], windows: dict[int, dict] | None = None, keys=(1,)) -> Iterator[Message]:
    """One table a sample; ``windows``: values of the window of each process in it."""
    yield sessions.hello()
    for key in keys:
        yield Process(key, 4241 + key, 1, 777, 0, "python", "target")
    for sample, table in enumerate(tables_of):
        for key in keys:
            yield VmaTable(key, sample, table)
        values = (windows or {}).get(sample, {})
        parts = tuple(ProcessWindow(key, sample, sample + 1, **values) for key in keys)
        yield Window(sample, sample, sample + 1, 1, 0, parts)
    yield End(len(tables_of), "stopped")


def recorded(folder: Path, stream: Iterator[Message]) -> Session:
    return Session(write_session(folder / "s.memtui", stream))


def test_rows_are_those_of_the_processes_that_are_asked_for(tmp_path):
    with closing(recorded(tmp_path, tables((WHOLE,), keys=(1, 2, 3)))) as reader:
        assert [(row.process, row.pid) for row in reader.vmas.rows()] == [(1, 4242), (2, 4243), (3, 4244)]
        assert [row.process for row in reader.vmas.rows(2)] == [2]
        assert reader.vmas.rows_of((1, 3)) == [row for row in reader.vmas.rows() if row.process != 2]
        assert reader.vmas.rows(9) == reader.vmas.rows_of(()) == []


def test_a_row_of_a_merged_range_has_the_sizes_of_both(tmp_path):
    parts = (replace(WHOLE, end=HALF), replace(WHOLE, start=HALF))
    counted = ((DATA, 3 * PAGE), (HALF, 2 * PAGE))
    values = {"vma_wss_bytes": counted, "vma_rss_bytes": counted, "vma_shared_bytes": counted}
    windows = {0: values, 1: {"vma_wss_bytes": ((DATA, PAGE),)}}
    with closing(recorded(tmp_path, tables(parts, (WHOLE,), windows=windows))) as reader:
        (row,) = reader.vmas.rows()
        samples, ids, values = reader.vmas.wss(0, 1)
        assert samples.tolist() == [0, 0, 1]
        assert set(ids.tolist()) == {row.id}
        assert values.tolist() == [3 * PAGE, 2 * PAGE, PAGE]
        assert reader.vmas.rss(0) == reader.vmas.shared(0) == {row.id: 5 * PAGE}
        assert reader.vmas.shared(1) == {}


def test_what_a_tracker_cannot_know_is_not_0(tmp_path):
    windows = {0: {"vma_wss_bytes": ((DATA, None),)}}
    with closing(recorded(tmp_path, tables((WHOLE,), windows=windows))) as reader:
        assert reader.vmas.wss(0, 0)[2].tolist() == [UNKNOWN_BYTES]
        samples, ids, values = reader.vmas.wss(1, 9)
        assert len(samples) == len(ids) == len(values) == 0


def test_resident_bytes_are_the_newest_that_are_known(tmp_path, monkeypatch):
    sizes = {sample: {"vma_rss_bytes": ((DATA, (sample + 1) * PAGE),)} for sample in (0, 3)}
    monkeypatch.setattr(vma_reader, "_RESIDENT_SAMPLES", 4)
    with closing(recorded(tmp_path, tables(*[(WHOLE,)] * 10, windows=sizes))) as reader:
        seen = [sum(reader.vmas.rss(sample).values()) // PAGE for sample in range(10)]
        assert seen == [1, 1, 1, 4, 4, 4, 4, 4, 0, 0], "of four samples before at most"
        assert [sum(reader.vmas.rss(sample).values()) // PAGE for sample in (5, 2, 0)] == [4, 1, 1], "backwards, too"


def test_private_bytes_are_those_of_each_reading(tmp_path):
    sizes = {sample: {"vma_private_bytes": ((DATA, (sample + 1) * PAGE),)} for sample in (0, 3)}
    with closing(recorded(tmp_path, tables(*[(WHOLE,)] * 6, windows=sizes))) as reader:
        (row,) = reader.vmas.rows()
        assert reader.vmas.private(0, 5) == [(0, 1, {row.id: PAGE}), (3, 1, {row.id: 4 * PAGE})]
        assert reader.vmas.private(1, 2) == []
        assert [sample for sample, *_ in reader.vmas.private(1, 3)] == [3]


def test_what_has_ended_has_nothing_resident(tmp_path):
    sizes = {0: {"vma_rss_bytes": ((DATA, PAGE),)}}
    with closing(recorded(tmp_path, tables(*[(WHOLE,)] * 3, windows=sizes, keys=(1, 2)))) as reader:
        assert set(reader.vmas.rss(2).values()) == {PAGE}
        assert len(reader.vmas.rss(2)) == 2
        reader.vmas._processes = SimpleNamespace(present=lambda first, last: {2})
        assert [row.process for row in reader.vmas.rows() if row.id in reader.vmas.rss(2)] == [2]


def test_a_session_that_grows_is_followed(tmp_path):
    """Rows that are merged after they were read, and samples that came since."""
    parts = (replace(WHOLE, end=HALF), replace(WHOLE, start=HALF))
    values = {"vma_wss_bytes": ((DATA, PAGE), (HALF, PAGE))}
    *before, table, window, end = tables(parts, (WHOLE,), windows={0: values, 1: {"vma_wss_bytes": ((DATA, PAGE),)}})
    writer = SessionWriter(tmp_path / "s.memtui")
    recorder = SessionBuilder(writer)
    for message in before:
        recorder.add(message)
    writer.commit()
    with closing(Session(tmp_path / "s.memtui")) as reader:
        first, second = (row.id for row in reader.vmas.rows())
        assert reader.vmas.wss(0, 5)[1].tolist() == [first, second]
        for message in (table, window, end):
            recorder.add(message)
        writer.commit()
        reader.refresh()
        assert [row.id for row in reader.vmas.rows()] == [first]
        samples, ids, _ = reader.vmas.wss(0, 5)
        assert (samples.tolist(), ids.tolist()) == ([0, 0, 1], [first] * 3)
        reader.release()
        writer.close()


def test_rows_have_their_states_over_the_samples(tmp_path):
    stream = tables((WHOLE,), (replace(WHOLE, perms="r-xp"),), (WHOLE,))
    with closing(recorded(tmp_path, stream)) as reader:
        for (row,) in (reader.vmas.rows(), reader.vmas.rows_of((1,))):
            assert [row.at(sample).perms for sample in range(3)] == ["rw-p", "r-xp", "rw-p"]
            assert [row.filtered_at(sample) for sample in range(3)] == ["", "exec", ""]
            assert (row.filtered, row.first_sample, row.last_sample) == ("", 0, 2)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE vma_wss SET data = x'00'", "ranges of sample 0: "),
        ("UPDATE vma SET start = 8192, end = 4096", ""),
        ("UPDATE vma SET first_sample = 5, last_sample = 2", ""),
    ],
)
def test_a_damaged_row_is_refused(statement, says, tmp_path):
    path = write_session(tmp_path / "s.memtui", tables((WHOLE,), windows={0: {"vma_wss_bytes": ((DATA, PAGE),)}}))
    with closing(sqlite3.connect(path)) as file:
        file.execute(statement)
        file.commit()
    with closing(Session(path)) as reader:
        read = reader.vmas.rows if "UPDATE vma " in statement else lambda: reader.vmas.wss(0, 0)
        with pytest.raises(SessionError, match=f"is damaged: {says}"):
            read()


def test_sizes_that_unpack_to_too_much_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(vma_reader, "_MAX_PAIR_BYTES", 31)
    windows = {sample: {"vma_wss_bytes": ((DATA, PAGE),)} for sample in (0, 1)}
    with closing(recorded(tmp_path, tables((WHOLE,), (WHOLE,), windows=windows))) as reader:
        with pytest.raises(SessionError, match="unpack to more than 31 bytes"):
            reader.vmas.wss(0, 1)
        assert reader.vmas.wss(0, 0)[2].tolist() == [PAGE]
