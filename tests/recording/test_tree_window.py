"""One window of all processes: what is sent of it, what of those that could not be read, and when the tree ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.procfs import read_stat
from memtui.core.readings import NumaUse
from memtui.core.samples import Event, Options, Process, Status, VmaTable, Window
from memtui.probes.pages.tracker import PageWindow, TrackerError
from memtui.probes.usage import MemoryTexts, read_memory_texts
from memtui.probes.window_reader import Lost, Reading
from memtui.recording.sampler.commands import SamplerConfig, SamplerState
from memtui.recording.sampler.pause_warnings import PauseWarnings
from memtui.recording.sampler.scheduler import SampleClock
from memtui.recording.sampler.target_lock import TargetLocks
from memtui.recording.sampler.tracked_tree import TrackedTree
from memtui.recording.sampler.tree_window import TreeWindows
from tests.support.sampler_parts import Outbox, Reader

INTERVAL_NS = 10**9


class Watch:
    """A sleeping process, and the windows of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        options = Options(INTERVAL_NS, "referenced")
        order = SamplerConfig(pid, read_stat(pid).start_ticks, options)
        self.outbox, self.reader = Outbox(), Reader()
        warnings = PauseWarnings(order, self.outbox, self.reader)
        self.tree = TrackedTree(order, None, self.outbox, self.reader, warnings, TargetLocks())
        clock = SampleClock(options, SamplerState(INTERVAL_NS), None, clears=False)
        clock.start()
        self.windows = TreeWindows(
            self.tree, self.reader, clock, self.outbox, warnings, max_overhead_ppm=None, together=False
        )
        self.tree.refresh()
        self.tree.follow()
        self.tree.take_gaps()
        self.windows.start()
        self.outbox.take()

    def reads(self, generation: int = 0, **more) -> None:
        """Of every process three pages from now on."""
        maps = self.tree.processes[self.pid].maps

        def outcome(subject):
            now_ns = time.monotonic_ns()
            return Reading(
                PageWindow(PageSet.from_pages([1, 2, 3]), generation=generation), maps, now_ns, now_ns, 5, **more
            )

        self.reader.outcome = outcome


@pytest.fixture
def watch():
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(100)"], stdout=subprocess.PIPE
    )
    process.stdout.readline()
    watch = Watch(process.pid)
    yield watch
    watch.windows.close()
    for pid in tuple(watch.tree.processes):
        watch.tree.forget(pid)
    process.kill()
    process.communicate()


def test_the_nodes_of_touched_pages_are_given_once(watch, monkeypatch):
    """This machine may have one node: what is read on one with two is in ``tests/lab``."""
    asked = []

    def read(pid, process, pages):
        asked.append((pid, process, pages.page_count))
        return (NumaUse(len(asked), process, 0, 512, 1),)

    monkeypatch.setattr(watch.windows._numa, "read", read)
    watch.reads()
    for _ in range(2):
        watch.windows.take(INTERVAL_NS)
    key = watch.tree.processes[watch.pid].process.key
    assert asked == [(watch.pid, key, 3)] * 2
    assert watch.windows.numa_use() == (NumaUse(1, key, 0, 512, 1), NumaUse(2, key, 0, 512, 1))
    assert watch.windows.numa_use() == ()


def test_windows_follow_one_another_and_their_mappings_come_first(watch):
    watch.reads()
    watch.windows.take(INTERVAL_NS)
    table, first = watch.outbox.take()
    assert (type(table), table.sample, type(first)) == (VmaTable, 0, Window)
    assert (first.sample, first.asked_ns, first.gaps) == (0, INTERVAL_NS, 0)
    (process,) = first.processes
    assert (process.status, process.pages.page_count, process.paused_ns) == (Status.OK, 3, 5)
    watch.windows.take(2 * INTERVAL_NS)
    (second,) = watch.outbox.take()
    assert (second.sample, second.asked_ns, watch.windows.sample) == (1, 2 * INTERVAL_NS, 2)
    assert second.processes[0].start_ns >= process.end_ns


