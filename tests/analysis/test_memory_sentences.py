"""The sentences about a session: the same in the report and on the screen, and none that tells nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.memory_sentences import Figures, fitting, sentences_of
from memtui.analysis.miss_ratio import bounds_are_close
from memtui.analysis.resident import PSS, RSS, SUM_OF_RSS
from memtui.core.samples import Window
from memtui.reports.report import build_report
from memtui.reports.sentences import sentences
from memtui.reports.text import format_report
from memtui.session.session import Session
from memtui.tui.presenters import Presenter
from tests.support.sessions import MS, messages, write_session

MIB = 1 << 20


@pytest.fixture
def path(tmp_path):
    return write_session(tmp_path / "s.memtui", messages(40))


def test_the_screen_at_the_end_says_what_the_report_says(path):
    """But for reuse distances, which are kept in bins there and exactly here."""
    lines = sentences(build_report(path))
    reader = Session(path)
    shown = [forms[0] for forms in Presenter(reader, follow=False).view().sentences.sentences]
    reader.close()
    assert len(shown) == len(lines) == 3
    assert (shown[0], shown[2]) == (lines[0], lines[2])
    assert shown[1].split()[:4] == lines[1].split()[:4]


def test_the_sentences_are_about_what_was_measured_up_to_the_cursor(path):
    reader = Session(path)
    presenter = Presenter(reader, follow=False)
    reader._samples.table = replace(reader.samples, wss_bytes=np.arange(1, 41) * float(MIB))
    samples = reader.samples
    lines = []
    for index in (4, 20, 39):
        presenter.playhead.seek(float(samples.end_ns[index]))
        lines.append(presenter.view().sentences.sentences[0][0])
    assert "touches 3.00 MiB in the median" in lines[0]
    assert "and 5.00 MiB at most" in lines[0]
    assert "touches 11.0 MiB in the median" in lines[1]
    assert "and 40.0 MiB at most" in lines[2]
    presenter.playhead.seek(float(samples.end_ns[4]))
    assert presenter.view().sentences.sentences[0][0] == lines[0]
    reader.close()


def test_without_a_working_set_only_the_cost_is_said(tmp_path):
    reader = Session(write_session(tmp_path / "s.memtui", messages(5, tracked=False)))
    shown = Presenter(reader, follow=False).view().sentences.sentences
    reader.close()
    assert all("working set" not in form and "touches" not in form for forms in shown for form in forms)


def test_bounds_more_than_sixteen_times_apart_are_not_spoken_of():
    near, far = ((4 * MIB, high) for high in (64 * MIB, 64 * MIB + 1))
    assert "An LRU memory of 64.0 MiB" in sentences_of(Figures(reuse_bytes=near))[0][0]
    assert sentences_of(Figures(reuse_bytes=far)) == []
    estimated = sentences_of(Figures(reuse_bytes=far, reuse_estimate_bytes=37 * MIB))[0][0]
    assert "An LRU memory of about 37.0 MiB (between 4.00 MiB and 64.0 MiB) would hold 95 %" in estimated
    assert "if their order inside each window is random" in estimated
    whole = sentences_of(Figures(reuse_bytes=(4096, 64 * MIB), reuse_estimate_bytes=37 * MIB))[0][0]
    assert "An LRU memory of about 37.0 MiB (64.0 MiB at most) would hold 95 %" in whole, "one page is no bound"
    assert "about" not in sentences_of(Figures(reuse_bytes=near, reuse_estimate_bytes=37 * MIB))[0][0]
    assert not bounds_are_close(0, 4096)


def test_a_share_of_other_windows_than_the_working_set_has_its_own_working_set():
    same = Figures(15.0, 100 * MIB, 120 * MIB, 400 * MIB, touched_fraction=0.25, resident=PSS)
    assert " touches 100 MiB in the median (25.0 % of the PSS then, median 400 MiB)" in sentences_of(same)[0][0]
    of_some = sentences_of(replace(same, touched_fraction=0.15))[0][0]
    assert " touches 100 MiB in the median (60.0 MiB of 400 MiB where the PSS is known, 15.0 %)" in of_some


@pytest.mark.parametrize(
    ("windows", "sentence"),
    [
        (1, "In the one window of 15.0 s the program touches 100 MiB."),
        (2, "In 2 windows of 15.0 s the program touches 100 MiB in the median, and 120 MiB at most."),
        (5, "In a window of 15.0 s the program touches 100 MiB in the median, and 120 MiB at most."),
        (None, "In a window of 15.0 s the program touches 100 MiB in the median, and 120 MiB at most."),
    ],
)
def test_a_median_of_few_windows_says_of_how_many(windows, sentence):
    assert sentences_of(Figures(15.0, 100 * MIB, 120 * MIB, windows=windows))[0][0] == sentence


def test_every_shorter_form_of_a_sentence_is_a_sentence_too():
    for forms in sentences_of(Figures(0.2, 61 * MIB, 180 * MIB, 482 * MIB, (100 * MIB, 181 * MIB), 0.058, 0.09, 0.13)):
        assert sorted(forms, key=len, reverse=True) == list(forms)
        assert all(form.endswith(".") and form[0].isupper() for form in forms)


def test_without_pauses_and_cpu_nothing_is_said_of_them():
    assert sentences_of(Figures(window_s=0.2, wss_median_bytes=MIB, wss_max_bytes=2 * MIB)) == [
        (
            "In a window of 200 ms the program touches 1.00 MiB in the median, and 2.00 MiB at most.",
            "In a window of 200 ms the program touches 1.00 MiB in the median.",
        )
    ]


def test_the_first_window_has_words_of_its_own(tmp_path):
    reader = Session(write_session(tmp_path / "s.memtui", messages(1, interval_ns=500 * MS)))
    assert "In the one window of 500 ms" in Presenter(reader, follow=False).view().sentences.sentences[0][0]
    reader.close()


def test_of_windows_that_may_lack_pages_the_least_is_said_and_no_reuse():
    figures = replace(FIGURES, may_lack_pages=True, reuse_bytes=(30 * MIB, 64 * MIB))
    least = "In a window of 200 ms the program touches at least 61.0 MiB in the median"
    (wss, cost) = sentences_of(figures)
    assert wss == (f"{least} (13.0 % of the resident memory then, median 480 MiB).", f"{least}.")
    assert cost == sentences_of(FIGURES)[-1]
    assert sentences_of(replace(figures, touched_fraction=None))[0] == (f"{least}.",)


FIGURES = Figures(0.2, 61 * MIB, 180 * MIB, 480 * MIB, None, 0.058, 0.09, 0.13)


def test_the_sentences_of_figures_by_hand():
    start, end = "In a window of 200 ms the program touches 61.0 MiB in the median", ", and 180 MiB at most."
    held = "it was held for 5.8 % of the time, and memtui took 9.0 % of one CPU."
    share = " (13.0 % of the resident memory then, median 480 MiB)"
    share_of_pss = " (13.0 % of the PSS then, median 480 MiB)"
    assert sentences_of(FIGURES) == [
        (f"{start}{share}{end}", f"{start}{share}.", f"{start}."),
        (f"To see this, {held}",),
    ]
    (one, *_) = sentences_of(replace(FIGURES, windows=1))
    assert (
        one[0]
        == "In the one window of 200 ms the program touches 61.0 MiB (13.0 % of the resident memory then, 480 MiB)."
    )
    slowed, some = (
        replace(FIGURES, resident=PSS, lost_fraction=0.25),
        held.replace("it", "one or another of its processes", 1),
    )
    assert sentences_of(slowed) == [
        (f"{start}{share_of_pss}{end}", f"{start}{share_of_pss}.", f"{start}."),
        (f"So far watching cost it about 25 %: {some}", "So far watching cost it about 25 %."),
    ]
    traced = sentences_of(replace(slowed, traced_fraction=0.08))[1]
    cost = "So far watching cost it about 25 %, and tracing about 8 % more"
    assert traced == (f"{cost}: {some}", f"{cost}.")
    untimed = sentences_of(replace(FIGURES, traced_fraction=0.08))[1]
    assert untimed == (f"To see this, {held[:-1]}, and tracing about 8 % of its time.",)
    live = sentences_of(replace(slowed, until_next=True))[1]
    assert live[1] == "With the time until the next window watching cost it about 25 %."
    for name, expected in ((RSS, share), (PSS, share_of_pss), (SUM_OF_RSS, share)):
        assert sentences_of(replace(FIGURES, resident=name))[0][0] == f"{start}{expected}{end}"


@pytest.mark.parametrize(
    ("unknown", "left"),
    [("wss_median_bytes", "To see"), ("wss_max_bytes", "To see"), ("paused_fraction", "In a"), ("own_cpu", "In a")],
)
def test_a_sentence_is_left_out_for_one_figure_that_is_not_known(unknown, left):
    (forms,) = sentences_of(replace(FIGURES, **{unknown: None}))
    assert forms[0].startswith(left)


WORDS = st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=6).map(" ".join)


def lines_of(text: str, width: int) -> list[str]:
    """Break lines where a word does not fit."""
    lines: list[str] = []
    for word in text.split(" "):
        joined = [*lines[-1:], word]
        fits = len(joined) == 2 and len(" ".join(joined)) <= width
        lines = [*lines[:-1], " ".join(joined)] if fits else [*lines, word]
    return lines


@given(st.lists(st.lists(WORDS, min_size=1, max_size=3).map(tuple), max_size=4), st.integers(0, 20), st.integers(0, 4))
def test_as_many_sentences_as_fit_are_shown_each_in_its_longest_form(sentences, width, rows):
    text: list[str] = []
    for forms in sentences:
        form = next((form for form in forms if len(lines_of(" ".join([*text, form]), width)) <= rows), None)
        text += [] if form is None else [form]
    assert fitting(sentences, width, rows) == (lines_of(" ".join(text), width) if text else [])


def test_a_sentence_that_does_not_fit_leaves_room_for_the_next():
    sentences = [("aaaa bbbb cccc", "aaaa bbbb"), ("dddd eeee",), ("ff",)]
    assert fitting(sentences, 9, 1) == ["aaaa bbbb"]
    assert fitting(sentences, 9, 2) == ["aaaa bbbb", "cccc ff"]
    assert fitting(sentences, 9, 3) == ["aaaa bbbb", "cccc dddd", "eeee ff"]
    assert fitting(sentences, 12, 1) == ["aaaa bbbb ff"]


def test_a_working_set_from_a_part_of_the_memory_is_called_estimated(tmp_path):
    def sampled(message):
        if not isinstance(message, Window):
            return message
        part = {"wss_estimate_bytes": 40 * MIB, "wss_low_bytes": 30 * MIB, "wss_high_bytes": 50 * MIB, "scale": 10.0}
        return replace(message, processes=tuple(replace(process, **part) for process in message.processes))

    path = write_session(tmp_path / "s.memtui", map(sampled, messages(6)))
    report = build_report(path)
    assert report.wss_bytes.estimated
    assert "working set  estimated: " in format_report(report)
    with closing(Session(path)) as reader:
        shown = Presenter(reader, follow=False).view().sentences.sentences[0][0]
    assert sentences(report)[0] == shown
    assert "touches 40.0 MiB (estimated) in the median" in shown
