"""``memtui compare`` on sessions of any kind: what is held against what, and what is not; text, JSON and page."""

from __future__ import annotations

import json
import os
import stat
import sys
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.address_ranges import mapped_bytes
from memtui.analysis.page_raster import picture_of
from memtui.analysis.resident import PSS, SUM_OF_RSS
from memtui.core.samples import End, Process, ProcessWindow, Window
from memtui.reports.comparison.common_windows import common_interval_s
from memtui.reports.comparison.differences import condition_rows, figure_rows, notes, sentences, window_text
from memtui.reports.comparison.load import memory_of
from memtui.reports.comparison.model import against, letters
from memtui.reports.comparison.selected_windows import HOW
from memtui.reports.comparison.text import read, same_windows, text, to_dict
from memtui.reports.redact import open_source
from memtui.reports.report import build_report
from memtui.reports.source import Source
from memtui.session.page_windows import PageWindows, busiest
from memtui.session.vma_row import VmaRow
from tests.support import allocation_screen
from tests.support.budgets import changed
from tests.support.cli import memtui, refused
from tests.support.compared_sessions import long, short, stream, touched
from tests.support.in_process import memtui_here
from tests.support.learning_screen import all_told
from tests.support.pages import EVIL, Page, evil_stream
from tests.support.sessions import MS, hello, messages, write_session
from tests.support.study_reports import assert_harmless, inline_figures
from tests.support.training_screen import told
from tests.support.users import temporary_user


@pytest.fixture
def opened(tmp_path):
    """Writes sessions under their names and reads them: (sessions, in windows of one length)."""
    with ExitStack() as stack:

        def make(*, redact: bool = False, **streams):
            paths = [write_session(tmp_path / f"{name}.memtui", stream) for name, stream in streams.items()]
            readers = [stack.enter_context(closing(open_source(path, redact=redact))) for path in paths]
            sessions = read(readers, paths, redact=redact)
            return sessions, same_windows(sessions, readers)

        yield make


def test_resident_memory_is_weighted_by_time_as_in_the_report(tmp_path):
    """A recording begins with short windows, in which a program is still small."""

    def windows():
        yield hello()
        yield Process(1, 4242, 1, 777, 0, "python train.py", "target")
        end_ns = 0
        for sample, (seconds, mib) in enumerate([(0.1, 10)] * 5 + [(10, 100), (20, 200), (1, 150)]):
            start_ns, end_ns = end_ns, end_ns + round(seconds * 1e9)
            window = ProcessWindow(1, start_ns, end_ns, rss_bytes=mib << 20)
            yield Window(sample, start_ns, end_ns, 10**8, 0, (window,))
        yield End(end_ns, "stopped")

    path = write_session(tmp_path / "s.memtui", windows())
    with closing(open_source(path)) as source:
        figures = memory_of(source).figures
    assert figures["rss_median_bytes"] == build_report(path).rss_bytes.median == 200 << 20
    assert figures["rss_p95_bytes"] == 200 << 20


@pytest.mark.parametrize(
    ("intervals", "common"),
    [
        ((0.2, 1.0), 1.0),
        ((0.2, 0.5), 1.0),
        ((0.2, 0.2), 0.2),
        ((0.3, 1.0), 3.0),
        ((0.2, 0.333), 0.999),
        ((1, 1.38), None),
    ],
)
def test_the_shortest_length_that_is_a_whole_number_of_each(intervals, common):
    assert common_interval_s(intervals) == (None if common is None else pytest.approx(common))


@given(st.lists(st.floats(0.001, 3600), min_size=1, max_size=8))
def test_a_common_length_is_a_whole_number_of_each(intervals):
    length = common_interval_s(intervals)
    if length is not None:
        for interval in intervals:
            assert round(length / interval) >= 1
            assert round(length / interval) * interval == pytest.approx(length, rel=0.0101)


def test_merged_windows_have_seen_what_long_ones_see(opened):
    """The same touches, recorded at two intervals, are the same once they are merged; and they were not before."""
    sessions, same = opened(fine=short(), coarse=long())
    fine, coarse = (session.memory for session in sessions)
    assert fine.figures["wss_median_bytes"] == 128 * 4096
    assert coarse.figures["wss_median_bytes"] == (128 + 4 * 32) * 4096
    assert same.interval_s == 1.0
    merged, same_coarse = same.memories
    assert merged.figures == same_coarse.figures
    assert np.array_equal(merged.wss.y, same_coarse.wss.y)
    assert np.array_equal(merged.wss.x, same_coarse.wss.x)
    assert np.array_equal(merged.reuse.y, same_coarse.reuse.y)
    # One process, nothing filtered: the long windows merged one by one are what was recorded.
    assert same_coarse.figures["wss_median_bytes"] == coarse.figures["wss_median_bytes"]
    assert same_coarse.figures["reuse_p95_bytes"] == coarse.figures["reuse_p95_bytes"]


