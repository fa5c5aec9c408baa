"""Resident memory from windows and from the readings between them, against figures that are counted by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.resident import PSS, RSS, SUM_OF_RSS, Resident, resident
from memtui.analysis.resident_readings import (
    before_exit,
    pss_of_several,
    resident_readings,
    rss_readings,
    windows_without,
)
from memtui.core.readings import MemoryUse
from memtui.core.samples import End, Process

NAN = np.nan


def samples(ends_ns, rss, processes=None, pss=None):
    """Windows without gaps from 0 on."""
    return SimpleNamespace(
        sample=np.arange(len(rss)),
        start_ns=np.array([0, *ends_ns[:-1]]),
        end_ns=np.array(ends_ns),
        rss_bytes=np.array(rss, float),
        pss_bytes=np.full(len(rss), NAN) if pss is None else np.array(pss, float),
        processes=np.ones(len(rss), int) if processes is None else np.array(processes),
        gaps=np.zeros(len(rss), int),
    )


def use(t_ns, rss_bytes, pss_bytes=None, processes=1):
    return MemoryUse(t_ns, processes, rss_bytes, pss_bytes)


def test_without_readings_a_value_is_that_of_its_window():
    found = rss_readings(samples([30, 40], [100, 200]), [])
    assert found.bytes.tolist() == [100, 200]
    assert found.lengths_ns.tolist() == [30, 10]


def test_a_peak_between_two_windows_counts_up_to_halfway_to_its_neighbours():
    found = rss_readings(samples([10, 30], [100, 100]), [use(20, 900)])
    assert found.bytes.tolist() == [100, 900, 100]
    assert found.read_ns.tolist() == [10, 20, 30]
    assert list(zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)) == [(0, 15), (15, 25), (25, 30)]


def test_readings_after_the_last_window_count_and_those_before_the_first_do_not():
    found = rss_readings(samples([10], [100]), [use(-5, 7), use(0, 8), use(20, 300)])
    assert (found.bytes.tolist(), found.start_ns.tolist(), found.end_ns.tolist()) == ([100, 300], [0, 15], [15, 20])


def test_what_a_program_frees_on_its_way_out_is_no_reading():
    """The last of them would stand for half a second in which all of it was there."""
    exit_ns = 5 * 10**9
    uses = [use(4 * 10**9, 900), use(exit_ns - 90 * 10**6, 500), use(exit_ns - 5 * 10**6, 30)]
    assert before_exit(uses, End(exit_ns, "target exited")) == uses[:1]
    assert before_exit(uses, End(exit_ns + 10**9, "target exited")) == uses
    assert before_exit(uses, End(exit_ns, "duration")) == before_exit(uses, None) == uses
    grown = [*uses[:1], use(exit_ns - 5 * 10**6, 2000)]
    assert before_exit(grown, End(exit_ns, "target exited")) == grown, "it was killed for it, perhaps"
    assert before_exit(uses[1:2], End(exit_ns, "target exited")) == uses[1:2]


def test_a_window_that_has_more_than_was_read_in_it_counts_though_children_came():
    """The program had just begun when it was read, and stood for half a second of what it became."""
    table = samples([20, 100], [111, 120])
    table.gaps[:] = [2, 0]
    assert rss_readings(table, [use(5, 8), use(60, 130)]).bytes.tolist() == [8, 111, 130, 120]


def test_what_sharing_saves_follows_the_rss_where_that_changes():
    """Workers of a pool begin, and map what they share again: PSS readings that are seldom say both."""
    full, young = use(0, 500, 300, processes=7), use(100, 280, 210, processes=7)
    between = [
        use(90, 500, processes=7),
        use(95, 390, processes=7),
        use(96, 600, processes=7),
        use(97, 200, processes=7),
    ]
    sums = dict(pss_of_several([full, *between, young]))
    assert [sums[t_ns] for t_ns in (0, 90, 95, 96, 97, 100)] == [300, 300, 255, 400, 130, 210]
    steady = [full, use(50, 505, processes=7), use(100, 510, 450, processes=7)]
    assert dict(pss_of_several(steady))[50] == 505 - 130, "they copy what they share, at one RSS: with the time"
    late = [full, use(50, 510, processes=7)]
    assert dict(pss_of_several(late))[50] == 310


def test_a_pss_of_windows_that_lack_children_is_no_value_either():
    """The mean of a PSS is not above that of the sum of RSS: both are taken at the same moments."""
    table = samples([10, 30], [100, 400], processes=[1, 2], pss=[NAN, 250])
    table.gaps[:] = [2, 2]
    uses = [use(5, 20), use(15, 600, 500, processes=2), use(28, 100)]
    memory = resident(table, [Process(1, 7, 1, 0, 0, "python")], uses)
    assert resident_readings(table, memory, uses).bytes.tolist() == [20, 100, 500, 100]
    assert rss_readings(table, uses).bytes.tolist() == [20, 100, 600, 100]


def test_where_children_come_and_go_what_is_there_at_the_end_of_a_window_does_not_count():
    """A child of a moment ago is not watched yet, and would be missing at the end of every window."""
    table = samples([10, 30, 50], [100, 100, 100])
    table.gaps[:] = [0, 4, 9]
    uses = [use(15, 900, 800, processes=2), use(25, 700, 650, processes=2)]
    assert rss_readings(table, uses).bytes.tolist() == [100, 900, 700, 100], "nothing was read in the last one"
    memory = resident(table, [Process(1, 7, 1, 0, 0, "python")], uses)
    assert resident_readings(table, memory, uses).bytes.tolist() == [100, 800, 650, 100]


def test_children_between_windows_count():
    """They are in no window, and make a tree of the session."""
    table, uses = samples([10, 30], [100, 100]), [use(20, 2000, 1100, processes=2)]
    assert rss_readings(table, uses).bytes.tolist() == [100, 2000, 100]
    memory = resident(table, [Process(1, 7, 1, 0, 0, "python")], uses)
    assert memory.name == PSS
    assert resident_readings(table, memory, uses).bytes.tolist() == [100, 1100, 100]
    assert resident(table, [], [use(20, 2000, None, processes=2)]).name == SUM_OF_RSS
    assert resident(table, [], [use(20, 2000)]).name == RSS


def test_a_pss_that_windows_repeat_counts_once_at_the_time_when_it_was_read():
    """It was read at 8 and at 38; all windows of two processes until then say what was read at 8."""
    table = samples([5, 10, 20, 30, 40], [100, 190, 190, 190, 190], [1, 2, 2, 2, 2])
    memory = Resident(PSS, np.array([100.0, 110, 110, 110, 170]))
    found = resident_readings(table, memory, [use(8, 190, 110, 2), use(38, 190, 170, 2)])
    assert (found.bytes.tolist(), found.read_ns.tolist()) == ([100, 110, 170], [5, 8, 38])
    assert found.lengths_ns.tolist() == [6, 17, 17]
    assert found.at_most_bytes is None


def test_between_its_readings_the_pss_follows_the_rss():
    """What sharing saves is 90 at an RSS of 190, and 50 at one of 290: the children copied 40, and allocated 100."""
    table = samples([5, 40], [100, 190], [1, 2])
    memory = Resident(PSS, np.array([100.0, 140]))
    uses = [
        *(use(8, 190, None, 2), use(10, 190, 100, 2), use(20, 290, None, 2), use(30, 290, 240, 2)),
        *(use(33, 400, None, 3), use(35, 300, None, 2)),
    ]
    found = resident_readings(table, memory, uses)
    assert list(zip(found.read_ns.tolist(), found.bytes.tolist(), strict=True)) == [
        *((5, 100), (8, 100), (10, 100), (20, 240), (30, 240)),
        *((35, 250), (40, 140)),  # nothing is known of three processes
    ]
    assert found.at_most_bytes == 400


def test_a_pss_that_only_windows_have_counts_once():
    """The recording ended before the next reading."""
    table = samples([10, 20, 30], [190, 190, 190], [2, 2, 2])
    found = resident_readings(table, Resident(PSS, np.array([110.0, 170, 170])), [use(8, 190, 110, 2)])
    assert (found.bytes.tolist(), found.read_ns.tolist()) == ([110, 170], [8, 20])


def test_the_pss_of_windows_stays_where_no_reading_has_one():
    table = samples([10, 20], [100, 190], [1, 2])
    found = resident_readings(table, Resident(PSS, np.array([100.0, 110])), [use(15, 190, None, 2), use(5, 90)])
    assert found.bytes.tolist() == [90, 100, 110]


def test_the_sum_of_rss_has_the_readings_of_all_processes():
    table = samples([10, 20], [100, 190], [1, 2])
    found = resident_readings(table, Resident(SUM_OF_RSS, table.rss_bytes), [use(15, 400, None, 2)])
    assert found.bytes.tolist() == [100, 400, 190]


def test_windows_lack_resident_memory_where_neither_they_nor_a_reading_have_it():
    table = samples([10, 20, 30, 40], [1, 1, 1, 1], [2, 2, 2, 2])
    memory = Resident(PSS, np.array([NAN, 5, NAN, NAN]))
    assert windows_without(memory, table, resident_readings(table, memory, [])) == 3
    uses = [use(10, 9, 4, 2), use(20, 9, 5, 2), use(31, 9, 6, 2)]
    assert windows_without(memory, table, resident_readings(table, memory, uses)) == 1


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=12),
    st.lists(st.integers(1, 12000), max_size=20),
    st.integers(-5, 5),
)
def test_the_mean_of_what_grows_evenly_is_what_it_was_in_the_middle(lengths, times, slope):
    """Readings at both ends make the mean of a straight line exact, wherever the others are."""
    ends = np.cumsum(lengths)
    line = lambda t: 100_000 + slope * t  # noqa: E731
    more = [use(int(t), int(line(t))) for t in sorted({t for t in times if t < ends[-1]} | {1})]
    found = rss_readings(samples(ends.tolist(), line(ends)), more)
    assert found.start_ns[0] == 0
    assert found.end_ns[-1] == ends[-1]
    assert (found.start_ns[1:] == found.end_ns[:-1]).all()
    mean = np.average(found.bytes, weights=found.lengths_ns)
    assert abs(mean - line(ends[-1] / 2)) <= 3 * abs(slope), "a time is a whole number"
