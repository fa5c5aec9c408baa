"""A tree in which thousands of processes start and end: memory is used only for those that run, or are shown."""

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memtui.analysis.access_counts import TouchTally
from memtui.core.page_set import PageSet
from memtui.core.readings import MemoryUse, Power
from memtui.core.samples import End, Process, ProcessWindow, Status, Vma, VmaTable, Window
from memtui.recording.recorder.session_builder import REPORTERS, SessionBuilder
from memtui.session import connection
from memtui.session.session import Session
from memtui.session.writer import SessionWriter
from memtui.tui.presenters import Presenter, heat_map, ranges
from memtui.tui.presenters.presenter import Room
from tests.conftest import LONG
from tests.support.learning_screen import told as learning
from tests.support.sessions import MS, hello, write_session
from tests.support.told_steps import step as allocation_step

CHILDREN, EACH, LIVES = 5000 if LONG else 2500, 5, 1  # children, how many begin in a window, windows that each is there
INTERVAL_NS = 100 * MS
BASE = 0x7F00_0000_0000
RANGES = 6
KEEP_GROUPS = 8
PAGES = 32


def vmas(process: int) -> tuple[Vma, ...]:
    return tuple(Vma(BASE + (n << 24), BASE + (n << 24) + (64 << 12), "rw-p", f"/lib/{n}.so") for n in range(RANGES))


def window(process: int, sample: int) -> ProcessWindow:
    pages = PageSet.from_pages(np.arange(PAGES, dtype=np.uint64) + np.uint64(BASE >> 12))
    start_ns = sample * INTERVAL_NS
    return ProcessWindow(
        process,
        start_ns,
        start_ns + INTERVAL_NS,
        paused_ns=MS,
        walk_ns=MS,
        rearm_ns=MS,
        flush="cold",
        status=Status.OK,
        reason="",
        pages=pages,
        resident=pages if sample % 10 == 0 else None,
        rss_bytes=4 << 20,
        cpu_ns=sample * MS,
        threads=1,
        minor_faults=0,
        major_faults=0,
    )


class Following:
    """A recording that is written and watched at the same time."""

    def __init__(self, path: Path) -> None:
        self.writer = SessionWriter(path)
        self.builder = SessionBuilder(self.writer)
        self.builder.add(hello())
        self._begin(1)
        self.sample, self.alive = 0, {1: 1 << 62}
        self.next_key = 2

    def _begin(self, key: int) -> None:
        self.builder.add(Process(key, 4242 if key == 1 else 5000 + key, 4242, key, 0, f"child {key}", "child"))
        self.builder.add(VmaTable(key, 0 if key == 1 else self.sample, vmas(key)))

    def step(self) -> None:
        for _ in range(EACH):
            self._begin(self.next_key)
            self.alive[self.next_key] = self.sample + LIVES
            self.next_key += 1
        self.alive = {key: until for key, until in self.alive.items() if until > self.sample}
        windows = tuple(window(key, self.sample) for key in self.alive)
        start_ns = self.sample * INTERVAL_NS
        self.builder.add(Window(self.sample, start_ns, start_ns + INTERVAL_NS, INTERVAL_NS, 0, windows))
        self.sample += 1


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """Return (the recording, counts of objects in recorder and viewer: at the most, early and late)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heat_map, "KEEP_GROUPS", KEEP_GROUPS)  # or it would take an hour until some are let go
        steps = CountedSteps()
        patch.setattr(connection, "read_all", steps.read_all)
        return follow(tmp_path_factory, steps)


class CountedSteps:
    """Counts the steps of SQLite's machine, in hundreds."""

    def __init__(self) -> None:
        self.count = 0

    def _tick(self) -> None:
        self.count += 1

    def read_all(self, reading, path, query, values):
        reading.set_progress_handler(self._tick, 100)
        return reading.execute(query, values).fetchall()


class CountedCalls:
    """Counts the calls of Python functions."""

    def __init__(self) -> None:
        self.count = 0

    def _count(self, _frame, event, _argument) -> None:
        self.count += event == "call"

    def __enter__(self):
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_) -> None:
        sys.setprofile(None)


