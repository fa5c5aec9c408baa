"""A file that stays below its size, a disk that stays usable, a condition that ends a recording."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.samples import End, Process, ProcessWindow, VmaTable, Window
from memtui.recording.recorder import limits
from memtui.recording.recorder.limits import LEFT_PROCESSES, Limits, check_disk
from memtui.recording.recorder.session_builder import SessionBuilder
from memtui.recording.recorder.stop_condition import StopCondition
from memtui.session.downsampling import Downsampler
from memtui.session.file_format import size_on_disk
from memtui.session.session import Session
from memtui.session.validation import MAX_PROCESS
from memtui.session.writer import SessionWriter
from memtui.tui.presenters import Presenter, Room
from tests.support.cli import memtui, refused
from tests.support.folders import names_in
from tests.support.in_process import memtui_here
from tests.support.live import needs_tracker, pattern, runs
from tests.support.sessions import DATA, MS, VMAS, hello

pytestmark = pytest.mark.real_clock

LIMIT = 16 << 20
WIDE = 16384  # pages of the data: half of them at random are 2 kB that do not compress


def windows(count: int, first: int = 0):
    random = np.random.default_rng(first)
    for sample in range(first, first + count):
        pages = PageSet.from_pages((DATA >> 12) + np.flatnonzero(random.random(WIDE) < 0.5))
        start_ns = sample * 200 * MS
        process = ProcessWindow(1, start_ns, start_ns + 199 * MS, paused_ns=MS, pages=pages, rss_bytes=80 << 20)
        yield Window(sample, start_ns, start_ns + 199 * MS, 200 * MS, sample * MS, (process,))


class Fills(SessionWriter):
    """A session whose every commit is measured."""

    largest = 0

    def commit(self) -> None:
        super().commit()
        self.largest = max(self.largest, size_on_disk(self.path))


@pytest.fixture(scope="module")
def thinned(tmp_path_factory) -> tuple[Path, int, int]:
    """(a session of 6,000 windows that had to stay below 16 MiB, its largest size, its samples)."""
    path, count = tmp_path_factory.mktemp("thin") / "s.memtui", 6_000
    writer = Fills(path)
    recorder = SessionBuilder(writer, Limits(writer, LIMIT, None))
    for message in (hello(), Process(1, 4242, 1, 777, 0, "python train.py", "target"), VmaTable(1, 0, VMAS)):
        recorder.add(message)
    for window in windows(count):
        recorder.add(window)
        if window.sample % 50 == 0:
            recorder.keep_limits()
            writer.commit()
    recorder.add(End(count * 200 * MS, "target exited"))
    assert recorder.limits is not None
    assert recorder.limits.ending is None
    assert writer.close()
    return path, writer.largest, count


def test_a_session_stays_below_its_size(thinned):
    path, largest, count = thinned
    assert largest < LIMIT
    assert path.stat().st_size > LIMIT // 4, "it was to be filled"
    assert count * 2048 > LIMIT // 2, "it was to overflow: the other half is for the log"


def test_scalars_rows_and_events_stay_and_the_oldest_pages_go_first(thinned):
    path, _, count = thinned
    reader = Session(path)
    assert len(reader.samples) == count
    assert np.isfinite(reader.samples.stored_bytes).all()
    assert len(reader.vmas.rows()) == len(VMAS)
    assert [e.text for e in reader.events(0, 2**62) if e.kind == "thinned"] == [
        "the file reached 16.0 MiB (--max-size): page sets are downsampled, the oldest first"
    ]
    stored = np.array([reader.pages.stored_sample(n, n) is not None for n in range(count)])
    quarters = [part.mean() for part in np.split(stored, 4)]
    assert stored[0], "the beginning stays in sight"
    assert quarters == sorted(quarters)
    assert 0 < quarters[0] < 0.1
    assert quarters[3] == 1.0
    holes = np.diff(np.flatnonzero(stored))
    # One halving more or less depends on a page of the file more or less.
    assert holes.max() <= 128, "what is left of the oldest is spread evenly"
    # Reuse distances are derived from what was there, not from what is left.
    assert reader.reuse.until(count - 1).touches == sum(reuse.touches for _, _, reuse in reader.reuse.iterate(0, count))
    assert reader.downsampled_to_bytes == LIMIT
    reader.close()


def test_the_screen_says_why_there_is_no_picture(thinned):
    path, _, count = thinned
    reader = Session(path)
    presenter = Presenter(reader, follow=False)
    presenter.room = Room(60, 10)
    gone = next(n for n in range(1, count) if reader.pages.stored_sample(n, n) is None)
    presenter.playhead.jump("0")
    presenter.playhead.step(gone - presenter.playhead.index)
    view = presenter.view(5.0)
    assert "no pages of this moment: downsampled to keep the file below 16.0 MiB" in view.heat.caption
    presenter.playhead.step(count)
    presenter.playhead.span_ns = None
    for _ in range(20):
        view = presenter.view(5.0)
    assert "thinned" not in view.heat.caption
    seen = np.isfinite(view.heat.share).any(axis=0)
    assert seen.all(), "the whole picture has no holes where samples near by are left"
    reader.close()


def test_the_report_says_so(thinned):
    report = json.loads(memtui("report", thinned[0], "--json").stdout)
    assert report["thinned"] == {"to_bytes": LIMIT}
    assert (
        "downsampled  page sets had to make room to keep the file below 16.0 MiB" in memtui("report", thinned[0]).stdout
    )


class NearlyFull:
    """A writer that knows only how much is in it."""

    def __init__(self) -> None:
        self.sets: dict[int, int] = {}
        self.ranges: dict[int, int] = {}

    @property
    def used_bytes(self) -> int:
        return sum(self.sets.values()) + sum(self.ranges.values())

    def delete_between(self, table: str, first: int, last: int) -> None:
        {"page_set": self.sets, "vma_wss": self.ranges, "vma_rss": {}, "vma_shared": {}}[table].pop(first >> 20, None)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1 << 10, 1 << 19), min_size=1, max_size=400), st.integers(24, 40))
def test_whatever_comes_it_fits_or_says_that_it_cannot(sizes, limit_mib):
    room = NearlyFull()
    downsampler = Downsampler(room, limit_mib << 20)  # type: ignore[arg-type]
    for sample, of_set in enumerate(sizes):
        room.sets[sample], room.ranges[sample] = of_set, of_set // 8
        downsampler.add_sample(sample)
        fits = downsampler.make_room()
        assert fits == (room.used_bytes <= (limit_mib << 20) - (8 << 20))
        if not fits:
            assert len(room.sets) <= 16
            return
        assert downsampler.downsampled == sample + 1 - len(room.sets)


def test_a_size_that_cannot_be_kept_ends_the_recording(tmp_path):
    """One window is larger than the limit allows: nothing can be downsampled, so the recording ends in order."""
    writer = SessionWriter(tmp_path / "s.memtui")
    checked = Limits(writer, 9 << 20, None)  # below what the command line takes
    recorder = SessionBuilder(writer, checked)
    for message in (hello(), Process(1, 4242, 1, 777, 0, "x", "target"), VmaTable(1, 0, VMAS)):
        recorder.add(message)
    writer.put_meta(ballast="x" * (4 << 20))
    recorder.keep_limits()
    assert checked.ending == (limits.FULL, "nothing is left to thin below --max-size 9.00 MiB")
    recorder.add(End(5, "stopped"))
    assert recorder.end == End(5, limits.FULL, checked.ending[1], None, recorder.end.recorder_cpu_ns)
    writer.discard()


@pytest.mark.parametrize(
    ("text", "says"), [("12", "at least 16MiB"), ("2XB", "is not a size"), ("-1", "size"), ("nan", "none lets")]
)
def test_bad_sizes(text, says, tmp_path):
    refused(memtui_here("record", f"--max-size={text}", "1", cwd=tmp_path), says)


def test_bad_conditions(tmp_path):
    refused(memtui_here("record", "--stop-when", "wss>lots", "1", cwd=tmp_path), "say wss>8GiB")
    refused(memtui_here("attach", "--stop-when", "wss>8G", "1", cwd=tmp_path), "unrecognized arguments")


def test_stop_when(tmp_path):
    path = tmp_path / "s.memtui"
    with pattern("loop", "--pages", 4096) as truth:
        argv = ("--interval", "0.1", "--duration", "30", "-o", path)
        done = memtui("record", truth["pid"], "--stop-when", "rss>8MiB for 1s", *argv)
        assert done.returncode == 3, done.stderr
        assert "memtui record: stopped: rss " in done.stderr.splitlines()[-1]
        assert "> 8.00 MiB for 1.0 s" in done.stderr
        reader = Session(path)
        assert reader.end is not None
        assert (reader.end.kind, reader.end.text) == ("condition", done.stderr.partition("stopped: ")[2].strip())
        assert 10**9 <= reader.samples.end_ns[-1] - reader.samples.start_ns[0] < 15 * 10**9
        reader.close()
        assert runs(truth["pid"])
        never = memtui(
            "record", truth["pid"], "--stop-when", "rss>8TiB", "--force", *argv[:2], "--duration", "1", *argv[4:]
        )
        assert (never.returncode, "stopped" in never.stderr) == (0, False)


@needs_tracker
def test_stop_when_of_the_working_set(tmp_path):
    path = tmp_path / "s.memtui"
    with pattern("loop", "--pages", 4096) as truth:
        done = memtui("record", truth["pid"], "--stop-when", "wss>15MiB", "--duration", "30", "-o", path)
        assert done.returncode == 3, done.stderr
        assert re.search(r"stopped: wss 1[67]\.", done.stderr), (
            "16 MiB of the pattern, and what its interpreter touches"
        )


def test_a_condition_that_can_never_be_judged_is_refused(tmp_path):
    with pattern("loop", "--pages", 300) as truth:
        argv = ("--tracker", "rss", "--stop-when", "wss>1", "-o", tmp_path / "s.memtui")
        refused(memtui("record", truth["pid"], *argv), "there will be no working set")
        assert runs(truth["pid"])
    assert list(tmp_path.iterdir()) == []


def test_conditions_are_asked_of_every_window_and_not_of_every_commit(tmp_path):
    writer = SessionWriter(tmp_path / "s.memtui")
    recorder = SessionBuilder(writer, Limits(writer, None, StopCondition.parse("wss<1MiB")))
    for message in (hello(), Process(1, 4242, 1, 777, 0, "x", "target"), VmaTable(1, 0, VMAS)):
        recorder.add(message)
    for window in windows(3):
        recorder.add(window)
    assert recorder.limits is not None
    assert recorder.limits.ending is None
    few = ProcessWindow(1, 10**9, 2 * 10**9, pages=PageSet.from_pages(np.array([DATA >> 12])), rss_bytes=5)
    recorder.add(Window(3, 10**9, 2 * 10**9, 200 * MS, 0, (few,)))
    recorder.add(next(windows(1, first=11)))
    assert recorder.limits.ending == ("condition", "wss 4.00 KiB < 1.00 MiB")
    writer.discard()


def test_low_disk():
    class Full:
        f_frsize, f_bavail, f_blocks = 4096, 40_000, 1 << 28  # 156 MiB of 1 TiB

    real = os.statvfs
    try:
        os.statvfs = lambda path: Full()  # type: ignore[assignment,misc]
        assert check_disk(Path("/data/s.memtui")) == "only 156 MiB left on the disk of /data/s.memtui"
        Full.f_bavail = 60_000
        assert check_disk(Path("/data/s.memtui")) == ""
        Full.f_blocks, Full.f_bavail = 10_000, 499  # a small one keeps a twentieth
        assert check_disk(Path("/data/s.memtui")).startswith("only 1.95 MiB left")
        Full.f_bavail = 501
        assert check_disk(Path("/data/s.memtui")) == ""
    finally:
        os.statvfs = real
    assert check_disk(Path("/no/such/folder/s.memtui")) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_disk_that_runs_low_ends_the_recording_in_order():
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "none", folder], check=False).returncode:
            pytest.skip("this container may not mount a tmpfs")
        try:
            path = Path(folder) / "s.memtui"
            Path(folder, "ballast").write_bytes(bytes(39 << 20))
            with pattern("loop", "--pages", 300) as truth:
                done = memtui("record", truth["pid"], "-o", path, "--duration", "30")
                assert runs(truth["pid"])
            assert done.returncode == 1, done.stderr
            assert f"left on the disk of {path}" in done.stderr
            reader = Session(path)
            assert reader.end is not None
            assert reader.end.kind == "low disk"
            reader.close()
            assert sorted(names_in(folder)) == ["ballast", "s.memtui"]
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def test_a_tree_with_more_processes_than_a_session_has_room_for_ends_the_recording_in_order(tmp_path):
    """Rows are numbered by sample and process: with one process more they would be those of another sample."""
    path = tmp_path / "s.memtui"
    writer = SessionWriter(path)
    recorder = SessionBuilder(writer, limits := Limits(writer, None, None))
    recorder.add(hello())
    first = MAX_PROCESS - LEFT_PROCESSES
    for key in (1, first - 1):
        recorder.add(Process(key, 4242, 1, 777, 0, "python train.py", "child"))
        assert limits.ending is None
    recorder.add(Process(first, 4242, 1, 777, 0, "python train.py", "child"))
    kind, why = limits.ending
    assert (kind, why) == ("process limit", f"{first:,} processes were recorded, and a session has room for 1,048,576")
    recorder.add(End(1, "stopped"))
    assert writer.close()
    reader = Session(path)
    assert (reader.end.kind, reader.end.text) == (kind, why)
    reader.close()
