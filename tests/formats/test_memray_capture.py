"""Captures that memray itself makes, here and now: its own figures, all calls of a stack, damage in one line."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path

import numpy as np
import pytest

from memtui.formats import memray_capture, reading
from memtui.formats.catalogue import import_bytes, import_file, may_be_imported
from memtui.formats.imported import NotImportable
from memtui.formats.session_writer import write
from memtui.session.session import Session
from tests.support.in_process import run
from tests.support.memory_logs import mxnet_log
from tests.support.memray_captures import MIB, memray_report, needs_memray, run_memray
from tests.support.stack_captures import same

PACKED_HEAD = b"\x04\x22\x4d\x18" + bytes(12) + b"memray\0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("memray")


@pytest.fixture(scope="module")
def capture(folder):
    return run_memray(folder, "--no-compress")


def large(stacks, function):
    """The blocks of at least a MiB whose innermost call is a function: (bytes, rows they lived)."""
    blocks = stacks.blocks
    return [
        (int(blocks.size_bytes[n]), int(blocks.allocated[n]), int(blocks.freed[n]))
        for n in np.flatnonzero(blocks.size_bytes >= MIB)
        if stacks.stacks.stack(int(blocks.stack[n]))[0].function == function
    ]


@needs_memray
def test_totals_are_memrays_own(capture):
    import memray

    imported = import_file(capture)
    about = memray.FileReader(capture).metadata
    assert imported.about.warnings == ()
    assert imported.about.clock == "wall"
    assert imported.capture.peak()[0] == imported.parts[0].trace.peak_bytes == about.peak_memory
    assert imported.capture.rows == about.total_allocations
    assert imported.capture.pid == about.pid
    peak = imported.capture.sums(imported.capture.blocks.alive_after(imported.capture.peak()[1]))[0]
    assert peak.sum() == sum(
        record.size for record in memray.FileReader(capture).get_high_watermark_allocation_records()
    )


@needs_memray
def test_blocks_have_all_calls_of_their_stack_and_live_as_long_as_the_program_says(capture):
    stacks = import_file(capture).capture
    made = large(stacks, "make")
    assert [size // MIB for size, _, _ in made] == [24, 3, 8, 8, 8, 8, 8]
    assert [freed == stacks.rows for _, _, freed in made] == [True, True, *[False] * 5]
    deep = next(
        int(stacks.blocks.stack[n]) for n in range(len(stacks.blocks)) if stacks.blocks.size_bytes[n] == 3 * MIB + 33
    )
    calls = stacks.stacks.stack(deep)[::-1]
    assert [call.function for call in calls[-202:]] == [*["recurse"] * 201, "make"]
    assert calls[-203].function == "<module>"
    assert calls[-1].file.endswith("work.py")
    assert calls[-1].line == 5
    (mapping,) = large(stacks, "<module>")
    assert mapping[0] == MIB
    # It slept 50 ms after each of five blocks: readings of the clock lie between the first and the last.
    moments = np.searchsorted(stacks.readings.rows, [allocated for _, allocated, _ in made[2:]], side="right")
    assert (np.diff(moments) >= 0).all()
    assert moments[-1] - moments[0] >= 2


@needs_memray
def test_the_session_holds_the_capture(capture, tmp_path, capsys):
    path = tmp_path / "s.memtui"
    code, out, err = run(capsys, "import", str(capture), "-o", str(path))
    assert (code, err) == (0, "")
    assert "memray capture" in out
    (stored,) = Session(path).captures.all()
    same(stored, import_file(capture).capture)
    (step,) = Session(path).allocations.steps()
    assert step.peak_bytes == stored.peak()[0]
    assert step.peak_op.endswith("make (work.py:5)")


@needs_memray
def test_a_capture_is_read_packed_and_by_its_name(capture, tmp_path):
    packed = tmp_path / "c.bin.gz"
    packed.write_bytes(gzip.compress(capture.read_bytes()))
    same(import_file(packed, "memray").capture, import_file(capture).capture)


@needs_memray
def test_native_and_aggregated_captures(folder):
    native = import_file(run_memray(folder, "--native", name="native.bin")).capture
    assert any(
        (call.line and call.file.endswith(".c")) or ".so" in call.file or "python" in call.file
        for call in native.stacks.frames
    )
    aggregated = import_file(run_memray(folder, "--aggregate", name="aggregated.bin"))
    assert "aggregated" in aggregated.about.absent[0]
    assert aggregated.about.clock == "none"
    assert aggregated.capture.peak()[0] == aggregated.parts[0].trace.peak_bytes > 30 * MIB
    assert (aggregated.capture.blocks.address == -1).all()
    assert large(aggregated.capture, "make")[-1][2] == aggregated.capture.rows


@needs_memray
@pytest.mark.parametrize(
    ("argv", "calls"),
    [
        (("flamegraph",), 203),
        (("table",), 1),
        (("transform", "csv"), 203),
        (("transform", "speedscope"), 203),
        (("transform", "gprof2dot"), 203),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_reports_of_memray_have_its_peak_by_stack(capture, argv, calls):
    imported = import_file(memray_report(capture, *argv))
    assert imported.capture.peak()[0] == import_file(capture).capture.peak()[0]
    sizes = imported.capture.blocks.size_bytes
    depths = {
        len(imported.stacks.stack(int(imported.capture.blocks.stack[n]))) for n in np.flatnonzero(sizes > 2 * MIB)
    }
    assert max(depths) >= calls
    assert (max(depths) == 1) == (calls == 1)


@needs_memray
@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("stats", "--json"), "statistics of memray without call stacks"),
        (("flamegraph", "--temporal", "-o", "temporal.html"), "temporal flame graph"),
        (("flamegraph", "--inverted", "-o", "inverted.html"), "inverted flame graph"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_reports_without_stacks_are_refused(capture, argv, why):
    with pytest.raises(NotImportable, match=why):
        import_file(memray_report(capture, *argv))


@needs_memray
def test_a_capture_that_is_cut_off_gives_what_there_is_or_one_line(capture):
    data = capture.read_bytes()
    with pytest.raises(NotImportable, match="is not a capture that memray reads"):
        import_bytes(data[:60])
    whole = import_bytes(data)
    half = import_bytes(data[: len(data) // 2])
    assert "was killed, or the file is cut off" in half.about.warnings[0]
    assert 0 < half.capture.rows < whole.capture.rows


@needs_memray
def test_mutated_captures_give_one_line_or_a_result(capture):
    data, chance = capture.read_bytes(), random.Random(1)
    for _ in range(3):
        bad = bytearray(data)
        for _ in range(20):
            bad[chance.randrange(64, len(bad))] = chance.randrange(256)
        message = ""
        try:
            import_bytes(bytes(bad))
        except NotImportable as error:
            message = str(error)
        assert "\n" not in message


def test_without_memray_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(memray_capture, "find_spec", lambda name: None)
    path = tmp_path / "c.bin"
    for head in (PACKED_HEAD, b"memray\0"):
        path.write_bytes(head + bytes(100))
        code, out, err = run(capsys, "import", str(path), "-o", str(tmp_path / "s.memtui"))
        assert (code, out) == (2, "")
        assert err.strip() == f"memtui import: {path}: {memray_capture.MISSING}"
    assert not (tmp_path / "s.memtui").exists()


def test_no_room_for_an_unpacked_capture_is_one_line_and_other_files_are_read(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(memray_capture, "find_spec", lambda name: object())
    monkeypatch.setattr(
        memray_capture.tempfile, "TemporaryFile", lambda buffering: Path("/dev/full").open("r+b", buffering)
    )
    packed, log = tmp_path / "c.bin.gz", tmp_path / "x.log"
    packed.write_bytes(gzip.compress(b"memray\0" + bytes(100)))
    log.write_bytes(mxnet_log())
    code, out, err = run(capsys, "import", str(packed), str(log), "-o", str(tmp_path / "sessions"))
    assert (code, out.count("MXNet"), err.count("\n")) == (2, 1, 1)
    assert "c.bin.gz: cannot be unpacked into the folder for temporary files" in err
    assert err.endswith("No space left on device\n")


def test_replay_knows_a_capture_by_its_beginning(tmp_path):
    for head in (PACKED_HEAD, b"memray\0", b"<!DOCTYPE html>\n<title>memray - report</title>"):
        (tmp_path / "c").write_bytes(head + bytes(100))
        assert may_be_imported(tmp_path / "c")
    (tmp_path / "c").write_bytes(b"<!DOCTYPE html>\n<title>a page</title>")
    assert not may_be_imported(tmp_path / "c")


def test_a_file_of_lz4_is_no_capture_by_that():
    assert not memray_capture.certainty(b"\x04\x22\x4d\x18" + bytes(100))


def head_of(**changes):
    head = {
        "pid": 7, "rows": 4, "start_ms": 1000, "end_ms": 0, "peak_bytes": 30, "aggregated": False, "whole": True,
        "dropped": 0, "dump_status": 0,
        "frames": [["main", "/x/a.py", 3], ["make", "/x/a.py", 9]],
    }  # fmt: skip
    return {**head, **changes}


def columns_of(*readings):
    columns = [[-1, 0], [0, 1], [10, 20], [10, 20], [1, 0], [0, 2], [1, -1], [1, 1], [1005, 1015], list(readings)]
    return [np.array(column, np.int64) for column in columns]


def test_a_row_has_the_time_of_the_reading_that_follows(tmp_path):
    imported = memray_capture._imported(head_of(peak_bytes=20), columns_of(1, 3))
    trace = imported.parts[0].trace
    assert trace.t_ns.tolist() == [1_005_000_000, 1_015_000_000, 1_015_000_000]
    assert trace.delta_bytes.tolist() == [10, -10, 20]
    assert trace.name(int(trace.op[0])) == "main (a.py:3)/make (a.py:9)"
    assert imported.about.warnings == ()
    assert imported.capture.end_ns == 1_015_000_000  # the program was killed
    write(imported, tmp_path / "s.memtui")


def test_another_peak_than_memrays_is_named():
    imported = memray_capture._imported(head_of(peak_bytes=30), columns_of(1, 3))
    assert imported.about.warnings[0].startswith("memray counts a peak of 30 B, this is 20 B")


def test_a_memray_that_writes_other_lines_gives_rows_without_times():
    imported = memray_capture._imported(head_of(peak_bytes=20), columns_of())
    assert imported.about.clock == "none"
    assert imported.parts[0].trace.t_ns.tolist() == [0, 1, 2]
    assert "where in the file" in imported.about.absent[0]


def test_a_list_of_records_that_was_ended_is_not_a_file_without_end():
    imported = memray_capture._imported(head_of(peak_bytes=20, whole=False, dump_status=-9), columns_of())
    assert imported.about.warnings == ()
    assert imported.about.absent[0] == (
        "times, and whether it has its end: memray, which was to list every record, ended with SIGKILL"
    )


def test_both_passes_over_a_capture_are_told_of():
    lines = [
        {"share": 0.5, "allocations": 7, "frees": 3}, {"share": 0.25}, {"share": 0.75}, {"error": "none"},
    ]  # fmt: skip
    sent = []
    with reading.watched(sent.append):
        reading.start("reading")
        answer = memray_capture._follow(io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))
        reading.start("writing")
    assert json.loads(answer) == {"error": "none"}
    assert [word.doing for word in sent] == ["reading", "reading the times of its rows", "writing"]
    assert [(word.summary.allocations, word.summary.frees) for word in sent[1:]] == [(7, 3), (7, 3)]


def test_what_follows_the_reading_is_told_of_as_something_else(monkeypatch):
    monkeypatch.setattr(memray_capture, "find_spec", lambda name: object())
    monkeypatch.setattr(memray_capture, "_run_worker", lambda file: (head_of(peak_bytes=20), columns_of(1, 3)))
    sent = []
    with reading.watched(sent.append):
        import_bytes(b"memray\0" + bytes(50))
    assert (sent[-1].doing, sent[-1].share) == ("adding up its allocations", None)


def test_a_reader_that_dies_is_one_line(monkeypatch):
    monkeypatch.setattr(memray_capture, "find_spec", lambda name: object())
    monkeypatch.setattr(memray_capture.sys, "executable", "/bin/false")
    with pytest.raises(NotImportable, match="memray's reader ended with status 1"):
        import_bytes(b"memray\0" + bytes(50))
