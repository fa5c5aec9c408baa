"""A stranger's session: it is refused in one line or shown, and nothing in it is run, followed or believed."""

from __future__ import annotations

import os
import sqlite3
import struct
import subprocess
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest

from memtui.analysis.reuse_histogram import ReuseHistogram
from memtui.core.compression import inflate
from memtui.core.page_set import PageSet
from memtui.reports.export import export
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from memtui.session import blobs
from memtui.session.file_format import SessionError, connect_reader, seal_session
from memtui.session.session import Session
from memtui.session.writer import SessionWriter
from memtui.tui.presenters import Presenter, Room
from tests.conftest import LONG
from tests.mutations import SCHEMA, mutate
from tests.support.folders import names_in
from tests.support.hostile_sessions import MIB, SAMPLES, little_memory, small_stream
from tests.support.sessions import write_session

FORMS = ("csv", "json", "svg", "html", "chrome", "perfetto")
MUTATIONS = int(os.environ.get("MEMTUI_MUTATIONS", "400" if LONG else "120"))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_session(tmp_path_factory.mktemp("hostile") / "s.memtui", small_stream())


def use(path: Path, folder: Path, form: str) -> None:
    """Everything memtui does with a session: three cursor positions of the screen, the report, an export."""
    reader = Session(path)
    try:
        presenter = Presenter(reader, follow=False)
        presenter.room = Room(60, 12)
        for move in (presenter.playhead.home, lambda: presenter.playhead.step(SAMPLES // 2), presenter.playhead.to_end):
            move()
            for _ in range(5):
                presenter.view(0.2)
                if presenter.complete:
                    break
        reader.reuse.until(SAMPLES)
        reader.pages.sums(0, SAMPLES + 64)
    finally:
        reader.close()
    format_report(build_report(path))
    format_report(build_report(path, redact=True))
    export(path, form, folder, force=True)
    if form == "csv":
        export(path, form, folder, force=True, redact=True)


@pytest.mark.parametrize("form", FORMS)
def test_the_whole_session_is_usable(form, path, tmp_path):
    use(path, tmp_path, form)


def test_mutated_sessions_give_one_line_or_a_result(path, tmp_path):
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    with little_memory(300 * MIB):
        for seed in range(MUTATIONS):
            bad = tmp_path / "s.memtui"
            for beside in tmp_path.glob("s.memtui*"):
                beside.unlink()
            kind = mutate(path, bad, seed)
            start = time.process_time()
            try:
                use(bad, tmp_path, FORMS[seed % len(FORMS)])
                outcomes["used"] += 1
            except SessionError as error:
                outcomes["refused" if str(error).startswith(f"{bad}: ") and "\n" not in str(error) else "bad line"] += 1
            except BaseException as error:
                raise AssertionError(f"seed {seed} ({kind}): {type(error).__name__}: {error}") from error
            slowest = max(slowest, time.process_time() - start)
            assert slowest < 2.0, f"seed {seed} ({kind})"
    assert not outcomes["bad line"]
    assert min(outcomes["used"], outcomes["refused"]) > MUTATIONS // 10, outcomes


def sql(path: Path, *statements: str, values: tuple = ()) -> Path:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()
    return path


@pytest.fixture
def copy(path, tmp_path):
    copied = tmp_path / "copy.memtui"
    copied.write_bytes(path.read_bytes())
    return copied


def refused(path: Path, says: str, seconds: float = 1.0) -> None:
    start = time.process_time()
    with pytest.raises(SessionError, match=says) as caught:
        use(path, path.parent / "out", "csv")
    assert "\n" not in str(caught.value)
    assert time.process_time() - start < seconds


@pytest.mark.parametrize("statement", SCHEMA)
def test_other_tables_than_ours_are_no_session(statement, copy):
    refused(sql(copy, statement), "not a memtui session")


@pytest.mark.parametrize("statement", [*SCHEMA, "PRAGMA application_id=1", ""])
def test_what_is_not_a_session_is_not_sealed(statement, copy):
    sql(copy, statement, "PRAGMA journal_mode=WAL")
    before = copy.read_bytes()
    assert before[18:20] == b"\x02\x02", "it has no log"
    assert seal_session(copy) == (statement == "")
    assert names_in(copy.parent) == [copy.name]
    assert (copy.read_bytes() == before) == (statement != "")


def test_a_virtual_table_is_no_session(copy):
    connection = sqlite3.connect(copy)
    connection.execute("PRAGMA writable_schema=1")
    connection.execute(
        "INSERT INTO sqlite_master VALUES ('table', 'f', 'f', 0, 'CREATE VIRTUAL TABLE f USING fts5(x)')"
    )
    connection.commit()
    connection.close()
    refused(copy, "not a memtui session")


def test_a_comment_cannot_hide_code(copy):
    connection = sqlite3.connect(copy)
    connection.execute("PRAGMA writable_schema=1")
    connection.execute(
        "UPDATE sqlite_master SET sql = replace(sql, 'text TEXT', 'text TEXT DEFAULT '' --'' ') WHERE name='event'"
    )
    connection.commit()
    connection.close()
    refused(copy, "not a memtui session|cannot be read")


def test_a_reader_can_write_nothing_and_reach_nothing(path, tmp_path):
    connection = connect_reader(path)
    for statement in ("DELETE FROM sample", "CREATE TABLE t(x)", f"ATTACH '{tmp_path}/other' AS o"):
        with pytest.raises(sqlite3.Error):
            connection.execute(statement)
    for pragma, value in (("query_only", 1), ("trusted_schema", 0), ("cell_size_check", 1), ("mmap_size", 0)):
        assert connection.execute(f"PRAGMA {pragma}").fetchone() in ((value,), None), pragma
    assert connection.getlimit(sqlite3.SQLITE_LIMIT_ATTACHED) == 0
    assert connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) <= 64 * MIB
    connection.close()
    assert not (tmp_path / "other").exists()


def bomb(head: bytes = b"", size_bytes: int = 1 << 30) -> bytes:
    """A blob of a few megabytes that unpacks to a gigabyte of zeros."""
    stream = zlib.compressobj(1)
    parts = [stream.compress(head)] + [stream.compress(bytes(MIB)) for _ in range(size_bytes // MIB)]
    return b"".join((*parts, stream.flush()))


@pytest.fixture(scope="module")
def gigabyte():
    return bomb()


@pytest.mark.parametrize(
    "table", ["page_set", "touch_sum", "vma_wss", "vma_rss", "vma_shared", "reuse", "reuse_checkpoint"]
)
def test_a_small_blob_does_not_become_a_large_memory(table, gigabyte, copy):
    head = ReuseHistogram().to_bytes()[:4] if table == "reuse_checkpoint" else b""
    data = bomb(struct.pack("<III", 14_000_000, 0, 0)) if table == "page_set" else head + gigabyte
    sql(copy, f"UPDATE {table} SET data = ?", values=(data,))
    with little_memory(300 * MIB):
        refused(copy, "is damaged", 2.0)


def test_inflate():
    assert inflate(zlib.compress(b"abc"), 3) == b"abc"
    for bad, limit in (
        (zlib.compress(b"abcd"), 3),
        (zlib.compress(b"abc")[:-1], 3),
        (zlib.compress(b"a") + b"x", 3),
        (b"", 3),
    ):
        with pytest.raises(ValueError, match=r"unpacks|cut short|damaged|incorrect"):
            inflate(bad, limit)


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack("<III", 1, 0, 0) + bytes(71),
        struct.pack("<III", 2, 0, 0) + struct.pack("<QQ", 5, 0) + b"\1" * 128,
        struct.pack("<III", 2, 0, 0) + struct.pack("<QQ", 5, 2**64 - 1) + b"\1" * 128,
        struct.pack("<III", 0, 1, 0) + struct.pack("<Q", 1 << 40),
        struct.pack("<III", 0, 0, 1) + struct.pack("<Q", 1 << 30),
        b"\0\0",
    ],
    ids=["short", "standing", "falling", "far", "farther", "headless"],
)
def test_page_sets_that_no_recorder_wrote(raw):
    with pytest.raises(ValueError, match="damaged page set"):
        PageSet.decode(zlib.compress(raw))


def test_pairs_and_distances_that_no_recorder_wrote():
    def packed(*numbers: int) -> bytes:
        return zlib.compress(struct.pack(f"<{len(numbers)}q", *numbers))

    for bad in (
        packed(1), packed(0, 5), packed(-1, 5), packed(2**62, 2**62, 1, 1), packed(1, -2), packed(1, 2**62),
        packed(1, 0, 5, 5), packed(2, -1, 5, 5),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"rows|range"):
            blobs.decode_pairs(bad)
    for bad in (
        packed(1),
        packed(-1, 0),
        packed(0, 0, 1),
        packed(0, 0, 1, 2, 3),
        packed(0, 0, 1, 0, -1),
        packed(0, 0, 1, 1, 2**40),
    ):
        with pytest.raises(ValueError, match=r"rows|range|short"):
            blobs.decode_reuse(bad)
    with pytest.raises(ValueError, match="unpacks"):
        blobs.decode_reuse(packed(0, 0, *[4096] * 6), limit=1)


def test_ranges_merged_in_a_circle_end(copy):
    sql(copy, "INSERT OR REPLACE INTO vma_alias SELECT id, (SELECT max(id) FROM vma) FROM vma")
    refused(copy, "in a circle")


def test_a_table_that_leads_back_to_itself_ends(copy):
    """Every pointer of every interior page leads to one page: few pages, and rows without end."""
    connection = sqlite3.connect(copy)
    with connection:
        connection.executemany("INSERT INTO event VALUES (?, 'mark', ?)", ((n, "x" * 300) for n in range(3000)))
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'event'").fetchone()[0]
        connection.execute("DELETE FROM event WHERE rowid > 2900")
    connection.close()
    data = bytearray(copy.read_bytes())
    page = (root - 1) * 8192
    assert data[page] == 5, "an interior page"
    cells = struct.unpack_from(">H", data, page + 3)[0]
    places = struct.unpack_from(f">{cells}H", data, page + 12)
    for place in places:
        data[page + place : page + place + 4] = root.to_bytes(4, "big")
    copy.write_bytes(data)
    refused(copy, "damaged|cannot be read", 10.0)


COLUMNS = ("sample.end_ns", "process_sample.wss_bytes", "vma.start", "vma_alias.row", "process.pid")


@pytest.mark.parametrize("column", [*COLUMNS, "power.memory_used_bytes"])
@pytest.mark.parametrize("value", ["text", b"blob", -1, 2**63 - 1, 1.5])
def test_a_value_of_another_type_is_damage(column, value, copy):
    table, _, column = column.partition(".")
    sql(copy, "INSERT INTO vma_alias VALUES (1000, 1)")
    sql(copy, f"UPDATE {table} SET {column} = ?", values=(value,))
    refused(copy, "is damaged")


def test_the_recorders_pid_is_a_number(copy):
    """It becomes part of a path under /proc."""
    sql(
        copy, "UPDATE meta SET value = '\"../../etc\"' WHERE key = 'recorder_pid'", "DELETE FROM meta WHERE key = 'end'"
    )
    refused(copy, "pid")


# The other way round: what stands where a recorder wants to write.


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("force", [False, True])
def test_a_link_beside_the_session_is_not_followed(end, force, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"s.memtui{end}").symlink_to(victim)
    with pytest.raises(SessionError, match="remove it or choose another name"):
        SessionWriter(tmp_path / "s.memtui", overwrite=force)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "s.memtui").exists()


