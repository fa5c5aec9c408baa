"""Sessions whose intervals moved are compared in windows that took about as long in all of them."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.samples import Hello, Window
from memtui.reports.comparison.differences import figure_rows_of, notes, sentences
from memtui.reports.comparison.page import page
from memtui.reports.comparison.selected_windows import LEAST_WINDOWS, RATIO, common_lengths_s
from memtui.reports.comparison.text import read, same_windows, text, to_dict
from memtui.reports.redact import open_source
from tests.support.budgets import changed
from tests.support.compared_sessions import short, touched
from tests.support.sessions import MS, write_session


def under_a_budget(first_ms: int, then_ms: int):
    """Ten windows of one length, and ten of another one in which other pages are touched."""
    for message in changed(20, first_ms * MS, then_ms * MS, budget=True):
        if isinstance(message, Hello):
            message = replace(message, options=replace(message.options, max_overhead_ppm=10_000))
        elif isinstance(message, Window) and message.sample < 10:
            message = replace(message, processes=(replace(message.processes[0], pages=touched(0)),))
        yield message


LENGTHS = st.lists(st.floats(0.01, 1000), max_size=40)


@pytest.fixture
def compared(tmp_path):
    with ExitStack() as stack:

        def make(*streams):
            paths = [
                write_session(tmp_path / f"{name}.memtui", stream) for name, stream in zip("abc", streams, strict=False)
            ]
            readers = [stack.enter_context(closing(open_source(path))) for path in paths]
            sessions = read(readers, paths)
            return sessions, same_windows(sessions, readers)

        yield make


@pytest.mark.parametrize(
    ("one", "other", "bounds"),
    [
        ([1, 1.1, 1.2, 5, 5.1, 5.2, 5.3], [5, 5.2, 5.4, 5.6, 1], (5, 5.6)),
        ([1, 1.1, 1.2, 5], [1, 1.1, 1.41, 9], (1, 1.41)),
        ([1, 1.1, 1.2], [1, 1.1, 1.42], None),
        ([1, 1.1, 1.2], [], None),
        ([], [], None),
    ],
)
def test_the_lengths_of_which_each_session_has_the_most_windows(one, other, bounds):
    assert common_lengths_s([np.array(one, float), np.array(other, float)]) == bounds


@given(st.lists(LENGTHS, min_size=1, max_size=4))
def test_there_are_some_of_each_session_and_no_other_lengths_have_more(sessions):
    def fewest(low: float) -> int:
        return min(sum(low <= length <= low * RATIO for length in lengths) for lengths in sessions)

    bounds = common_lengths_s([np.array(lengths, float) for lengths in sessions])
    most = max((fewest(length) for lengths in sessions for length in lengths), default=0)
    if bounds is None:
        assert most < LEAST_WINDOWS
    else:
        low, high = bounds
        assert low <= high <= low * RATIO
        assert most == min(sum(low <= length <= high for length in lengths) for lengths in sessions) >= LEAST_WINDOWS


def test_working_sets_of_the_windows_that_both_have_are_compared_and_reuse_is_not(compared):
    """Ten windows of 200 ms, and ten longer ones in which as much more is touched."""
    sessions, same = compared(under_a_budget(200, 2000), under_a_budget(200, 9000))
    assert (same.reason, same.selected_s, same.windows) == ("", (0.2, 0.2), "windows of 200 ms")
    rows = {row.name: row for row in figure_rows_of(same)}
    assert set(rows) == {"windows", "wss_median_bytes", "wss_p95_bytes"}
    assert rows["windows"].values == (10, 10)
    assert rows["wss_median_bytes"].changes == ("", "+0.0 %")
    whole = sessions[0].memory.figures["wss_median_bytes"]
    assert whole != rows["wss_median_bytes"].values[0], "it is that of the length that took most of the time"
    assert "those of windows of 200 ms are" in notes(sessions, same)[0]
    (line,) = sentences(sessions, same)
    assert line.startswith("B against A: median WSS ")
    assert ", the same (windows of 200 ms)" in line
    assert "in windows of 200 ms:" in text(sessions, same)
    document = to_dict(sessions, same, ["a", "b"])["same_windows"]
    assert (document["interval_s"], document["selected_s"], document["reason"]) == (None, (0.2, 0.2), "")
    assert document["sessions"][0]["reuse_p95_bytes"] is None
    assert document["sessions"][0]["reasons"]["reuse_p95_bytes"] == "reuse is that of windows of all lengths"
    html = page(sessions, same, [None, None], lambda chart: "<svg></svg>")
    assert "In windows of 200 ms" in html
    assert "neighbouring windows are merged" not in html


def test_a_session_of_one_interval_and_one_under_a_budget(compared):
    _, same = compared(short(), under_a_budget(210, 2000))
    assert same.selected_s == pytest.approx((0.2, 0.21))


def test_what_to_do_where_no_length_has_windows_of_both(compared):
    sessions, same = compared(under_a_budget(200, 2000), under_a_budget(500, 9000))
    assert same.selected_s is None
    assert "record with one --interval and --max-overhead none" in notes(sessions, same)[0]
    assert "not held against each other" in sentences(sessions, same)[0]
