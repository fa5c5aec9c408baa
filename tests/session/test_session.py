"""Session files: what the recorder stores is what the reader gives back; a damaged file is one line and exit 2."""

from __future__ import annotations

import csv
import functools
import json
import os
import sqlite3
import tempfile
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from memtui.analysis.working_set import select
from memtui.core.page_set import PageSet
from memtui.core.readings import GPU_COUNTERS
from memtui.core.samples import End, Options, Process, ProcessWindow, Vma, VmaTable, Window
from memtui.recording.recorder.session_builder import SessionBuilder
from memtui.reports.export import export
from memtui.reports.report import build_report, report_of
from memtui.reports.source import Source
from memtui.session.blobs import decode_reuse, encode_reuse
from memtui.session.file_format import (
    JOURNAL_MAGIC,
    SessionError,
    check_file,
    has_log_file,
    row_id,
    seal_session,
    split_row_id,
)
from memtui.session.session import Session
from memtui.session.writer import SessionWriter
from tests.support import sessions
from tests.support.folders import names_in
from tests.support.sessions import CODE, DATA, HEAP, STACK, messages, touched, write_session
from tests.support.strategies import same_pages
from tests.support.users import ran_as_nobody

SAMPLES = 150


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_session(tmp_path_factory.mktemp("session") / "s.memtui", messages(SAMPLES))


@pytest.fixture
def reader(path):
    reader = Session(path)
    yield reader
    reader.close()


def test_file_is_private_and_alone(path):
    assert path.stat().st_mode & 0o777 == 0o600
    assert names_in(path.parent) == [path.name]
    Session(path).close()
    assert names_in(path.parent) == [path.name], "a folded session stays one file when it is read"


def test_scalars(reader):
    table = reader.samples
    assert len(table) == SAMPLES
    assert table.wss_bytes.tolist() == [touched(s).size_bytes for s in range(SAMPLES)]
    assert set(table.paused_ns) == {3e6}
    assert set(table.status) == {"ok"}
    assert reader.end == End(SAMPLES * 203_000_000, "target exited", "", None, reader.end.recorder_cpu_ns)
    assert reader.hello == sessions.hello()
    assert not reader.alive


def kept(sample: int) -> PageSet:
    starts, ends = [HEAP, DATA, CODE, STACK], [v.end for v in sessions.VMAS]
    return select(touched(sample), starts, ends, [True, True, False, True])


def test_page_sets_are_what_the_default_filter_kept(reader):
    for sample in (0, 1, 64, SAMPLES - 1):
        stored = reader.pages.page_set(sample, 1)
        assert same_pages(stored, kept(sample))
        assert reader.samples.stored_bytes[sample] == stored.size_bytes
    assert reader.pages.page_set(SAMPLES, 1) is None
    assert reader.pages.page_set(0, 2) is None


def test_reuse_is_the_same_from_checkpoints_exact_rows_and_page_sets(reader):
    from memtui.analysis.reuse_distance import ReuseTracker
    from memtui.analysis.reuse_histogram import ReuseHistogram

    tracker, expected = ReuseTracker(), ReuseHistogram()
    for sample in range(SAMPLES):
        reuse = tracker.touch(kept(sample))
        expected.add(reuse)
        if sample in (0, 62, 63, 64, 65, 127, 128, SAMPLES - 1):
            assert reader.reuse.until(sample) == expected
    exact = reader.reuse.between(SAMPLES - 1, SAMPLES - 1)[0][2]
    assert exact.counts.tolist() == reuse.counts.tolist()
    assert exact.upper_bytes.tolist() == reuse.upper_bytes.tolist()
    assert exact.first_touches == reuse.first_touches


def test_power_and_events(reader):
    readings = reader.devices.power(0, 2**62)
    assert Counter(r.device for r in readings) == {"CPU": 1, "GPU 0": 30}
    absent = next(r for r in readings if r.device == "CPU")
    assert (absent.power_w, absent.reason) == (None, "no RAPL zone")
    assert {r.device for r in reader.devices.power(20_000_000_000, 2**62)} == {"GPU 0"}
    assert [e.text for e in reader.events(0, 2**62)] == ["epoch 1", "target ended"]


