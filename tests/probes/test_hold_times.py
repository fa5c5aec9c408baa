"""Nobody is held for longer than ``--max-pause``: what would take longer is read, or cleared, while it runs."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import many_mappings
from benchmarks.many_mappings import PART_MIB, allowing, record
from benchmarks.table import Skip
from memtui.core.errors import UserError
from memtui.core.options import DEFAULT_MAX_PAUSE_NS
from memtui.core.procfs import read_stat
from memtui.core.samples import Options, Window
from memtui.probes import proc_maps, window_reader
from memtui.probes.pages.pagetable.maps_text import GONE, MappingTable
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.tlb_flush import Handle
from memtui.probes.pages.tracker import ClearingTooLong, first_window
from memtui.probes.pause import hold_times
from memtui.probes.pause.hold_times import HoldTimes, page_tables_kb
from memtui.probes.pause.pauser import PauseError
from memtui.probes.proc_maps import MANY, MOST_MAPPINGS, TooManyMappings, parse_maps, read_maps
from memtui.probes.window_reader import Lost, PageReader, Reading, Subject
from memtui.recording.sampler.commands import SamplerConfig, SamplerState
from memtui.recording.sampler.pause_warnings import PauseWarnings
from memtui.recording.sampler.scheduler import SampleClock
from memtui.recording.sampler.target_lock import TargetLocks
from memtui.recording.sampler.tracked_tree import TrackedTree
from memtui.recording.sampler.tree_window import TreeWindows
from memtui.recording.supervisor.launch import Observation
from memtui.session.session import Session
from tests.support.in_process import memtui_here
from tests.support.live import needs_tracker, pattern, start
from tests.support.pagetable_targets import Observer, Target, assert_exactly, need_pagetable
from tests.support.sampler_parts import Outbox
from tests.support.streams import sample

pytestmark = pytest.mark.real_clock

PAGES = 20_000
MS = 10**6
LONG_NS = 5000 * MS  # also on a busy machine a process has stopped and is read by then
PAGE_NS = 60
NO_PID = 1 << 22  # the largest there can be is below


@pytest.fixture
def sizes(monkeypatch):
    """What the kernel says of the page tables of a process."""
    found = {1: 400}
    monkeypatch.setattr(hold_times, "page_tables_kb", lambda pid, _status: found.get(pid, 0))
    return found


def test_the_first_window_is_judged_by_the_size_of_a_process(sizes):
    times = HoldTimes(PAGE_NS)
    assert times.expected_ns(1, 0) == 100 * 512 * PAGE_NS
    assert times.expected_ns(1, 1000) - times.expected_ns(1, 0) == 1000 * hold_times._MAPPING_NS
    assert times.expected_ns(2, None) == 0, "it has ended"


def test_a_part_of_a_window_may_raise_a_prediction_and_never_lowers_it(sizes):
    times = HoldTimes(PAGE_NS)
    times.expected_ns(1, 10)
    times.record(1, 95 * MS, 60 * MS)
    times.in_part = True
    for _ in range(12):
        times.record(1, 5 * MS, 2 * MS)
    assert (times.expected_ns(1, 10), times.expected_stopped_ns(1)) == (95 * MS, 60 * MS)
    times.record(1, 120 * MS, 80 * MS)
    assert (times.expected_ns(1, 10), times.expected_stopped_ns(1)) == (120 * MS, 80 * MS)


def test_on_a_slow_machine_the_first_window_is_judged_by_a_walk_before_it(sizes):
    times = HoldTimes(PAGE_NS)
    usual_ns = times.expected_ns(1, 0)
    times.record_walk(1, usual_ns // 4)
    assert times.expected_ns(1, 0) == usual_ns
    times.record_walk(1, usual_ns)
    assert times.expected_ns(1, 0) == 2 * usual_ns
    times.record(1, MS)
    assert times.expected_ns(1, 0) == MS, "a window says more than a walk"
    times.forget(1)
    assert times.expected_ns(1, 0) == usual_ns


@needs_tracker
def test_a_process_whose_walk_took_long_is_not_paused_for_its_first_window(monkeypatch):
    prepare = PageTableTracker.prepare
    monkeypatch.setattr(PageTableTracker, "prepare", lambda self, pid: prepare(self, pid) + 60 * MS)
    with closing(Target()) as target, PageTableTracker() as tracker:
        reader = PageReader(tracker, pause=True)
        subject = Subject(target.pid, None, read_stat(target.pid).start_ticks)
        assert reader.start(subject) == 0
        assert reader.long == target.pid
        (window,) = reader.read([subject], want_resident=False)
        assert isinstance(window, Reading)
        assert window.paused_ns > 0, "that it took less than feared is known now"
        reader.close()


def test_the_size_of_page_tables_is_in_the_status():
    status = "Name:\tVmPTE: 7 kB\nVmPTE:\t     132 kB\nVmSwap:\t       0 kB\n"
    assert page_tables_kb(0, status) == 132
    assert page_tables_kb(0, "Name:\tx\n") == 0, "a kernel thread"
    assert page_tables_kb(os.getpid()) >= 8, "a table of each level"
    assert page_tables_kb(NO_PID) == 0, "it has ended"
    assert HoldTimes(PAGE_NS).expected_ns(NO_PID, 0, status) == 33 * 512 * PAGE_NS, "it is not read again"


def test_of_one_mapping_and_one_table_two_are_twice_as_many(sizes):
    times = HoldTimes(PAGE_NS)
    for mappings, tables_kb in ((1, 400), (100, 1)):
        sizes[1] = tables_kb
        times.expected_ns(1, mappings)
        times.record(1, 10 * MS)
        assert times.expected_ns(1, 2 * mappings) == 20 * MS
        sizes[1] = 2 * tables_kb
        assert times.expected_ns(1, mappings) == 20 * MS
        times.forget(1)


def test_a_window_without_a_pause_says_nothing_of_pauses(sizes):
    times = HoldTimes(PAGE_NS)
    times.record(1, 10 * MS, 5 * MS)
    times.record(1, 10 * MS)
    assert times.expected_stopped_ns(1) == 4 * MS
    times.forget(1)
    times.record(1, 10 * MS)
    assert times.expected_stopped_ns(1) == 0


def test_others_by_what_the_last_ones_took_and_how_it_has_grown(sizes):
    times = HoldTimes(PAGE_NS)
    times.expected_ns(1, 100)
    times.record(1, 10 * MS)
    assert times.expected_ns(1, 100) == 10 * MS
    assert times.expected_ns(1, 300) == 30 * MS
    sizes[1] *= 5
    assert times.expected_ns(1, 300) == 50 * MS
    sizes[1] //= 50
    assert times.expected_ns(1, 10) == 10 * MS, "one that shrank may still touch as much as before"
    for _ in range(20):
        times.record(1, MS)
    assert times.expected_ns(1, 10) == MS, "long windows are forgotten"
    times.record(1, 20 * MS)
    times.record(1, MS)
    assert times.expected_ns(1, 10) == 16 * MS, "but not at once"


def test_what_is_left_once_all_threads_have_stopped(sizes):
    times = HoldTimes(PAGE_NS)
    assert times.expected_stopped_ns(1) == 0
    times.record(1, 50 * MS, 40 * MS)
    times.record(1, 12 * MS, 2 * MS)
    assert times.expected_stopped_ns(1) == 32 * MS
    times.record_failure(1)
    assert times.expected_stopped_ns(1) == pytest.approx(25.6 * MS), "a process that never stops in time gets longer"
    times.forget(1)
    assert times.expected_stopped_ns(1) == 0
    times.forget(1)
    assert times.expected_ns(1, 0) != MS


def table(folder, lines: int) -> None:
    (folder / "7").mkdir(exist_ok=True)
    line = b"00001000-00002000 rw-p 00000000 00:00 0".ljust(73) + b"[heap]\n"
    (folder / "7" / "maps").write_bytes(line * lines)


def test_a_table_is_read_up_to_as_many_mappings_as_a_process_may_have(tmp_path):
    table(tmp_path, MOST_MAPPINGS)
    assert read_maps(7, tmp_path).count(b"\n") == MOST_MAPPINGS
    table(tmp_path, MOST_MAPPINGS + 1)
    with pytest.raises(TooManyMappings, match="more than 65,536"):
        read_maps(7, tmp_path)


def row(n: int, named: bool) -> tuple[np.ndarray, bytes]:
    """A mapping as a walk meets it, and its line."""
    line = b"%08x-%08x rw-p 00000000 00:00 0 " % (n << 12, (n + 1) << 12)
    mapping = np.array([n << 12, (n + 1) << 12, 3, 77 if named else 0], np.uint64)
    return mapping, (line.ljust(73) + b"/lib/x.so" if named else line) + b"\n"


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40), st.booleans())
def test_what_is_read_later_gives_names_and_nothing_else(mappings, vsyscall):
    """Each is ``(it has a name, it is there still when the table is read)``; some are new in the table."""
    rows = [row(2 * n + 1, named) for n, (named, _) in enumerate(mappings)]
    later = [line for (_, line), (_, there) in zip(rows, mappings, strict=True) if there]
    later.append(row(1000, True)[1])
    rest = b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n" if vsyscall else b""
    table = MappingTable()
    text = table.store_later(np.array([mapping for mapping, _ in rows]), b"".join(later) + rest)
    assert text.endswith(rest)
    found = parse_maps(text)
    assert [(v.start, v.end) for v in found] == [(int(m[0]), int(m[1])) for m, _ in rows]
    names = ["/lib/x.so" if there else GONE.decode() for _, there in mappings]
    assert [v.name for v in found] == [name if named else "" for (named, _), name in zip(mappings, names, strict=True)]
    assert table.knows(np.array([mapping for mapping, _ in rows]))


@pytest.fixture
def held(monkeypatch):
    """A process that touches 2000 of its pages, its tracker, and where they lie."""
    need_pagetable()
    with Target() as target, PageTableTracker(rearm="full") as tracker:
        address = target.touch_for_ever(PAGES, 2000, 3)
        yield target, tracker, address


def subject_of(pid: int) -> Subject:
    return Subject(pid, None, read_stat(pid).start_ticks)


def test_marks_that_would_take_too_long_to_clear_are_cleared_while_it_runs(held):
    target, tracker, address = held
    touched = np.sort(np.random.default_rng(3).choice(PAGES, 2000, replace=False))
    observer = Observer(tracker)
    with closing(observer):
        observer.start(target.pid)
        target.let_run(0.05)
        tracker.resume_by_ns = time.monotonic_ns()
        with pytest.raises(ClearingTooLong) as raised:
            observer.window(target.pid)
        window = raised.value.finish()
        assert_exactly(window.pages, address, PAGES, touched)
        target.let_run(0.05)
        tracker.resume_by_ns = None
        again = observer.window(target.pid)
        assert again.status == "ok"
        assert_exactly(again.pages, address, PAGES, touched)
        assert target.pid not in tracker.running


def test_a_reader_goes_on_with_it_and_says_so(held):
    target, tracker, _ = held
    with closing(PageReader(tracker, pause=True, max_pause_ns=5 * 10**9)) as reader:
        subject = subject_of(target.pid)
        reader.start(subject)
        tracker.start_round(1)
        (reading,) = reader.read([subject], want_resident=False)
        assert isinstance(reading, Reading)
        assert (reading.running, reader.long) == ("", 0)
        target.let_run(0.05)
        tracker._tracked[target.pid].clear_page_ns = 1e9
        (reading,) = reader.read([subject], want_resident=False)
        assert isinstance(reading, Reading)
        assert reading.running.startswith("its marks were cleared while it ran")
        assert reading.paused_ns > 0
        assert reading.end_ns < reading.resumed_ns
        assert reading.window.pages is not None
        assert reading.window.pages.page_count >= 1900
        assert reader.long == target.pid


@pytest.mark.parametrize("together", [False, True])
def test_threads_that_stop_late_do_not_make_the_pause_longer(held, together, monkeypatch):
    """Of 300 ms, reading takes 200: a program whose threads need 150 to stop is let go at 100 instead of at 350."""
    target, tracker, _ = held
    deadlines, read = [], tracker.window

    def slow(*words, **options):
        time.sleep(0.2)
        return read(*words, **options)

    with closing(PageReader(tracker, pause=True, together=together, max_pause_ns=300 * MS)) as reader:
        both = [subject_of(target.pid)]
        reader.start(both[0])
        pause = reader._pauser.paused_together
        monkeypatch.setattr(tracker, "window", slow)
        monkeypatch.setattr(
            reader._pauser,
            "paused_together",
            lambda pids, within_s: deadlines.append(within_s) or pause(pids, within_s),
        )
        for _ in range(10):  # on a busy machine threads do not always stop, and then no time is learnt
            assert isinstance(reader.read(both, want_resident=False)[0], Reading)
            if min(deadlines) < 0.095:
                break
    assert min(deadlines) < 0.095, deadlines
    assert deadlines[0] > 0.095, "nothing is known yet of how long reading takes"


def test_threads_have_no_longer_to_stop_than_leaves_time_to_release_them(held):
    target, tracker, _ = held
    with closing(PageReader(tracker, pause=True, max_pause_ns=100 * MS)) as reader:
        reader._times.record(target.pid, 50 * MS, 50 * MS)
        assert reader._deadline_s([target.pid]) == pytest.approx(0.045), "of 100 ms, 5 are for that"


def test_a_first_window_without_a_pause_says_how_long_the_next_one_takes(held, monkeypatch):
    """It has no gap between reading and clearing."""
    target, tracker, _ = held
    with closing(PageReader(tracker, pause=True, max_pause_ns=50 * MS)) as reader:
        monkeypatch.setattr(reader._times, "expected_ns", lambda *_: 51 * MS)
        monkeypatch.setattr(tracker, "window", lambda *_, **__: (time.sleep(0.06), first_window())[1])
        (reading,) = reader.read([subject_of(target.pid)], want_resident=False)
        assert (reading.paused_ns, reading.window.clear_gap_ns) == (0, None)
        monkeypatch.undo()
        assert reader._times.expected_ns(target.pid, 0) >= 60 * MS


@pytest.mark.parametrize("took_ms", [0, 4, 5])
def test_threads_never_have_longer_to_stop_than_a_pause_may_last(held, took_ms):
    target, tracker, _ = held
    with closing(PageReader(tracker, pause=True, max_pause_ns=5 * MS)) as reader:
        reader._times.record(target.pid, took_ms * MS, took_ms * MS)
        assert 0 < reader._deadline_s([target.pid]) <= 0.005


@pytest.mark.parametrize("together", [False, True])
def test_what_would_take_longer_is_not_held_at_all(held, together, monkeypatch):
    target, tracker, _ = held
    monkeypatch.setattr(window_reader, "DEADLINE_S", LONG_NS / 1e9)
    with Target() as other, closing(PageReader(tracker, pause=True, together=together, max_pause_ns=LONG_NS)) as reader:
        both = [subject_of(target.pid), subject_of(other.pid)]
        for subject in both:
            reader.start(subject)
        reader._times.expected_stopped_ns = lambda pid: 0
        reader._times.expected_ns = lambda pid, mappings, status=None: LONG_NS * 6 // 10
        outcomes = reader.read(both, want_resident=False)
        assert all(isinstance(outcome, Reading) for outcome in outcomes)
        # Held at once they are held for the sum of their times, so there is room for one.
        assert [outcome.paused_ns > 0 for outcome in outcomes] == [True, not together]
        assert [outcome.running != "" for outcome in outcomes] == [False, together]
        reader._times.expected_ns = lambda pid, mappings, status=None: LONG_NS + 1
        outcomes = reader.read(both, want_resident=False)
        assert [outcome.paused_ns for outcome in outcomes] == [0, 0]
        assert all(outcome.running == "holding it would take longer than --max-pause (5.0 s)" for outcome in outcomes)
        reader._times.expected_ns = lambda pid, mappings, status=None: LONG_NS // 5
        outcomes = reader.read(both, want_resident=False)
        assert all(outcome.paused_ns > 0 and not outcome.running for outcome in outcomes), (
            "held again where it is short again"
        )


def test_a_process_of_too_many_mappings_is_neither_held_nor_read(held, monkeypatch):
    target, tracker, _ = held
    with closing(PageReader(tracker, pause=True)) as reader:
        subject = subject_of(target.pid)
        reader.start(subject)
        count = read_maps(target.pid).count(b"\n") - 1  # without the kernel's page
        assert tracker.count_mappings(target.pid) == count
        monkeypatch.setattr(window_reader, "MOST_MAPPINGS", count - 1)
        monkeypatch.setattr(PageTableTracker, "window", None)
        (outcome,) = reader.read([subject], want_resident=False)
        assert isinstance(outcome, Lost)
        assert (str(outcome.error), outcome.paused_ns) == (MANY, 0)


def test_as_many_mappings_as_the_kernel_allows_are_read_within_the_longest_pause():
    """Almost: a tenth is left to the interpreter. At the start nothing is known yet, so it is not paused then."""
    need_pagetable()
    limit_ns = 100 * MS
    count = min(60_000, int(Path("/proc/sys/vm/max_map_count").read_text()) * 9 // 10)
    with Target() as many, PageTableTracker() as tracker:
        many.do(f"b = libc.mmap(None, {count} * 4096, 3, 0x22, -1, 0)")
        many.do(f"[libc.mprotect(b + n * 4096, 4096, 1) for n in range(0, {count}, 2)]")
        with closing(PageReader(tracker, pause=True, max_pause_ns=limit_ns)) as reader:
            subject = subject_of(many.pid)
            assert reader.start(subject) == 0
            assert reader.long == many.pid
            readings, held_ns = [], []
            for _ in range(10):
                before_ns = waited_ns(os.getpid(), many.pid)
                (outcome,) = reader.read([subject], want_resident=False)
                if isinstance(outcome, Reading):
                    readings.append(outcome)
                    held_ns.append(outcome.paused_ns - (waited_ns(os.getpid(), many.pid) - before_ns))
                else:
                    assert isinstance(outcome.error, PauseError), "on a busy machine it may not stop in time"
                if len(readings) == 3:
                    break
            assert tracker.count_mappings(many.pid) >= count
    assert len(readings) == 3
    for reading in readings:
        assert reading.maps.count(b"\n") >= count
        assert reading.paused_ns > 0 or "longer than --max-pause (100 ms)" in reading.running
    # On a busy machine a pause lasts longer than what is done in it. That none waited for a CPU inside of a virtual
    # machine does not say that its host had one: so the middle one.
    assert sorted(held_ns)[1] < 2 * limit_ns, held_ns


@pytest.fixture
def mapped():
    """A process that really has more mappings than are read; their memory is its ``b``."""
    count = MOST_MAPPINGS + 5000
    with ExitStack() as stack:
        try:
            stack.enter_context(allowing(count))
        except OSError as error:
            pytest.skip(f"vm.max_map_count may not be raised here: {error.strerror}")
        target = stack.enter_context(Target())
        target.do(f"b = libc.mmap(None, {count} * 4096, 3, 0x22, -1, 0)")
        target.do(f"[libc.mprotect(b + n * 4096, 4096, 1) for n in range(0, {count}, 2)]")
        with Path(f"/proc/{target.pid}/maps").open("rb") as maps:
            assert sum(1 for _ in maps) > count
        yield target


def test_one_that_really_has_more_mappings_is_not_held_until_it_has_less(mapped):
    need_pagetable()
    with PageTableTracker() as tracker, closing(PageReader(tracker, pause=True, max_pause_ns=5000 * MS)) as reader:
        subject = subject_of(mapped.pid)
        with pytest.raises(TooManyMappings, match="more than 65,536"):
            reader.start(subject)
        for _ in range(3):
            (outcome,) = reader.read([subject], want_resident=False)
            assert isinstance(outcome, Lost)
            assert (str(outcome.error), outcome.paused_ns) == (MANY, 0)
        mapped.do(f"libc.munmap(ctypes.c_void_p(b), ctypes.c_size_t({MOST_MAPPINGS // 2} * 4096))")
        for _ in range(2):
            (outcome,) = reader.read([subject], want_resident=False)
            assert isinstance(outcome, Reading), outcome
            assert outcome.paused_ns > 0
        assert outcome.maps.count(b"\n") > MOST_MAPPINGS // 2
        assert (outcome.window.status, outcome.window.reason) == ("ok", "")


@needs_tracker
def test_of_one_that_really_has_more_mappings_there_are_samples_in_little_memory(mapped, tmp_path):
    uses = record(mapped.pid, tmp_path / "s.memtui", 2)
    session = Session(tmp_path / "s.memtui")
    try:
        windows = session.processes.samples(0, session.samples.newest)
    finally:
        session.close()
    assert {(window["status"], window["reason"]) for window in windows} == {("failed", MANY)}
    assert not any(window["paused_ns"] for window in windows)
    assert all(window["rss_bytes"] > 1 << 20 and window["cpu_ns"] for window in windows)
    assert all(0 < use.peak_bytes < PART_MIB << 20 for use in uses.values()), uses


@needs_tracker
def test_of_one_that_really_has_more_mappings_no_stall_is_long(tmp_path):
    """By its own clock, less the time in which it waited for a CPU."""
    with ExitStack() as stack:
        try:
            program = stack.enter_context(many_mappings.target(MOST_MAPPINGS + 5000, tmp_path))
        except (OSError, Skip) as error:
            pytest.skip(f"no such target here: {error}")
        program.stalls()
        record(program.pid, tmp_path / "s.memtui", 2)
        assert program.stalls().awake_ms < DEFAULT_MAX_PAUSE_NS / MS
    with closing(Session(tmp_path / "s.memtui")) as session:
        assert len(session.samples) > 1


def waited_ns(*pids: int) -> int:
    """How long the threads of these processes have waited for a CPU; 0 where the kernel does not say."""
    paths = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[1]) for path in paths)


def test_by_default_a_hot_target_is_let_go_and_its_windows_are_approximate(held, monkeypatch):
    """On a machine that takes 0.2 ms for the mark of a page: 0.4 s, of which the target may be held for 0.1."""
    target, tracker, _ = held
    options = Options(10**9, "pagetable")
    order = SamplerConfig(target.pid, read_stat(target.pid).start_ticks, options)
    assert order.max_pause_ns == DEFAULT_MAX_PAUSE_NS == 100 * MS
    outbox, stopped = Outbox(), []
    prepare, clear = tracker.prepare, Handle.clear

    def prepare_slow(pid: int) -> int:
        walk_ns = prepare(pid)
        tracker._tracked[pid].clear_page_ns = 0.2 * MS
        return walk_ns

    def clear_slow(handle: Handle) -> None:
        stopped.append("t" in read_stat(target.pid).state)
        time.sleep(0.4)
        clear(handle)

    monkeypatch.setattr(tracker, "prepare", prepare_slow)
    monkeypatch.setattr(Handle, "clear", clear_slow)
    with closing(PageReader(tracker, pause=True)) as reader, closing(TargetLocks()) as locks:
        warnings = PauseWarnings(order, outbox, reader)
        tree = TrackedTree(order, None, outbox, reader, warnings, locks)
        clock = SampleClock(options, SamplerState(10**9), None, clears=False)
        clock.start()
        windows = TreeWindows(tree, reader, clock, outbox, warnings, max_overhead_ppm=None, together=False)
        windows.start()
        tree.refresh()
        tree.follow()
        for _ in range(2):
            target.let_run(0.02)
            windows.take(10**9)
        windows.close()
        tree.forget(target.pid)
    taken = [one for message in outbox.messages if isinstance(message, Window) for one in message.processes]
    assert len(taken) == 2
    assert {window.status for window in taken} <= {"approximate", "not paused"}
    assert max(window.paused_ns for window in taken) < 400 * MS
    assert len(stopped) >= 2
    assert not any(stopped), "the marks are cleared while it runs"
    assert any("(--max-pause)" in text for kind, text in outbox.events() if kind == "warning")


@pytest.mark.usefixtures("default_options")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files of a recording that is given up
@needs_tracker
@pytest.mark.parametrize(("words", "most_ns"), [((), DEFAULT_MAX_PAUSE_NS), (("--max-pause", "0.3"), 300 * MS)])
def test_the_order_to_the_sampler_says_how_long(tmp_path, monkeypatch, words, most_ns):
    lines: list[bytes] = []

    def refuse(_observation: Observation, line: bytes) -> None:
        lines.append(line)
        raise UserError("seen enough")

    monkeypatch.setattr(Observation, "_send_command", refuse)
    with closing(Target()) as target:
        assert memtui_here("record", target.pid, "-o", tmp_path / "s.memtui", *words).returncode != 0
        assert SamplerConfig.from_line(lines[0]).max_pause_ns == most_ns


@needs_tracker
def test_on_the_command_line(tmp_path):
    """With 5 ms for a hundred thousand pages that are all touched; the memory is the program's to grow."""
    with pattern("loop", "--pages", 150_000, rest_s=0) as truth:
        path = tmp_path / "s.memtui"
        argv = ("record", truth["pid"], "-o", path, "--duration", 4, "--interval", 0.2, "--max-pause", 0.005)
        child = start(*argv)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        report = start("report", path, "--json").communicate(timeout=60)[0]
        assert "(--max-pause)" in report