def test_rss_and_faults_are_those_of_the_pause_where_they_were_read_then(watch):
    of_another = read_memory_texts(os.getpid())  # which has other numbers
    then = MemoryTexts(of_another.stat, b"5000 3000 7 1 0 9 0")
    faults = read_stat(os.getpid())
    for texts, same in ((then, True), (None, False)):
        watch.reads(memory=texts)
        watch.windows.take(INTERVAL_NS)
        (window,) = (message for message in watch.outbox.take() if isinstance(message, Window))
        (process,) = window.processes
        assert (process.rss_bytes == 3000 * PAGE_BYTES) == same
        assert (process.minor_faults > faults.minor_faults // 2) == same


@pytest.mark.parametrize("disturbed", ["", "reclaim in its memory cgroup"])
def test_where_others_cleared_marks_an_estimate_may_be_all_that_is_resident(watch, monkeypatch, disturbed):
    maps, part = (
        watch.tree.processes[watch.pid].maps,
        PageSet.from_pages(np.arange(320) // 16 * 512 + np.arange(320) % 16),
    )
    page_window = PageWindow(PageSet.from_pages(np.arange(20) * 512), sampled=part)
    now_ns = time.monotonic_ns()
    watch.reader.outcome = lambda subject: Reading(page_window, maps, now_ns, now_ns, 5)
    monkeypatch.setattr(watch.windows._disturbance, "read", lambda pids: disturbed)
    watch.windows.take(INTERVAL_NS)
    (window,) = watch.outbox.take()[-1].processes
    assert window.status == Status.APPROXIMATE
    assert window.wss_estimate_bytes <= window.wss_high_bytes <= window.rss_bytes
    assert (window.wss_high_bytes == window.rss_bytes) == bool(disturbed)


def test_a_window_that_is_not_kept_is_not_a_sample(watch):
    watch.reads()
    watch.windows.take(INTERVAL_NS, keep=False)
    assert not [message for message in watch.outbox.take() if isinstance(message, Window)]
    assert watch.windows.sample == 0


def test_a_window_in_parts_is_one_sample_with_all_its_pages_and_pauses(watch):
    maps = watch.tree.processes[watch.pid].maps
    ends = iter((1000, 1400, 1411))

    def outcome(subject):
        end_ms = next(ends)
        pages = PageSet.from_pages([1, end_ms])
        return Reading(PageWindow(pages), maps, end_ms * 10**6, (end_ms + 1) * 10**6, 5)

    watch.reader.outcome = outcome
    cleared = []
    add = watch.windows._clock.add_windows
    watch.windows._clock.add_windows = lambda *args, **more: cleared.extend(args[3]) or add(*args, **more)
    start_ns = watch.tree.processes[watch.pid].start_ns
    watch.windows.cut()
    watch.windows.cut()
    assert watch.outbox.take() == []
    watch.windows.take(INTERVAL_NS)
    (process,) = watch.outbox.take()[-1].processes
    assert watch.windows.sample == 1
    assert (process.start_ns, process.end_ns, process.paused_ns) == (start_ns, 1411 * 10**6, 15)
    assert process.pages.pages().tolist() == [1, 1000, 1400, 1411]
    assert [part.pages().tolist() for part in process.parts] == [[1, 1000], [1, 1400], [1, 1411]]
    assert process.part_lengths_ns == (399 * 10**6, 10 * 10**6)
    assert watch.windows.probes == 1
    assert [window.pages.page_count for window in cleared] == [2, 2, 2]
    ends = iter((2000,))
    watch.windows.take(INTERVAL_NS)
    (process,) = watch.outbox.take()[-1].processes
    assert (process.parts, process.part_lengths_ns, process.pages.page_count) == ((), (), 2)
    assert watch.windows.probes == 0


def test_a_first_window_that_costs_more_than_a_minute_allows_is_reported_before_the_second(watch):
    maps = watch.tree.processes[watch.pid].maps
    watch.windows._clock.set_budget(10_000)

    def outcome(subject):
        now_ns = time.monotonic_ns()
        return Reading(PageWindow(PageSet.from_pages([1])), maps, now_ns, now_ns, 2 * 10**9)

    watch.reader.outcome = outcome
    watch.windows.take(INTERVAL_NS)
    (event,) = watch.outbox.events()
    assert event[0] == "warning"
    assert event[1].startswith("one window costs this program 2.0 s, so a budget of 1 % allows one in 200 s: i or ")
    watch.windows.take(INTERVAL_NS)
    assert watch.outbox.events() == []


def test_a_lost_window_is_reported_once_and_the_next_goes_back_to_its_start(watch):
    start_ns = watch.tree.processes[watch.pid].start_ns
    watch.reader.outcome = lambda _: Lost(TrackerError("no pages"), 3)
    for _ in range(2):
        watch.windows.take(INTERVAL_NS)
    messages = watch.outbox.take()
    events = [(message.kind, message.text) for message in messages if isinstance(message, Event)]
    assert events == [("gap", f"pid {watch.pid}: window lost: no pages")]
    windows = [message.processes[0] for message in messages if isinstance(message, Window)]
    assert [(w.start_ns, w.status, w.reason, w.pages, w.paused_ns) for w in windows] == [
        (start_ns, Status.FAILED, "no pages", None, 3)
    ] * 2
    watch.reads()
    watch.windows.take(INTERVAL_NS)
    assert watch.outbox.take()[-1].processes[0].start_ns == start_ns


def test_after_an_exec_the_process_comes_with_another_key_and_its_mappings(watch):
    watch.reads()
    watch.windows.take(INTERVAL_NS)
    before = watch.tree.processes[watch.pid].process
    watch.outbox.take()
    watch.reads(generation=1)
    watch.windows.take(INTERVAL_NS)
    process, event, table, window = watch.outbox.take()
    assert isinstance(process, Process)
    assert process.key != before.key
    assert process.generation == before.generation + 1
    assert (event.kind, table.process, window.processes[0].process) == ("exec", process.key, process.key)


def test_stopped_by_somebody_else_is_reported_when_it_changes(watch):
    for stopped in (True, True, False):
        watch.reads(stopped=stopped)
        watch.windows.take(INTERVAL_NS)
    events = watch.outbox.events()
    assert events == [
        ("stopped", f"pid {watch.pid} was stopped (SIGSTOP or ^Z)"),
        ("stopped", f"pid {watch.pid} goes on"),
    ]


def test_the_end_of_all_processes_ends_the_windows(watch):
    watch.reader.outcome = lambda subject: Lost(ProcessLookupError(f"process {subject.pid} ended"))
    with pytest.raises(ProcessLookupError, match="every process of the tree ended"):
        watch.windows.take(INTERVAL_NS)
    assert not watch.tree.processes
    assert watch.reader.forgotten == [watch.pid]
    assert not watch.outbox.take()


def test_the_window_in_which_the_root_ended_is_sent(watch, monkeypatch):
    def ended() -> None:
        raise ProcessLookupError("the root")

    watch.reads()
    monkeypatch.setattr(watch.tree, "refresh", ended)
    with pytest.raises(ProcessLookupError, match="the root"):
        watch.windows.take(INTERVAL_NS)
    assert isinstance(watch.outbox.take()[-1], Window)
