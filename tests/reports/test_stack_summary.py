"""Bytes by call stack in a report: exact where the pages are known, and why where nothing is."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from memtui.core.call_stacks import Frame
from memtui.formats.join import write_joined
from memtui.formats.session_writer import write
from memtui.reports.redact import open_source
from memtui.reports.report import build_report
from memtui.reports.stack_summary import (
    NAMED_CALLS,
    StackRow,
    StackSummary,
    stack_lines,
    stack_name,
    stack_summaries,
    summary_of,
)
from memtui.reports.stack_sums import StackSums, stack_sums
from memtui.reports.text import format_report
from memtui.session import page_windows
from memtui.session.process_reader import ProcessReader
from tests.support.sessions import messages, write_session
from tests.support.stack_captures import capture_of, imported_of_messages, joined_session, stacks_of

MIB = 1 << 20


@pytest.fixture
def joined(tmp_path):
    """Windows with resident pages every fifth time."""
    return joined_session(tmp_path)


def summary(path, redact=False):
    with closing(open_source(path, redact=redact)) as reader:
        (only,) = stack_summaries(reader)
    return only


def test_bytes_are_those_of_the_pages(joined):
    found = summary(joined)
    rows = {row.name.partition(" (")[0]: row for row in found.stacks}
    assert (found.pid, found.windows, found.reason, found.resident_reason) == (4242, 2, "", "")
    assert found.peak_bytes == 72 * MIB
    hot, moving, cold = rows["hot"], rows["moving"], rows["cold"]
    assert (hot.there_bytes, hot.touched_bytes, hot.resident_bytes) == (4 * MIB, 4 * MIB, 4 * MIB)
    assert (moving.there_bytes, moving.touched_bytes, moving.resident_bytes) == (64 * MIB, 8 * MIB, 8 * MIB)
    assert (cold.there_bytes, cold.touched_bytes, cold.resident_bytes) == (4 * MIB, 0, 0)
    assert [row.passing_bytes for row in (hot, moving, cold)] == [0, 0, 0]
    assert found.shared_bytes == 0
    assert found.outside_bytes == 8 * 4096  # the stack; code is left out by the filter
    assert [row.name.partition(" (")[0] for row in found.coldest] == ["moving", "cold"]


def test_windows_are_read_a_few_at_a_time(joined, monkeypatch):
    whole = summary(joined)
    monkeypatch.setattr(page_windows, "_SAMPLES_AT_ONCE", 3)
    spans, samples = [], ProcessReader.samples
    monkeypatch.setattr(
        ProcessReader, "samples", lambda self, *span: spans.append(span[1] - span[0]) or samples(self, *span)
    )
    assert summary(joined) == whole
    assert (len(spans), max(spans)) == (7, 2)


def test_a_function_has_what_all_it_calls_have(joined):
    found = summary(joined)
    functions = {row.name: row for row in found.functions}
    assert functions["main (train.py)"].touched_bytes == 12 * MIB
    assert functions["hot (train.py)"].touched_bytes == 4 * MIB
    (file,) = found.files
    assert (file.name, file.peak_bytes, file.allocations) == ("/x/train.py", 72 * MIB, 4)


def test_a_report_says_it_in_lines_and_in_json(joined):
    text = format_report(build_report(joined))
    assert "hot (train.py) < main (train.py:3) 4.00 MiB of 4.00 MiB, resident 4.00 MiB" in text
    assert "cold stacks  moving (train.py:2) < main (train.py:3) 8.00 MiB of 64.0 MiB" in text
    assert build_report(joined).by_stack[0].windows == 2
    assert format_report(build_report(joined, redact=True)).count("train.py") == 0


def test_a_stack_that_came_late_has_means_of_the_windows_in_which_it_was_there():
    row = StackRow("late (a.py:1)", 100, 100, 1, 2, 25 * MIB, 5 * MIB, 10 * MIB, 0.0)
    found = StackSummary(7, 100, 8, 0.0, 0.0, "", "", (row,), (row,), (), ())
    first, cold = stack_lines([found])
    assert stack_lines([found, found])[0].startswith("by stack     of pid 7, touched in a window")
    for line in (first, cold):
        assert "late (a.py:1) 20.0 MiB of 100 MiB, resident 40.0 MiB (in 2 windows)" in line


def test_what_came_and_went_is_of_a_mean_window_also_of_a_stack_that_came_late():
    row = StackRow("late (a.py:1)", 100, 100, 1, 2, 25 * MIB, 5 * MIB, None, 3.0 * MIB)
    found = StackSummary(7, 100, 8, 0.0, 0.0, "", "", (row,), (), (), ())
    line = "20.0 MiB of 100 MiB (in 2 windows) and 3.00 MiB that came and went in a mean window;"
    assert line in stack_lines([found])[0]


def test_the_coldest_stacks_are_found_among_larger_ones_that_are_warm():
    stacks = stacks_of(*([Frame(f"f{number}", "/x/a.py", 1)] for number in range(12)))
    there, touched = np.array([*[100.0] * 11, 10.0, 0.0]), np.array([*[60.0] * 11, 5.0, 0.0])
    nothing = np.zeros(13)
    sums = StackSums(
        capture_of([], 0, stacks=stacks), 0, nothing, nothing, nothing, 1, touched.astype(int), there, touched,
        passing_bytes=nothing,
    )  # fmt: skip
    assert [row.name for row in summary_of(sums).coldest] == ["f11 (a.py:1)"]


def test_redacted_sums_are_the_same(joined):
    plain, hidden = summary(joined), summary(joined, redact=True)
    assert [row.touched_bytes for row in plain.stacks] == [row.touched_bytes for row in hidden.stacks]
    assert "function-" in hidden.stacks[0].name


def test_without_resident_pages_the_reason_is_there(tmp_path):
    recording = write_session(tmp_path / "run.memtui", messages(20))
    write_joined(imported_of_messages(), recording, tmp_path / "joined.memtui")
    found = summary(tmp_path / "joined.memtui")
    assert found.windows == 14
    assert all(row.resident_bytes is None for row in found.stacks)
    assert found.resident_reason == "not recorded: memtui record --keep-resident"
    assert any("not recorded: memtui record --keep-resident" in line for line in stack_lines([found]))


def test_without_a_recording_there_is_what_was_allocated(tmp_path):
    write(imported_of_messages(), tmp_path / "s.memtui")
    found = summary(tmp_path / "s.memtui")
    assert found.windows == 0
    assert found.reason.startswith("no recording of this process")
    assert found.stacks[0].peak_bytes == 64 * MIB
    assert found.stacks[0].touched_bytes is None
    lines = stack_lines([found])
    assert lines[0].startswith("by stack     allocated at the peak of 72.0 MiB: moving (train.py:2)")


def test_a_session_without_captures_has_no_lines(tmp_path):
    path = write_session(tmp_path / "s.memtui", messages(3))
    with closing(open_source(path)) as reader:
        assert stack_sums(reader) == []
    assert stack_lines(()) == []


def test_the_name_of_a_deep_stack_says_how_many_calls_it_leaves_out():
    frames = [Frame("f", "/x/a.py", line) for line in range(1, 4 + NAMED_CALLS)]
    stacks = stacks_of(frames, frames[:NAMED_CALLS])
    name = stack_name(stacks, len(stacks) - 1)
    assert name.startswith("f (a.py:103) < f (a.py:102) < ")
    assert name.endswith(" < f (a.py:4) < 3 more")
    assert stack_name(stacks, NAMED_CALLS - 1).endswith(" < f (a.py:1)")