def test_a_lost_window_has_no_value_and_a_reason(tmp_path):
    def stream():
        yield from [sessions.hello(), Process(1, 1, 0, 0, 0, "c", "target"), VmaTable(1, 0, sessions.VMAS)]
        yield Window(0, 0, 1, 1, 0, (ProcessWindow(1, 0, 1, pages=touched(0), rss_bytes=5),))
        yield Window(1, 1, 2, 1, 0, (ProcessWindow(1, 1, 2, status="not paused", reason="vfork", rss_bytes=5),))
        yield End(3, "stopped")

    reader = Session(write_session(tmp_path / "s.memtui", stream()))
    assert np.isnan(reader.samples.wss_bytes[1])
    assert reader.samples.rss_bytes[1] == 5
    assert (reader.samples.status[1], reader.samples.reason[1]) == ("not paused", "vfork")
    assert np.isnan(reader.samples.paused_ns).all()


def test_private_and_swapped_memory_is_kept_and_exported(tmp_path):
    def stream():
        yield sessions.hello()
        yield from (Process(key, 40 + key, 0, key, 0, "c", "target") for key in (1, 2, 3))
        read = {"pss_bytes": 9, "pss_ns": 1, "private_bytes": 7, "swap_bytes": 5}
        yield Window(
            *(0, 0, 1, 1, 0),
            (
                ProcessWindow(1, 0, 1, rss_bytes=11, **read),
                ProcessWindow(2, 0, 1, rss_bytes=11, **read | {"private_bytes": 0, "swap_bytes": None}),
                ProcessWindow(3, 0, 1, rss_bytes=11, pss_reason="denied"),
            ),
        )
        yield End(3, "stopped")

    path = write_session(tmp_path / "s.memtui", stream())
    names = ("process", "private_bytes", "swap_bytes", "pss_reason")
    with closing(Session(path)) as reader:
        rows = [tuple(row[name] for name in names) for row in reader.processes.samples(0, 0)]
    assert rows == [(1, 7, 5, ""), (2, 0, None, ""), (3, None, None, "denied")]
    export(path, "csv", tmp_path)
    with (tmp_path / "samples.csv").open() as file:
        exported = [(row["pid"], row["private_bytes"], row["swap_bytes"]) for row in csv.DictReader(file)]
    assert exported == [("0", "", ""), ("41", "7", "5"), ("42", "0", ""), ("43", "", "")]


def test_no_page_is_reported_outside_the_mappings_of_a_target_that_ran_on(tmp_path):
    pages = PageSet.from_pages([0x100, 0x1FF, 0x200, 0x300])
    vmas = (Vma(0x100_000, 0x200_000, "rw-p", ""),)

    def stream():
        yield sessions.hello()
        yield Process(1, 4242, 1, 777, 0, "python", "target")
        yield VmaTable(1, 0, vmas)
        yield Window(0, 0, 1, 1, 0, (ProcessWindow(1, 0, 1, status="approximate", pages=pages, paused_ns=0),))
        yield End(3, "stopped")

    reader = Session(write_session(tmp_path / "s.memtui", stream()))
    assert reader.pages.page_set(0, 1).pages().tolist() == [0x100, 0x1FF]
    assert reader.samples.wss_bytes[0] == 2 * 4096
    reader.close()


def test_reading_while_it_grows_and_folding_afterwards(tmp_path):
    path = tmp_path / "s.memtui"
    writer = SessionWriter(path)
    recorder = SessionBuilder(writer)
    stream = messages(20)
    for _ in range(8):
        recorder.add(next(stream))
    writer.commit()
    reader = Session(path)
    before = len(reader.samples)
    assert before > 0
    assert not reader.refresh()
    for message in stream:
        recorder.add(message)
    assert not reader.refresh(), "what is not committed is not there"
    writer.commit()
    assert reader.refresh()
    assert len(reader.samples) == 20
    assert reader.end is not None
    reader.release()
    assert writer.close()
    assert names_in(tmp_path) == ["s.memtui"]
    assert reader.pages.page_set(0, 1) is not None, "a released reader opens the file again"
    reader.close()