@needs_tracker
def test_numbers_stay_near_the_truth():
    """A window that is not held misses what is touched between reading and clearing, and nothing else."""
    with pattern("loop", "--pages", 150_000, rest_s=0) as truth:
        stream = sample(truth["pid"], 3, interval_ns=200 * MS, max_pause_ns=5 * MS)
    windows = [w for w in stream.of_pid(truth["pid"])[1:] if w.pages is not None]
    assert {w.status for w in windows} == {"approximate"}
    assert any(w.pages.page_count > 149_000 for w in windows)
    assert all(w.paused_ns < 50 * MS for w in windows)


def test_a_growing_table_is_read_outside_of_the_pause(held, monkeypatch):
    """What a long table says is of the moment of the walk, but for names."""
    target, tracker, _ = held
    observer = Observer(tracker)
    with closing(observer):
        observer.start(target.pid)
        target.close()
    with Target() as many:
        many.do("b = libc.mmap(None, 6000 * 4096, 3, 0x22, -1, 0)")
        many.do("[libc.mprotect(b + n * 4096, 4096, 1) for n in range(0, 6000, 2)]")
        observer = Observer(tracker)
        with closing(observer):
            observer.start(many.pid)
            read_in_pause = []
            whole = proc_maps.read_maps
            monkeypatch.setattr(
                "memtui.probes.pages.pagetable.tracker_state.read_maps",
                lambda pid: read_in_pause.append("t" in read_stat(pid).state.lower()) or whole(pid),
            )
            tracker.start_round(1)
            window = observer.window(many.pid, want_resident=True)
            assert read_in_pause == []
            text = window.maps()
            assert read_in_pause == [False]
            assert text == read_maps(many.pid)
            many.do("libc.munmap(ctypes.c_void_p(b + 8192), ctypes.c_size_t(4096))")
            window = observer.window(many.pid)
            assert window.maps() == read_maps(many.pid), "what the allocator does is not read"
            assert read_in_pause == [False]