def follow(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("many") / "s.memtui"
    recording = Following(path)
    recording.step()
    recording.writer.commit()
    reader = Session(path)
    presenter = Presenter(reader, follow=True)
    presenter.room = Room(60, 20)
    presenter.playhead.recording = presenter.playhead.follow = True
    rows: dict[str, list[int]] = {}
    while recording.next_key <= CHILDREN:
        for _ in range(50):
            recording.step()
        recording.writer.commit()
        before = steps.count
        with CountedCalls() as calls:
            presenter.refresh()
            presenter.view(10.0)
        for name, count in {
            "steps": steps.count - before,
            "calls": calls.count,
            "observed": len(recording.builder._observed),
            "rows": len(presenter.ranges._rows),
            "most": len(presenter.ranges._most),
            "held rows": len(reader.vmas._cache),
            "processes": len(presenter._log._cached),
            "groups": len(presenter.heat._groups),
            "filtered": len(presenter.ranges._left_out),
        }.items():
            rows.setdefault(name, []).append(count)
    recording.builder.add(End(recording.sample * INTERVAL_NS, "target exited"))
    recording.writer.commit()
    reader.close()
    recording.writer.close()
    return path, rows


def test_recorder_holds_the_processes_that_are_there(followed):
    _, rows = followed
    assert max(rows["observed"]) <= 1 + EACH * (LIVES + 2)


@pytest.mark.parametrize("what", ["rows", "most", "held rows", "processes", "groups", "filtered"])
def test_viewer_holds_what_is_in_sight(followed, what):
    _, rows = followed
    counts = rows[what]
    most = {"processes": 1024, "groups": 2 * KEEP_GROUPS + EACH}.get(what, (64 + 2 * 48 * EACH) * RANGES)
    assert max(counts) <= most
    later = counts[len(counts) // 2 :]
    assert max(later) <= 1.1 * max(counts[: len(counts) // 2])


@pytest.mark.parametrize("what", ["steps", "calls"])
def test_a_refresh_searches_and_does_no_more_the_longer_the_session_is(followed, what):
    _, rows = followed
    counts = rows[what]
    third = len(counts) // 3
    assert sum(counts[-third:]) < 1.1 * sum(counts[third : 2 * third])


def test_viewer_reads_the_rows_of_an_ended_process_once(tmp_path):
    recording = Following(tmp_path / "s.memtui")
    for _ in range(50):
        recording.step()
    recording.writer.commit()
    reader = Session(tmp_path / "s.memtui")
    wanted = {process.key for process in reader.processes.all()}
    every = reader.vmas.rows_of(wanted)
    assert sum(not row.open for row in every) > 200 * RANGES
    read: list[int] = []
    read_rows = reader.vmas._cache._read
    reader.vmas._cache._read = lambda *which: [read.append(row.process) or row for row in read_rows(*which)]
    assert reader.vmas.rows_of(wanted) == every == reader.vmas.rows()
    assert read == [], "no window has come since"
    recording.step()
    recording.writer.commit()
    reader.refresh()
    reader.vmas.rows_of(wanted)
    assert set(read) == {row.process for row in every if row.open}
    for _ in range(LIVES + 2):  # those that lived have ended
        recording.step()
    recording.writer.commit()
    reader.refresh()
    assert reader.vmas.rows_of(wanted) == [row for row in reader.vmas.rows() if row.process in wanted]
    reader.close()
    recording.writer.close()


def test_following_never_searches_all_ranges_of_the_session(tmp_path, monkeypatch):
    monkeypatch.setattr(ranges, "READ_EVERY_S", 0.0)
    recording = Following(tmp_path / "s.memtui")
    recording.step()
    recording.writer.commit()
    reader = Session(tmp_path / "s.memtui")
    presenter = Presenter(reader, follow=True)
    presenter.playhead.recording = True
    presenter.view()
    conditions: list[str] = []
    read_rows = reader.vmas._cache._read
    reader.vmas._cache._read = lambda which, *values: conditions.append(which) or read_rows(which, *values)
    for _ in range(30):
        for _ in range(2):
            recording.step()
        recording.writer.commit()
        presenter.refresh()
        for _ in range(2 * LIVES):  # processes come and go after the samples were read and before the ranges are
            recording.step()
        recording.writer.commit()
        presenter.view()
    assert len(conditions) >= 60
    assert not [which for which in conditions if not which.startswith("vma.id ")]
    wanted = {process.key for process in reader.processes.all()}
    assert reader.vmas.rows_of(wanted) == reader.vmas.rows()
    reader.close()
    recording.writer.close()


def test_what_ended_processes_did_is_stored_whole(followed):
    path, _ = followed
    reader = Session(path)
    processes = reader.processes.all()
    assert len(processes) > CHILDREN
    process = processes[1777]
    rows = reader.vmas.rows(process.key)
    assert len(rows) == RANGES
    near = range(rows[0].first_sample - 20, rows[0].last_sample + 21)  # the sums below are of all samples
    samples = [s for s in near if reader.pages.page_set(s, process.key) is not None]
    assert len(samples) == LIVES
    tally = TouchTally()
    for sample in samples:
        tally.add(reader.pages.page_set(sample, process.key))
    expected = tally.pop()
    for level in range(4):  # of each level, the sum is there, and it is all that there is
        summed = reader.pages.sums_of_level(level, 0, reader.samples.newest)[process.key]
        assert summed.windows == expected.windows
        assert summed.touches.sum() == expected.touches.sum()
    assert {(row.first_sample, row.last_sample, row.open) for row in rows} == {(samples[0], samples[-1], False)}
    reader.close()


def test_cursor_on_processes_that_ended_shows_their_ranges(followed):
    path, _ = followed
    reader = Session(path)
    every = reader.vmas.rows()
    presenter = Presenter(reader, follow=False)
    presenter.room = Room(60, 20)
    for sample in (reader.samples.newest, 40, 500, 41):
        presenter.playhead.seek(int(reader.samples.end_ns[sample]))
        view = presenter.view()
        mapped = {row.id for row in every if row.first_sample <= sample and (row.open or sample <= row.last_sample)}
        assert {row.key for row in view.table.rows} == mapped
        assert view.header.others == len(reader.processes.present(sample, sample)) - 1
    reader.close()


def test_of_many_programs_that_report_the_last_ones_are_held(tmp_path):
    recording = Following(tmp_path / "s.memtui")
    count = 2 * REPORTERS
    for pid in range(1, count + 1):
        recording.builder.add(replace(learning(), pid=pid))
        for types in ({"features.0": "Conv2d"}, {"fc": "Linear"}):
            recording.builder.add(replace(allocation_step(layer_types=types), pid=pid))
    assert len(recording.builder._about) == len(recording.builder._layer_types) == REPORTERS
    recording.writer.close()
    with closing(Session(tmp_path / "s.memtui")) as reader:
        for pid in (1, count):
            assert reader.allocations.layer_types(pid) == {"features.0": "Conv2d", "fc": "Linear"}


def test_process_that_comes_back_after_a_window_goes_on_where_it_was(tmp_path):
    recording = Following(tmp_path / "s.memtui")
    for sample in range(6):
        keys = (1, 2) if sample in (0, 1, 3) else (1,)
        if sample == 0:
            recording._begin(2)
        start_ns = sample * INTERVAL_NS
        windows = tuple(window(key, sample) for key in keys)
        recording.builder.add(Window(sample, start_ns, start_ns + INTERVAL_NS, INTERVAL_NS, 0, windows))
        assert (2 in recording.builder._observed) == (sample < 5)
    recording.builder.add(End(6 * INTERVAL_NS, "target exited"))
    recording.writer.close()
    reader = Session(tmp_path / "s.memtui")
    assert len(reader.vmas.rows(2)) == RANGES
    assert reader.pages.sums_of_level(0, 0, 5)[2].windows == 3
    assert sum(reuse.first_touches for _, process, reuse in reader.reuse.between(0, 5) if process == 2) == PAGES
    reader.close()


@pytest.mark.parametrize(
    ("read_after_s", "processes", "expected"),
    [
        (9.5, 3, (3, 900, 400)),  # two that had just begun
        (9.5, 1, (1, 300, None)),  # no others
        (5.0, 3, (1, 300, None)),  # long before the end
    ],
)
def test_processes_that_have_just_begun_count_at_the_end_of_a_long_window(read_after_s, processes, expected, tmp_path):
    """They are in the next window; memory is read of all that are there."""
    begin_ns = 1000 * 10**9
    use = MemoryUse(begin_ns + round(read_after_s * 1e9), processes, 900 << 20, 400 << 20)

    def stream():
        yield hello()
        yield Process(1, 4242, 1, 777, 0, "python train.py", "target")
        yield VmaTable(1, 0, (Vma(1 << 40, (1 << 40) + (1 << 30), "rw-p"),))
        yield Power(memory_use=(use,))
        window = ProcessWindow(1, begin_ns, begin_ns + 10 * 10**9, rss_bytes=300 << 20)
        yield Window(0, begin_ns, begin_ns + 10 * 10**9, 10**9, 0, (window,))
        yield End(begin_ns + 10 * 10**9, "stopped")

    with closing(Session(write_session(tmp_path / "s.memtui", stream()))) as reader:
        samples = reader.samples
        pss_bytes = float(samples.pss_bytes[0])
        mib = (int(samples.rss_bytes[0]) >> 20, None if np.isnan(pss_bytes) else int(pss_bytes) >> 20)
    assert (int(samples.processes[0]), *mib) == expected