def test_a_viewer_that_follows_lets_the_recorder_fold_the_file(tmp_path):
    """It keeps the file open while it grows, and lets go of it at the first look after the end."""
    path = tmp_path / "s.memtui"
    writer = SessionWriter(path)
    recorder = SessionBuilder(writer)
    *before, end = messages(20)
    for message in before:
        recorder.add(message)
    writer.commit()
    reader = Session(path)
    reader.release_if_ended()
    assert reader._file._connection is not None, "the recording goes on: the file stays open"
    recorder.add(end)
    looked = threading.Event()

    def look() -> None:
        while not looked.wait(0.1):
            reader.refresh()
            reader.pages.page_set(3, 1)
            reader.release_if_ended()

    viewer = threading.Thread(target=look)
    viewer.start()
    try:
        assert writer.close()
        assert names_in(tmp_path) == ["s.memtui"]
    finally:
        looked.set()
        viewer.join()
    reader.refresh()
    reader.release_if_ended()
    assert reader._file._connection is not None, "a folded file may stay open: nobody waits for it"
    reader.close()


def test_a_viewer_that_was_stopped_does_not_hold_the_recorder_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("memtui.session.file_format.LET_GO_S", 0.1)
    path = write_session(tmp_path / "s.memtui", messages(3))
    writer = SessionWriter(path, overwrite=True)
    recorder = SessionBuilder(writer)
    for message in messages(20):
        recorder.add(message)
    writer.commit()
    with closing(Session(path)) as asleep:
        assert not writer.close()
        assert len(asleep.samples) == 20
    with closing(Session(path)) as later:
        assert len(later.samples) == 20
        assert later.end is not None


def test_after_a_failure_only_what_was_committed_is_left(tmp_path):
    """What was not may be a part of a window."""
    path = tmp_path / "s.memtui"
    writer = SessionWriter(path)
    recorder = SessionBuilder(writer)
    stream = messages(20)
    while recorder.samples < 3:
        recorder.add(next(stream))
    writer.commit()
    while recorder.samples < 5:
        recorder.add(next(stream))
    assert writer.abandon()
    assert names_in(tmp_path) == ["s.memtui"]
    with closing(Session(path)) as reader:
        assert len(reader.samples) == 3
        assert reader.end is None