def test_a_sum_of_rss_is_named_and_not_compared_with_the_rss_of_one(opened):
    sessions, _ = opened(a=short(), b=short(), c=short())
    memories = [session.memory for session in sessions]
    rss = {row.name: row for row in figure_rows(memories)}["rss_median_bytes"]
    assert rss.label == "RSS, median"
    assert rss.changes[1] == rss.changes[2] != ""
    for kind in (PSS, SUM_OF_RSS):
        several = [*memories[:2], replace(memories[2], resident=kind)]
        row = {row.name: row for row in figure_rows(several)}["rss_median_bytes"]
        assert row.label == "sum of RSS, median"
        assert row.changes == (*rss.changes[:2], "")


def test_a_doubt_of_several_sessions_is_told_once(opened):
    sessions, same = opened(a=short(), b=short(), c=short())
    doubtful = [replace(session, doubts=("it is doubtful",)) for session in sessions]
    doubtful[1] = replace(doubtful[1], doubts=("it is doubtful", "and more"))
    assert notes(doubtful, same)[-2:] == ["A, B and C: it is doubtful", "B: and more"]


def test_whose_windows_cannot_be_merged_is_told(opened):
    _, same = opened(a=changed(20, 300 * MS, 2000 * MS), b=short())
    assert same.reason == f"A: its windows took 300 ms to 2.0 s ({HOW})"


def test_what_depends_on_windows_is_held_against_windows_of_the_same_length_only(opened):
    sessions, same = opened(a=short(), b=long(), c=short(40))
    memories = [session.memory for session in sessions]
    rows = {row.name: row for row in figure_rows(memories)}
    assert rows["wss_median_bytes"].changes == ("", "", "+0.0 %")
    assert rows["rss_median_bytes"].changes == ("", "+0.0 %", "+0.0 %")
    assert rows["windows"].changes == ("", "", "")
    (note,) = notes(sessions, same)
    assert "A and C 200 ms, B 1.0 s" in note
    assert "not directly comparable; merged to 1.0 s they are" in note
    assert {row.name: row for row in figure_rows(same.memories)}["wss_median_bytes"].changes[1] == "+0.0 %"
    lines = sentences(sessions, same)
    assert lines[0].startswith("B against A: median WSS 1.00 MiB instead of 1.00 MiB, the same; ")
    assert "(windows of 1.0 s, merged)" in lines[0]
    assert "(windows of 200 ms)" in lines[1]


def test_windows_that_cannot_be_merged_are_told_and_not_compared(opened):
    sessions, same = opened(a=stream([[n] for n in range(20)], 1000), b=stream([[n] for n in range(20)], 1380))
    assert same.reason == "no length is a whole number of 1 s, 1.38 s"
    assert same.reason in notes(sessions, same)[0]
    assert "not held against each other" in sentences(sessions, same)[0]
    sessions, same = opened(c=short(), d=messages(20, interval_ns=1000 * MS, tracked=False))
    assert same.reason == "B: no page sets are stored"
    (trackers,) = [note for note in notes(sessions, same) if note.startswith("tracker differs")]
    assert "A pagetable, B rss" in trackers


def test_a_window_that_was_lost_is_known_to_be(opened):
    """Neither drawn as if it had been there, nor merged as if nothing had been touched."""
    (session, _), same = opened(a=short(lost=7), b=long())
    lost = np.flatnonzero(np.isnan(session.memory.wss.y))
    assert len(lost) == 1
    assert session.memory.wss.x[lost[0]] == pytest.approx(1.4)
    merged = same.memories[0]
    assert np.isnan(merged.wss.y[1])
    assert np.isfinite(np.delete(merged.wss.y, 1)).all()
    assert merged.figures["windows"] == 11


def test_conditions_that_differ_are_listed_and_those_that_do_not_are_not(opened):
    other = hello()
    other = replace(
        other,
        host=replace(other.host, hostname="elsewhere"),
        options=replace(other.options, filter="none", pause=False),
        memtui_version="9.9",
    )
    changes = {name: getattr(other, name) for name in ("host", "options", "memtui_version")}
    sessions, same = opened(a=short(), b=short(**changes))
    rows = {row.name: row.cells for row in condition_rows(sessions)}
    assert rows == {
        "pause": ("one by one", "no"),
        "filter": ("default", "none"),
        "machine": ("lab", "elsewhere"),
        "memtui": ("0.1.0", "9.9"),
    }
    assert same is None
    lines = notes(sessions, same)
    assert [note.partition(" differs")[0] for note in lines[:3]] == ["pause", "filter", "machine"]


