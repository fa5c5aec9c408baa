"""Windows of different length: no median, mean or true interval mixes them, and what is left out is told."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.alike import groups
from memtui.analysis.target_loss import last_part
from memtui.core.samples import End, Window
from memtui.recording.sampler.commands import STOP, interval_command
from memtui.recording.wire import Decoder
from memtui.reports.memory_summary import why_no_working_set
from memtui.reports.report import build_report, report_of
from memtui.reports.source import Source
from memtui.reports.text import format_report
from memtui.session.session import Session
from memtui.tui.presenters import Presenter
from memtui.tui.presenters.sentences import WindowFigures
from tests.support.budgets import changed
from tests.support.live import TRACKER, pattern
from tests.support.sessions import MS, messages, write_session
from tests.support.streams import order_for, ordered

pytestmark = pytest.mark.real_clock

MIB = 1 << 20


def test_the_group_that_most_time_was_spent_at_comes_first():
    intervals = np.array([200] * 10 + [2000] * 6)
    first, second = groups(intervals, intervals, intervals > 0, exact=True)
    assert first.windows.tolist() == [False] * 10 + [True] * 6
    assert (first.interval_ns, first.time_fraction) == ((2000, 2000), pytest.approx(12 / 14))
    assert second.interval_ns == (200, 200)
    assert groups(intervals[:0], intervals[:0], intervals[:0] > 0, exact=True) == []


def test_the_shorter_of_two_intervals_with_the_same_time_comes_first_and_no_more_groups_than_asked_for():
    intervals = np.array([300, 100, 200, 400])
    lengths = np.array([5, 5, 5, 1])
    result = groups(intervals, lengths, intervals > 0, exact=True)
    assert [group.interval_ns[0] for group in result] == [100, 200, 300, 400]
    assert [group.time_fraction for group in result] == [5 / 16, 5 / 16, 5 / 16, 1 / 16]
    assert len(groups(intervals, lengths, intervals > 0, exact=True, most=2)) == 2
    many = np.arange(1, 30)
    assert len(groups(many, many, many > 0, exact=True)) == 16


def test_intervals_of_a_nanosecond():
    intervals = np.array([1, 2, 2])
    assert [g.interval_ns for g in groups(intervals, intervals, intervals > 0, exact=False)] == [(2, 2), (1, 1)]
    (alone,) = groups(intervals[:1], intervals[:1], intervals[:1] > 0, exact=True)
    assert alone.time_fraction == 1


def test_windows_without_a_working_set_say_nothing_of_it():
    intervals = np.array([1000, 1000, 200, 200, 9000])
    known = np.array([True, False, True, True, False])
    found = groups(intervals, intervals, known, exact=True)
    assert [(group.interval_ns[0], int(group.windows.sum())) for group in found] == [(1000, 2), (200, 2), (9000, 1)]
    assert found[2].time_fraction == pytest.approx(9000 / 11_400)
    assert groups(intervals, intervals, known & False, exact=True)[0].interval_ns == (9000, 9000)


def test_a_report_names_the_reason_of_a_window_that_was_lost(tmp_path):
    path = write_session(tmp_path / "s.memtui", changed(4, 200 * MS, 2000 * MS))
    reader = Source(path)
    reason = ("it ran on", "", "no thread stopped", "")
    lost = replace(reader.samples, wss_bytes=np.array([MIB, MIB, np.nan, np.nan]), reason=reason)
    reader._session._samples.table = lost
    assert report_of(reader, "s").wss_bytes.median == MIB
    nothing = replace(lost, wss_bytes=np.array([np.nan] * 4), reason=("", "", "no thread stopped", ""))
    reader._session._samples.table = nothing
    assert report_of(reader, "s").wss_bytes.reason == "no thread stopped"
    reader._session._samples.table = lost
    assert why_no_working_set(reader) == "no thread stopped"


def test_without_a_budget_only_the_same_interval_is_alike_and_with_one_its_order():
    intervals = np.array([200, 220, 280, 400, 7000, 7700])
    assert groups(intervals, intervals, intervals > 0, exact=True)[0].interval_ns == (7700, 7700)
    result = groups(intervals, intervals, intervals > 0, exact=False)
    assert [g.interval_ns for g in result] == [(7000, 7700), (200, 280), (400, 400)]
    assert sum(g.time_fraction for g in result) == pytest.approx(1)
    assert np.sum([g.windows for g in result], axis=0).tolist() == [1] * 6  # each in one group


@pytest.mark.parametrize("budget", [False, True])
def test_a_report_is_about_the_windows_of_one_length_and_tells_of_the_others(budget, tmp_path):
    path = write_session(tmp_path / "s.memtui", changed(20, 200 * MS, 2000 * MS, budget=budget))
    reader = Source(path)
    reader._session._samples.table = replace(reader.samples, wss_bytes=np.repeat([10.0 * MIB, 90.0 * MIB], 10))
    report = report_of(reader, "s")
    assert report.wss_bytes.median == report.wss_bytes.mean == 90 * MIB
    assert report.true_interval_s == pytest.approx(2.0)
    assert [(g.interval_s, g.windows, g.wss_median_bytes) for g in report.windows] == [
        ((2.0, 2.0), 10, 90.0 * MIB),
        ((0.2, 0.2), 10, 10.0 * MIB),
    ]
    text = format_report(report)
    figures = "figures of the working set are over the 10 windows of 2.0 s"
    assert f"{figures} (90.9 % of the time, median WSS 90.0 MiB)" in text
    assert "windows of other lengths: 10 of 200 ms (9.1 % of the time, median WSS 10.0 MiB)" in text
    assert "MiB in one of" not in text
    reader.samples.wss_bytes[3] = 100.0 * MIB  # in a short one
    text = format_report(report_of(reader, "s"))
    assert "max 90.0 MiB; 100 MiB in one of 200 ms" in text
    reader.close()


def test_resident_memory_weighs_as_long_as_it_was_there(tmp_path):
    path = write_session(tmp_path / "s.memtui", changed(20, 200 * MS, 2000 * MS))
    reader = Source(path)
    reader._session._samples.table = replace(reader.samples, rss_bytes=np.repeat([10.0 * MIB, 100.0 * MIB], 10))
    lengths = reader.samples.end_ns - reader.samples.start_ns
    result = report_of(reader, "s").rss_bytes
    assert result.mean == pytest.approx(np.average(reader.samples.rss_bytes, weights=lengths))
    assert (result.median, result.max) == (100 * MIB, 100 * MIB)
    reader.close()


def test_an_end_that_is_in_no_window_is_told(tmp_path):
    stream = list(changed(20, 200 * MS, 2000 * MS))
    last_ns = max(m.end_ns for m in stream if isinstance(m, Window))
    late = [replace(m, t_ns=last_ns + 6 * 10**9) if isinstance(m, End) else m for m in stream]
    assert "are in no window" not in format_report(build_report(write_session(tmp_path / "a.memtui", stream)))
    text = format_report(build_report(write_session(tmp_path / "b.memtui", late)))
    assert "gap          the last 6.0 s are in no window" in text
    assert ", 20 samples in 22.1 s of 28.1 s, ended: " in text


def test_what_recording_costs_is_a_share_of_all_of_it(tmp_path):
    """The first windows cost much, and the long one that did not end has hardly a cost."""
    stream = list(messages(20))
    windows = [m for m in stream if isinstance(m, Window)]
    last_ns, span_ns = windows[-1].end_ns, windows[-1].end_ns - windows[0].start_ns
    costly = [replace(m, lost_ns=6 * MS, set_again_ns=MS) if isinstance(m, Window) else m for m in stream]
    cpu_ns = windows[-1].sampler_cpu_ns + 8 * MS
    end = End(last_ns + 9 * span_ns, "stopped", "", cpu_ns)
    short = build_report(write_session(tmp_path / "a.memtui", [*costly[:-1], replace(end, t_ns=last_ns)])).overhead
    path = write_session(tmp_path / "b.memtui", [*costly[:-1], end])
    long = build_report(path).overhead
    assert short.lost_fraction == pytest.approx(20 * 6 * MS / span_ns)
    assert long.lost_fraction == pytest.approx((20 * 6 + 1) * MS / (10 * span_ns))
    assert long.paused_fraction == pytest.approx(short.paused_fraction / 10)
    assert 0 < long.self_cpu_fraction < short.self_cpu_fraction
    with closing(Session(path)) as session:
        kept = session.end
        figures = WindowFigures(session.samples, 19, "RSS").figures(session.samples, last_part(session.samples, kept))
    assert (kept.t_ns, kept.sampler_cpu_ns) == (end.t_ns, cpu_ns)
    assert kept.recorder_cpu_ns > 0
    assert (figures.lost_fraction, figures.own_cpu) == (long.lost_fraction, long.self_cpu_fraction)


def test_reuse_is_said_of_windows_as_long_as_they_were(tmp_path):
    """Reading may take longer than the interval that was asked for."""
    for long_ns, expected in ((203 * MS, "0.2 s"), (1200 * MS, "1.2 s")):
        late = [
            replace(m, asked_ns=200 * MS) if isinstance(m, Window) else m for m in messages(20, interval_ns=long_ns)
        ]
        reader = Session(write_session(tmp_path / f"{long_ns}.memtui", late))
        presenter = Presenter(reader, follow=False)
        presenter.playhead.seek(float(reader.samples.end_ns[-1]))
        assert presenter.view(5.0).reuse.interval == expected
        reader.close()


def test_the_screen_says_the_true_interval_and_the_median_of_the_windows_that_cover_most_of_the_time(tmp_path):
    reader = Session(write_session(tmp_path / "s.memtui", changed(20, 200 * MS, 2000 * MS)))
    reader._samples.table = replace(reader.samples, wss_bytes=np.repeat([10.0 * MIB, 90.0 * MIB], 10))
    samples = reader.samples
    presenter = Presenter(reader, follow=False)
    for index, true_s, median_mib, which in (
        (9, 0.203, 10, "a window of 200 ms"),
        (11, 2.003, 90, "2 windows of 2.0 s"),
        (19, 2.003, 90, "a window of 2.0 s"),
    ):
        presenter.playhead.seek(float(samples.end_ns[index]))
        view = presenter.view(5.0)
        assert view.header.true_s == pytest.approx(true_s)
        sentence = f"In {which} the program touches {median_mib}.0 MiB in the median"
        assert any(forms[0].startswith(sentence) for forms in view.sentences.sentences), view.sentences
    reader.close()


def test_after_another_interval_was_asked_for_the_second_window_says_its_true_one(tmp_path):
    """On a real process: the interval goes from 0.1 s to 1 s while it is recorded."""
    with pattern("loop", "--pages", 500) as truth:
        sampler = ordered(order_for(truth["pid"], interval_ns=100 * MS, tracker=TRACKER[1]))
        seen, decoder = [], Decoder()
        while (windows := sum(isinstance(message, Window) for message in seen)) < 5:
            seen += decoder.feed(sampler.stdout.read1(1 << 16))
        sampler.stdin.write(interval_command(1000 * MS))
        sampler.stdin.flush()
        while sum(isinstance(message, Window) for message in seen) < windows + 4:
            seen += decoder.feed(sampler.stdout.read1(1 << 16))
        sampler.stdin.write(STOP)
        sampler.stdin.flush()
        while chunk := sampler.stdout.read1(1 << 16):
            seen += decoder.feed(chunk)
        _, errors = sampler.communicate()
    assert sampler.returncode == 0, errors
    path = write_session(tmp_path / "s.memtui", seen)
    reader = Session(path)
    samples = reader.samples
    later = np.flatnonzero(samples.asked_ns == 1000 * MS)
    assert len(later) >= 2
    assert later[0] >= 3
    presenter = Presenter(reader, follow=False)
    presenter.playhead.seek(float(samples.end_ns[later[1]]))
    header = presenter.view(5.0).header
    assert header.requested_s == 1.0
    assert header.true_s >= 0.9
    reader.close()
    assert {group.interval_s for group in build_report(path).windows} == {(0.1, 0.1), (1.0, 1.0)}