def test_after_a_failure_nothing_is_left_of_a_session_without_a_commit(tmp_path):
    writer = SessionWriter(tmp_path / "s.memtui")
    recorder = SessionBuilder(writer)
    for message in messages(3):
        recorder.add(message)
    assert not writer.abandon()
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("error", [MemoryError(), sqlite3.OperationalError("disk I/O error"), KeyboardInterrupt()])
def test_a_session_that_cannot_be_created_leaves_no_file(error, tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise error

    for where in ("sqlite3.connect", "memtui.session.writer.SessionWriter._create_tables"):
        with monkeypatch.context() as patched:
            patched.setattr(where, fail)
            with pytest.raises(type(error)):
                SessionWriter(tmp_path / "s.memtui")
        assert names_in(tmp_path) == []


@pytest.mark.parametrize("folded", [False, True])
def test_a_log_that_cannot_be_folded_is_not_passed_over(folded, tmp_path, monkeypatch):
    """As when a reader that has the file open keeps the log, and there is no memory to look again."""
    path = tmp_path / "s.memtui"
    writer = SessionWriter(path)
    recorder = SessionBuilder(writer)
    for message in messages(20):
        recorder.add(message)
    writer.commit()
    with closing(Session(path)) as reader:
        if folded:
            reader.release()
        with monkeypatch.context() as patched:
            patched.setattr("memtui.session.file_format.sqlite3.connect", Mock(side_effect=MemoryError))
            with pytest.raises(MemoryError):
                writer.close()
        assert has_log_file(path) != folded
        assert len(reader.samples) == 20
        assert reader.end is not None


def test_a_draft_that_cannot_be_folded_is_not_renamed_without_its_log(tmp_path):
    draft = tmp_path / "draft"
    writer = SessionWriter(draft)
    recorder = SessionBuilder(writer)
    for message in messages(20):
        recorder.add(message)
    writer.commit()
    with closing(Session(draft)), pytest.raises(SessionError, match="another program reads"):
        writer.close_as(tmp_path / "s.memtui", overwrite=False)
    assert names_in(tmp_path) == []


def kill_a_recorder(path: Path, pages_in_memory: int | None = None) -> None:
    """It commits 50 messages, adds 30 more and is killed; ``pages_in_memory``: of SQLite's changed pages."""
    child = os.fork()
    if child == 0:
        writer = SessionWriter(path)
        recorder = SessionBuilder(writer)
        if pages_in_memory:
            writer._connection.execute(f"PRAGMA cache_size={pages_in_memory}")
        for i, message in enumerate(messages(100)):
            recorder.add(message)
            if i == 50:
                writer.commit()
            if i == 80:
                os.kill(os.getpid(), 9)
    os.waitpid(child, 0)


def test_a_killed_recorder_leaves_what_it_committed(tmp_path):
    path = tmp_path / "s.memtui"
    kill_a_recorder(path)
    reader = Session(path)
    assert 30 < len(reader.samples) < 60
    assert reader.end is None
    last = int(reader.samples.sample[-1])
    assert same_pages(reader.pages.page_set(last, 1), kept(last))
    reader.close()


def damaged(path, tmp_path, name):
    copy = tmp_path / f"{name}.memtui"
    data = path.read_bytes()
    match name:
        case "empty":
            data = b""
        case "truncated":
            data = data[: len(data) // 2]
        case "stub":
            data = data[:50]
        case "foreign":
            data = b"\x89PNG" + data
        case "garbage":
            data = data[:100] + os.urandom(len(data) - 100)
        case "newer":
            data = data[:60] + (99).to_bytes(4, "big") + data[64:]
        case "sqlite":
            connection = sqlite3.connect(copy)
            connection.execute("CREATE TABLE t(x)")
            connection.commit()
            connection.close()
            return copy
        case "missing":
            return copy
        case "folder":
            copy.mkdir()
            return copy
    copy.write_bytes(data)
    return copy


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("empty", "is empty"),
        ("truncated", "is truncated"),
        ("stub", "is truncated"),
        ("foreign", "is not a memtui session"),
        ("sqlite", "but not a memtui session"),
        ("newer", "newer memtui"),
        ("missing", "no such file"),
        ("folder", "is a directory"),
        ("garbage", "cannot be read"),
    ],
)
def test_bad_files_are_refused_in_one_line(path, tmp_path, name, says):
    bad = damaged(path, tmp_path, name)
    with pytest.raises(SessionError, match=says) as caught:
        Session(bad)
    assert "\n" not in str(caught.value)
    assert str(bad) in str(caught.value)


def test_a_session_without_a_beginning(tmp_path):
    path = tmp_path / "s.memtui"
    writer = SessionWriter(path)
    writer.commit()
    check_file(path)
    with pytest.raises(SessionError, match="holds no recording"):
        Session(path)
    writer.close()


def test_reads_from_a_place_where_nothing_can_be_written(path):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy = folder / "s.memtui"
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o444)
        folder.chmod(0o555)

        def read() -> None:
            assert len(Session(copy).samples) == SAMPLES

        done = ran_as_nobody(read)
        folder.chmod(0o755)
    assert done


def test_an_existing_file_is_refused_and_force_replaces_it(path, tmp_path):
    copy = tmp_path / "s.memtui"
    copy.write_bytes(path.read_bytes())
    with pytest.raises(FileExistsError):
        SessionWriter(copy)
    SessionWriter(copy, overwrite=True).close()
    assert json.dumps(check_file(copy)) == "null"


def test_row_ids_rise_with_time():
    assert split_row_id(row_id(18_000, 77)) == (18_000, 77)
    assert row_id(1, 0) > row_id(0, (1 << 20) - 1)


class WithoutWal(sqlite3.Connection):
    """What SQLite answers on NFS: the journal stays what it was."""

    def execute(self, sql, *values):
        return super().execute(sql.replace("journal_mode=WAL", "journal_mode=DELETE"), *values)


@pytest.fixture
def no_wal(monkeypatch):
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=WithoutWal))


def test_where_wal_is_refused_it_records_and_replays(no_wal, tmp_path):
    path = tmp_path / "s.memtui"
    writer = SessionWriter(path)
    assert not writer.wal
    recorder = SessionBuilder(writer)
    reader = None
    for message in messages(20):
        recorder.add(message)
        writer.commit()
        if recorder.samples == 5 and reader is None:
            reader = Session(path)
    assert reader is not None
    assert reader.refresh(), "read while it grew"
    assert len(reader.samples) == 20
    reader.close()
    assert writer.close()
    assert names_in(tmp_path) == ["s.memtui"]
    reader = Session(path)
    assert same_pages(reader.pages.page_set(19, 1), kept(19))
    reader.close()
    assert build_report(path).samples == 20