def test_a_link_in_place_of_the_session_is_not_followed(path, tmp_path):
    victim, link = tmp_path / "victim", tmp_path / "s.memtui"
    victim.write_bytes(path.read_bytes())
    link.symlink_to(victim)
    with pytest.raises(FileExistsError):
        SessionWriter(link)
    with pytest.raises(SessionError, match="not a file of yours"):
        SessionWriter(link, overwrite=True)
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        SessionWriter(link)
    assert victim.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("content", [b"", b"my thesis\n" * 100, b"SQLite format 3\0" + bytes(100)])
def test_force_takes_away_sessions_only(content, tmp_path):
    there = tmp_path / "thesis.tex"
    there.write_bytes(content)
    with pytest.raises(SessionError, match="--force does not replace it"):
        SessionWriter(there, overwrite=True)
    assert there.read_bytes() == content


def test_force_leaves_files_of_others(path, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to make a file of somebody else")
    there = tmp_path / "s.memtui"
    there.write_bytes(path.read_bytes())
    os.chown(there, 12345, 12345)
    with pytest.raises(SessionError, match="not a file of yours"):
        SessionWriter(there, overwrite=True)


def test_a_file_that_took_the_sessions_place_stays_as_it_is(tmp_path):
    path, other = tmp_path / "s.memtui", tmp_path / "other"
    writer = SessionWriter(path)
    other.write_text("not ours")
    other.replace(path)
    with pytest.raises(OSError, match="took its place"):
        writer.discard()
    assert path.read_text() == "not ours"


def test_nothing_is_left_of_a_session_that_could_not_begin(tmp_path, monkeypatch):
    monkeypatch.setattr("memtui.session.writer.schema", lambda: "CREATE nonsense;")
    with pytest.raises(sqlite3.Error):
        SessionWriter(tmp_path / "s.memtui")
    assert names_in(tmp_path) == []


def test_decoded_page_sets_are_kept_within_a_limit(path, monkeypatch):
    monkeypatch.setattr("memtui.tui.presenters.heat_map.KEEP_SETS_BYTES", 300)
    reader = Session(path)
    presenter = Presenter(reader, follow=False)
    presenter.room = Room(60, 12)
    presenter.view(1.0)
    assert 0 < presenter.heat._sets.total_bytes <= 300
    reader.close()


@pytest.mark.parametrize(
    "words", [("report",), ("report", "--json"), ("export", "--to", "csv", "-o", "out"), ("replay",)]
)
def test_a_damaged_session_is_one_line_and_exit_2(words, copy, tmp_path):
    sql(copy, "CREATE VIEW v AS SELECT 1")
    command = [sys.executable, "-m", "memtui", words[0], copy, *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"memtui {words[0]}: ")


def test_a_failed_export_leaves_no_files(copy, tmp_path):
    sql(copy, "UPDATE reuse SET data = x'00'")
    with pytest.raises(SessionError):
        export(copy, "csv", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_does_not_write_through_a_link(path, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "samples.csv").symlink_to(victim)
    export(path, "csv", tmp_path, force=True)
    assert victim.read_text() == "precious"


def test_forced_recording_over_another_file_is_exit_2(tmp_path):
    there = tmp_path / "thesis.tex"
    there.write_text("my thesis")
    command = [sys.executable, "-m", "memtui", "record", "-o", there, "--force", "--tracker", "rss", "--", "sleep", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert there.read_text() == "my thesis"