def test_power_and_energy_are_there_where_they_were_measured(opened):
    sessions, _ = opened(a=messages(30), b=short())
    rows = {row.label: row for row in figure_rows([session.memory for session in sessions])}
    assert rows["GPU 0 board, mean power"].cells == ("350 W", "n/a")
    assert rows["GPU 0 board, energy"].values[0] == 60.0 * 25
    assert rows["GPU 0 board, energy"].reasons == ("", "no such source")


def test_trainings_and_other_sessions_are_read_alike(opened):
    trained = list(messages(20))
    trained[9:9] = all_told("BP")
    sessions, same = opened(a=trained, b=short())
    assert sessions[0].training.title == "fcReLu by BP"
    assert sessions[0].memory is not None
    assert sessions[1].training is None
    lines = text(sessions, same)
    assert any(line.startswith("A  fcReLu by BP") for line in lines)
    assert any(line.startswith("WSS, median") for line in lines)
    document = json.loads(
        json.dumps(to_dict(sessions, same, ["a.memtui", "b.memtui"])), parse_constant=partial(pytest.fail, "no JSON")
    )
    assert document["sessions"][0]["training"]["last_accuracy"] == 90
    assert document["sessions"][1]["training"] is None
    assert len(document["sessions"][1]["memory"]["curves"]["wss"][0]) == 61
    by_name = {row["name"]: row for row in document["differences"]}
    assert by_name["rss_median_bytes"]["against_first"][1] == pytest.approx(
        by_name["rss_median_bytes"]["values"][1] / by_name["rss_median_bytes"]["values"][0] - 1
    )
    assert by_name["windows"]["against_first"] == [None, None]


