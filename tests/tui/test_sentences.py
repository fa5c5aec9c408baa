"""The figures of all windows while more of them come: those of looking at all again, for little work."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from memtui.analysis.resident import PSS, RSS, SUM_OF_RSS, ResidentKind, resident, resident_bytes
from memtui.core.samples import MORE_TOUCHED, End, Process
from memtui.session.packed_column import Column
from memtui.session.sample_arrays import COLUMNS, SampleArrays, SampleArraysBuilder
from memtui.session.session import Session
from memtui.tui.presenters.header import Header
from memtui.tui.presenters.reuse import Intervals
from memtui.tui.presenters.sentences import SentencesLog, WindowFigures
from memtui.tui.presenters.window_rows import WindowRows
from tests.support.sessions import messages, write_session

MS = 1_000_000
UNTRACED = SimpleNamespace(traced_fraction=lambda until_ns: None)
PROCESSES = [Process(key, 100 + key, 1, key, 0, "t", "child") for key in (1, 2)]


def rows(count: int, *, seed: int = 0, unknown: float = 0.0, budget: bool = False, pss: bool = True) -> list[tuple]:
    """Windows of 0.1 s, every hundred of them some of 1 s."""
    random = np.random.default_rng(seed)
    found = []
    end_ns = 10**15
    for sample in range(count):
        asked_ns = 1000 * MS if sample % 100 > 96 else 100 * MS
        length_ns = asked_ns + int(random.integers(0, MS))
        end_ns += length_ns + MS
        numbers = [int(n) << 12 for n in random.integers(1, 5000, 9)]
        values = {
            "sample": sample, "start_ns": end_ns - length_ns, "end_ns": end_ns, "asked_ns": asked_ns,
            "sampler_cpu_ns": sample * MS, "recorder_cpu_ns": sample * MS, "gaps": 0,
            "budgeted_ns": int(asked_ns * random.uniform(1, 1.2)) if budget else None,
            "paused_ns": numbers[0], "lost_ns": numbers[1], "wss_bytes": numbers[2], "rss_bytes": numbers[3],
            "processes": 1 + sample % 3, "pss_bytes": numbers[4] if pss else None,
            "disturbed": "", "status": "ok",
            "reason": f"1 MiB {MORE_TOUCHED}" if random.random() < 0.4 + 0.2 * (seed > 0) else "",
        }  # fmt: skip
        if random.random() < unknown:
            values |= dict.fromkeys(("paused_ns", "lost_ns", "wss_bytes", "pss_bytes")[sample % 4 :])
        found.append(tuple(values.get(name) for name in COLUMNS))
    return found


def known(figures) -> dict[str, float]:
    """Return the figures by name."""
    return {name: getattr(figures, name) for name in figures.__slots__}


@pytest.mark.parametrize("budget", [False, True])
@pytest.mark.parametrize("pss", [False, True])
@pytest.mark.parametrize("unknown", [0.0, 0.4, 1.0])
def test_added_windows_give_what_all_windows_give(unknown, pss, budget):
    builder, all_rows = SampleArraysBuilder(), rows(900, unknown=unknown, pss=pss, budget=budget)
    log, counted, seen = SentencesLog(), 0, []
    intervals = Intervals()
    for start in range(0, len(all_rows), 3):
        table = builder.add(all_rows[start : start + 3])
        reader = SimpleNamespace(
            samples=table,
            end=None,
            alive=False,
            training=UNTRACED,
            hello=SimpleNamespace(options=SimpleNamespace(interval_ns=100 * MS)),
        )
        log.view(reader, len(table) - 1, None, PROCESSES)
        whole = WindowFigures(table, len(table) - 1, ResidentKind().of(table, PROCESSES))
        if log._windows._intervals_ns == whole._intervals_ns:
            assert known(log._figures) == pytest.approx(known(whole.figures(table)), nan_ok=True)
            counted += 1
        seen.append(id(log._windows))
        assert intervals.until(reader, len(table) - 1) == Intervals().until(reader, len(table) - 1)
    assert counted > 250
    assert len(set(seen[-100:])) < 60, "most were added"


def test_a_cursor_that_goes_back_has_the_figures_until_there():
    table = SampleArraysBuilder().add(rows(500))
    reader, log = SimpleNamespace(samples=table, end=None, alive=False, training=UNTRACED), SentencesLog()
    for index in (499, 100, 101, 400, 0, 300):
        log.view(reader, index, None, PROCESSES)
        assert known(log._figures) == pytest.approx(known(WindowFigures(table, index, PSS).figures(table)))


@pytest.mark.parametrize(
    ("pss", "processes", "kind"), [(True, PROCESSES, PSS), (False, PROCESSES, SUM_OF_RSS), (True, PROCESSES[:1], RSS)]
)
def test_resident_memory_of_a_growing_table_is_that_of_the_whole(pss, processes, kind):
    builder, growing = SampleArraysBuilder(), ResidentKind()
    all_rows = rows(40, pss=pss)
    for start in range(0, 40, 5):
        table = builder.add(all_rows[start : start + 5])
        whole = resident(table, processes)
        assert growing.of(table, processes) == whole.name == kind
        np.testing.assert_array_equal(resident_bytes(table, kind, slice(3, 9)), whole.bytes[3:9])
    other = SampleArraysBuilder().add([row for row in all_rows if row[0] % 3 == 0])  # of one process all of them
    assert growing.of(other, processes) == resident(other, processes).name == RSS


def test_a_cursor_that_stands_still_has_the_kind_of_resident_memory_that_is_known_by_now():
    """A second process that is loaded later makes a tree of it, whose RSS is not the one of a process alone."""
    table = SampleArraysBuilder().add(rows(40))
    reader, log = SimpleNamespace(samples=table, end=None, alive=False, training=UNTRACED), SentencesLog()
    for processes, kind in ((PROCESSES[:1], RSS), (PROCESSES, PSS)):
        log.view(reader, 20, None, processes)
        assert known(log._figures) == pytest.approx(known(WindowFigures(table, 20, kind).figures(table)))


def numbers_read(count: int, monkeypatch) -> float:
    """Return how many numbers of a table are read for each of many windows that come to so many windows."""
    builder = SampleArraysBuilder()
    all_rows = rows(count + 1600)
    builder.add(all_rows[:count])
    log, intervals, read = SentencesLog(), Intervals(), 0
    between = Column._between

    def counted(column, first, last):
        nonlocal read
        read += last - first
        return between(column, first, last)

    with monkeypatch.context() as patch:
        for start in range(count, count + 1600, 10):
            table: SampleArrays = builder.add(all_rows[start : start + 10])
            reader = SimpleNamespace(
                samples=table,
                end=None,
                alive=False,
                training=UNTRACED,
                hello=SimpleNamespace(options=SimpleNamespace(interval_ns=MS)),
            )
            log.view(reader, len(table) - 1, None, PROCESSES)
            intervals.until(reader, len(table) - 1)
            patch.setattr(Column, "_between", counted)  # not of the first one, which looks at all
    return read / 1590


def test_the_work_for_a_window_does_not_grow_with_the_session(monkeypatch):
    few, many = (numbers_read(count, monkeypatch) for count in (5000, 20_000))
    assert many < 1.3 * few
    assert many < 4000, "200,000 numbers are in the table"


def test_no_array_is_as_long_as_the_session_but_one_of_each_median(monkeypatch):
    longest = 0
    between = Column._between

    def measured(column, first, last):
        nonlocal longest
        longest = max(longest, last - first)
        return between(column, first, last)

    monkeypatch.setattr(Column, "_between", measured)
    table = SampleArraysBuilder().add(rows(20_000))
    WindowFigures(table, len(table) - 1, PSS)
    options = SimpleNamespace(options=SimpleNamespace(interval_ns=MS))
    Intervals().until(SimpleNamespace(samples=table, hello=options), 5)
    assert longest <= 4096


@pytest.mark.parametrize("how", ["killed by the kernel (SIGKILL): cgroup /job reached its limit of 256 MiB", "exited"])
def test_a_bad_end_comes_first_in_the_last_window_only(tmp_path, how):
    stream = list(messages(12))
    reader = Session(write_session(tmp_path / "s.memtui", [*stream[:-1], End(stream[-1].t_ns, "target exited", how)]))
    try:
        log = SentencesLog()
        last, before = (log.view(reader, index, None, []).sentences for index in (11, 10))
        header = Header(reader, WindowRows(reader))._how_it_ended()
    finally:
        reader.close()
    if how == "exited":
        assert not any("Target" in form for forms in last for form in forms)
        assert header == "target exited"
    else:
        assert last[0] == (f"Target {how}.", "Target killed by the kernel (SIGKILL).")
        assert last[1][0].startswith("In a window of")
        assert header == "target killed by the kernel (SIGKILL)"
    assert before[0][0].startswith("In a window of")


def test_what_was_found_comes_first_but_for_a_bad_end(tmp_path):
    stream = list(messages(12))
    killed = End(stream[-1].t_ns, "target exited", "killed by SIGTERM")
    found = (("The machine will be out of memory in about 82 s.",),)
    reader = Session(write_session(tmp_path / "s.memtui", [*stream[:-1], killed]))
    try:
        log = SentencesLog()
        last, before = (log.view(reader, index, None, [], found).sentences for index in (11, 10))
    finally:
        reader.close()
    assert last[0][0].startswith("Target killed by SIGTERM")
    assert before[0] == found[0]
    assert before[1][0].startswith("In a window of")


@pytest.mark.parametrize(("seed", "lower_bound"), [(0, False), (1, True)])
def test_the_working_set_is_a_lower_bound_where_most_windows_may_lack_pages(seed, lower_bound):
    table = SampleArraysBuilder().add(rows(300, seed=seed))
    assert WindowFigures(table, 299, PSS).figures(table).may_lack_pages == lower_bound


def test_at_the_end_of_a_recording_no_next_window_is_spoken_of():
    """The end comes while the last window is looked at."""
    builder = SampleArraysBuilder()
    at = list(COLUMNS).index("next_ns")
    table = builder.add([(*row[:at], 5_000 * MS, *row[at + 1 :]) for row in rows(20, budget=True)])
    log, reader = SentencesLog(), SimpleNamespace(samples=table, end=None, alive=True, training=UNTRACED)
    live = log.view(reader, len(table) - 1, None, PROCESSES[:1])
    assert "With the time until the next window" in str(live.sentences)
    reader.end, reader.alive = End(int(table.end_ns[-1]) + 10 * MS, "target exited"), False
    ended = log.view(reader, len(table) - 1, None, PROCESSES[:1])
    assert "until the next window" not in str(ended.sentences)
    assert "So far watching cost it" in str(ended.sentences)