def killed_without_wal(path: Path) -> None:
    """A recorder that dies in the middle of a write: the file is half new, the journal has the old half."""
    kill_a_recorder(path, pages_in_memory=4)  # so that a commit is not awaited to write
    assert path.with_name(path.name + "-journal").stat().st_size > 0


def test_a_killed_recorder_without_wal_leaves_what_it_committed(no_wal, tmp_path):
    path = tmp_path / "s.memtui"
    killed_without_wal(path)
    reader = Session(path)
    assert 30 < len(reader.samples) < 60
    last = int(reader.samples.sample[-1])
    assert same_pages(reader.pages.page_set(last, 1), kept(last))
    reader.close()


def test_a_journal_that_names_another_file_is_not_followed(no_wal, tmp_path):
    path, victim = tmp_path / "s.memtui", tmp_path / "victim"
    killed_without_wal(path)
    victim.write_text("precious")
    name = os.fsencode(victim)
    with path.with_name(path.name + "-journal").open("ab") as journal:
        number = (0x3FFFFFFF // 8192 + 1).to_bytes(4, "big")
        tail = len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big") + JOURNAL_MAGIC
        journal.write(number + name + tail)
    with pytest.raises(SessionError, match="middle of a write"):
        Session(path)
    assert not seal_session(path)
    assert victim.read_text() == "precious"


def neighbours():
    """Two files mapped side by side, one of which goes at half time."""
    first = Vma(DATA, DATA + (4 << 20), "r--p", "/a")
    second = Vma(DATA + (4 << 20), DATA + (8 << 20), "r--p", "/b")
    pages = (DATA >> 12) + np.arange(2048)
    yield sessions.hello(options=Options(200, filter="none"))
    yield Process(1, 1, 0, 0, 0, "c", "target")
    yield VmaTable(1, 0, (first, second))
    for sample in range(4):
        if sample == 2:
            yield VmaTable(1, 2, (first,))
        seen = PageSet.from_pages(pages if sample < 2 else pages[:1024])
        window = ProcessWindow(1, sample, sample + 1, pages=seen, resident=seen, rss_bytes=1)
        yield Window(sample, sample, sample + 1, 1, 0, (window,))
    yield End(9, "stopped")


def test_exported_runs_stop_at_the_borders_of_ranges(tmp_path):
    export(write_session(tmp_path / "s.memtui", neighbours()), "csv", tmp_path)
    with (tmp_path / "pages.csv").open() as file:
        runs = [(int(r["sample"]), int(r["start"]) - DATA, int(r["end"]) - DATA) for r in csv.DictReader(file)]
    border = 4 << 20
    assert runs == [
        *((s, *r) for s in (0, 1) for r in ((0, border), (border, 2 * border))),
        (2, 0, border),
        (3, 0, border),
    ]
    with (tmp_path / "vmas.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[8:] == ["wss_bytes", "rss_bytes"]
    assert [(r["name"], r["wss_bytes"], r["rss_bytes"]) for r in rows] == [
        ("/a", str(border), str(border)),
        ("/b", str(border), str(border)),
    ]


def test_runs_are_the_same_in_parts():
    pages = PageSet.from_pages((DATA >> 12) + np.arange(2048 * 512 * 2 + 5))
    assert len(list(pages.runs())) == 1
    border = DATA + 2048 * (2 << 20)
    assert [start for start, _, _ in pages.runs([border, DATA + 4096])] == [DATA, DATA + 4096, border]


@pytest.mark.parametrize("version", [17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6])
def test_a_session_of_a_format_before_is_read(version, tmp_path):
    """It lacks tables and columns, and knows nothing of what they are about."""
    path = write_session(tmp_path / "s.memtui", messages(5))
    since = {6: "allocation_step tensor_ranges", 7: "training_progress allocation_device"}
    since |= {8: "progress_device driver_memory learning learning_about", 9: "vma_state", 10: "gpu_use allocator_peak"}
    since |= {11: "layer_types"}
    since |= {12: "frame call_stack allocation_stack capture capture_blocks reuse_burst resident_set"}
    since |= {13: "memory_limit", 14: "memory_use", 15: "vma_private", 16: "numa_use"}
    gone = [table for before, tables in since.items() if before >= version for table in tables.split()]
    connection = sqlite3.connect(path)
    columns = [("power", name) for name in (*GPU_COUNTERS, "counters_reason") if version < 11]
    columns += [("process_sample", "longest_pause_ns")] * (version < 13)
    columns += [("process_sample", name) for name in ("private_bytes", "swap_bytes") if version < 15]
    columns += [
        ("memory_limit", name) for name in ("stall_cgroup", "some_stall_ns", "full_stall_ns") if version in (14, 15)
    ]
    columns += [("memory_limit", name) for name in ("refaults", "oom_score_adj") if 14 <= version < 17]
    high = ("high_cgroup", "high_bytes", "high_used_bytes", "high_events")
    columns += [("memory_limit", name) for name in high if version >= 14]
    if version < 10:
        names = ("processes", "pss_bytes", "pss_ns", "wss_low_bytes", "wss_high_bytes", "lost_ns", "set_again_ns")
        columns += [("sample", name) for name in names]
        columns += [("process_sample", name) for name in ("pss_bytes", "pss_ns", "pss_reason")]
    for row, data in connection.execute("SELECT id, data FROM reuse").fetchall() if version < 13 else ():
        without = replace(decode_reuse(data), earlier_bytes=None, later_bytes=None)
        connection.execute("UPDATE reuse SET data = ? WHERE id = ?", (encode_reuse(without), row))
        connection.execute("DELETE FROM reuse_checkpoint")
    connection.commit()
    connection.executescript(
        "".join(f"DROP TABLE {table};" for table in gone)
        + "".join(f"ALTER TABLE {table} DROP COLUMN {name};" for table, name in columns)
        + f"PRAGMA user_version={version};"
    )
    connection.close()
    reader = Session(path)
    assert len(reader.samples) == 5
    assert np.isnan(reader.samples.pss_bytes).all()
    assert np.isnan(reader.samples.processes).all() == (version < 10)
    rows = reader.processes.samples(0, 4)
    assert {(row["pss_bytes"], row["pss_reason"]) for row in rows} == {(None, "")}
    assert {(row["private_bytes"], row["swap_bytes"], row["longest_pause_ns"]) for row in rows} == {(None, None, None)}
    with closing(Source(path)) as source:
        report = report_of(source, "old")
    assert report.touched_fraction.of == "RSS"  # of one process, as its table of processes shows
    assert report.pss_bytes.mean is None
    assert (report.reuse.median_bytes.estimate is None) == (version < 13)
    assert ("did not store what an estimate needs" in report.reuse.estimate_reason) == (version < 13)
    assert reader.reuse.until(4).quantile(0.5) is not None
    assert (reader.reuse.until(4).estimate(0.5) is None) == (version < 13)
    assert np.isnan(reader.samples.lost_ns).all()
    assert reader.allocations.steps() == []
    assert reader.tensors.maps() == []
    assert reader.tensors.latest(4242, 1 << 60) is None
    assert reader.captures.all() == []
    assert reader.captures.pids() == []
    assert reader.pages.resident_set(0, 1) is None
    assert reader.pages.resident_samples(1) == []
    assert reader.training.progress() == []
    assert reader.training.devices() == ["cpu"]
    assert reader.allocations.driver_memory() == []
    assert reader.imported() is None
    assert reader.training.learning() == []
    assert reader.training.networks() == []
    assert reader.devices.gpu_use(0, 2**62) == []
    assert reader.devices.gpu_use_at(2**61) == {}
    assert reader.devices.memory_limits(0, 2**62) == []
    assert reader.devices.memory_use(0, 2**62) == []
    assert {(reading.sm_active, reading.counters_reason) for reading in reader.devices.power(0, 2**62)} == {(None, "")}
    reader.close()
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE gpu_memory;")
    connection.close()
    with pytest.raises(SessionError, match=f"its tables are not those of format {version}"):
        Session(path)
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA user_version=5;")
    connection.close()
    with pytest.raises(SessionError, match=r"an older memtui \(format 5, this one reads 6 to 18\)"):
        Session(path)