def test_a_training_on_a_gpu_is_compared_by_the_memory_of_the_gpu(opened):
    on_gpu, step = told(0), allocation_screen.step(40, extra=20)
    little = replace(on_gpu, usage=np.vstack([on_gpu.usage[:4], on_gpu.usage[4:] // 1024]))
    stream = list(messages(20))
    stream[9:9] = [
        little,
        replace(on_gpu, device="cuda:0"),
        allocation_screen.step(40),
        replace(step, device="cuda:0"),
    ]
    training = opened(a=stream, b=short())[0][0].training
    assert training.peak_bytes == 40 << 20
    assert training.memory.y.max() == 17 << 20
    assert training.step_ms == 50


def test_nothing_of_a_redacted_session_tells_whose_it_is(opened):
    sessions, same = opened(redact=True, secret_file=messages(20), other=long())
    output = json.dumps(to_dict(sessions, same, ["session", "session"])) + "\n".join(text(sessions, same))
    for secret in ("secret_file", "train.py", "alice", '"lab"', "6.18.0-"):
        assert secret not in output, secret
    assert "command-1" in output


def test_words():
    assert letters([0]) == "A"
    assert letters([0, 2, 3]) == "A, C and D"
    assert against(None, 1.0) == against(1.0, 0.0) == against(1.0, None) == ""
    assert against(0.5, 1.0) == "−50.0 %"
    assert against(0.9999, 1.0) == against(1.0, 1.0) == "+0.0 %"
    assert window_text([None]) == ""


def test_address_space_counts_a_range_in_the_windows_it_was_there_in():
    def row(first: int, last: int, pages: int) -> VmaRow:
        return VmaRow(1, 1, 1, 0, pages * 4096, "rw-p", "", first, last, "")

    sample = np.array([0, 1, 2, 5], np.int64)
    assert mapped_bytes([row(0, 5, 1), row(2, 3, 10)], sample).tolist() == [4096, 4096, 11 * 4096, 4096]


def test_page_sets_one_at_a_time_are_those_of_the_session(tmp_path):
    reader = Source(write_session(tmp_path / "s.memtui", short(20, lost=4)))
    windows = PageWindows(reader, busiest(reader).key)
    assert len(windows) == 20
    assert windows[4] is None
    assert windows[-1].pages().tolist() == touched(19).pages().tolist()
    assert [None if pages is None else pages.size_bytes for pages in windows[3:6]] == [128 * 4096, None, 128 * 4096]
    with pytest.raises(IndexError):
        windows[20]
    lazy, eager = picture_of(windows), picture_of(list(windows))
    assert np.array_equal(lazy.share, eager.share, equal_nan=True)
    assert np.isnan(lazy.share[:, 4]).all()
    assert lazy.pages == 128 + 19 * 32
    reader.close()


def test_bad_input_is_a_line(tmp_path):
    session = write_session(tmp_path / "s.memtui", short(5))
    (tmp_path / "text").write_text("text")
    refused(memtui_here("compare", session, tmp_path / "text"), "is not a memtui session")
    refused(memtui_here("compare", *[session] * 9), "at most 8 sessions can be told apart, not 9")
    empty = write_session(tmp_path / "empty.memtui", [hello()])
    refused(memtui_here("compare", session, empty), "holds no window and no training")
    done = memtui("compare", session, session)
    assert done.returncode == 0
    assert done.stdout.startswith(f"A  {session}: python train.py --lr 0.1\n")


def test_a_page_that_cannot_be_drawn_or_written_is_a_line(tmp_path):
    session = write_session(tmp_path / "s.memtui", short(5))
    without = tmp_path / "without"
    (without / "matplotlib").mkdir(parents=True)
    (without / "matplotlib" / "__init__.py").write_text("raise ImportError('no')\n")
    environment = os.environ | {"PYTHONPATH": f"{without}:{os.environ.get('PYTHONPATH', '')}"}
    done = memtui("compare", session, session, "--html", tmp_path / "x.html", env=environment)
    assert done.returncode == 1
    assert done.stderr == "memtui compare: figures need matplotlib: pip install 'memtui[study]'\n"
    pytest.importorskip("matplotlib")
    refused(memtui_here("compare", session, session, "--html", tmp_path), "is a folder; name a file")
    refused(
        memtui("compare", session, session, "--html", session), "exists already; choose another file or add --force"
    )
    refused(memtui_here("compare", session, session, "--html", tmp_path / "no" / "x.html"), "name another file")


def test_a_page_has_all_that_it_needs_and_fetches_nothing(tmp_path):
    pytest.importorskip("matplotlib")
    trained = list(messages(30))
    trained[9:9] = all_told("BP")
    first = write_session(tmp_path / "one.memtui", trained)
    other = write_session(tmp_path / "other.memtui", long())
    done = memtui("compare", first, other, "--html", tmp_path / "x.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'x.html'}\n"
    assert stat.S_IMODE((tmp_path / "x.html").stat().st_mode) == 0o600
    page = Page((tmp_path / "x.html").read_text("utf-8"))
    assert_harmless(page)
    shown = "".join(page.words)
    assert "not directly comparable" in shown
    assert "merged to 1.0 s" in shown
    figures = [caption for caption in page.inside["figcaption"] if caption.strip()]
    assert len(inline_figures(page)) == len(figures) == 13
    for caption in figures:  # what belongs to a length of windows names it
        if any(word in caption for word in ("Working set", "Touches that", "Miss ratio", "where and when")):
            assert "windows of" in caption
    again = memtui("compare", first, other, "--html", tmp_path / "x.html", "--force", "--redact")
    assert again.returncode == 0, again.stderr
    redacted = (tmp_path / "x.html").read_text("utf-8")
    assert "train.py" not in redacted
    assert "other" not in "".join(Page(redacted).inside["th"])


def test_hostile_names_are_text_in_the_page(tmp_path):
    pytest.importorskip("matplotlib")
    evil = write_session(tmp_path / "evil.memtui", evil_stream())
    harmless = write_session(tmp_path / "plain.memtui", short(10))
    done = memtui("compare", harmless, evil, "--html", tmp_path / "x.html")
    assert done.returncode == 0, done.stderr
    page = Page((tmp_path / "x.html").read_text("utf-8"))
    assert_harmless(page)
    assert EVIL in "".join(page.words)
    assert not page.named("b")


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user, which needs root")
def test_a_page_that_sudo_wrote_is_the_users(tmp_path):
    """As sudo starts it: root, with the user in SUDO_UID."""
    pytest.importorskip("matplotlib")
    with temporary_user() as user:
        session = write_session(user.home / "s.memtui", short(5))
        os.chown(session, user.uid, user.gid)
        environ = {"SUDO_UID": str(user.uid), "SUDO_GID": str(user.gid), "PATH": os.environ["PATH"], "HOME": "/root"}
        environ |= {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "MPLCONFIGDIR": str(user.home)}
        done = memtui("compare", session, session, "--html", user.home / "x.html", env=environ, cwd=user.home)
        assert done.returncode == 0, done.stderr
        assert (user.home / "x.html").stat().st_uid == user.uid


def test_only_the_page_loads_the_plotting_library(tmp_path):
    session = write_session(tmp_path / "s.memtui", short(5))
    code = (
        "import sys\nfrom memtui.cli.main import main\n"
        f"main(['compare', {str(session)!r}, {str(session)!r}])\n"
        "print([name for name in ('matplotlib', 'textual', 'torch') if name in sys.modules], file=sys.stderr)"
    )
    import subprocess

    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_curves_are_steps_that_rise(opened):
    sessions, _ = opened(a=messages(30))
    curve = sessions[0].memory.reuse
    assert all(low <= high for low, high in pairwise(curve.y))
    assert 0 <= curve.y[0] <= curve.y[-1] <= 100
