"""Touched, resident and released memory in a report, against figures that are counted by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from memtui.analysis.alike import Group
from memtui.analysis.resident import PSS, RSS, SUM_OF_RSS, Resident
from memtui.analysis.resident_readings import Readings
from memtui.core.samples import LIMIT, MISSED, MORE_TOUCHED, SHARED_UNKNOWN, Capability, Status
from memtui.reports.memory_summary import (
    NOT_WATCHED,
    SEVERAL_PAGES,
    SHORT_CHILDREN,
    TAKEN_BACK,
    LargestWindow,
    ReleasedSummary,
    WindowGroup,
    WorkingSetSummary,
    births_and_ends,
    largest_window,
    proportional_set,
    released_lines,
    released_memory,
    resident_lines,
    resident_set,
    shared_lines,
    shared_memory,
    touched_of_resident,
    why_no_working_set,
    window_groups,
    window_sentences,
    working_set,
    working_set_line,
)
from memtui.reports.size_summary import SizeSummary

ABLE = Capability("wss", True)
NAN, MIB, PAGE, S = np.nan, 1 << 20, 4096, 10**9


def reader(wss, shared=None, *, status=Status.OK, reason="", able=ABLE):
    """Windows with these bytes; the last one has the status."""
    count = len(wss)
    return SimpleNamespace(
        hello=SimpleNamespace(wss=able),
        samples=SimpleNamespace(
            are_estimates=False,
            wss_bytes=np.array(wss, float),
            shared_bytes=np.zeros(count) if shared is None else np.array(shared, float),
            status=[Status.OK] * (count - 1) + [status],
            reason=[""] * (count - 1) + [reason],
            disturbed=[""] * count,
            faulted_in_bytes=np.zeros(count),
            gaps=np.zeros(count, np.int64),
            sample=np.arange(count),
        ),
    )


NOTHING = ReleasedSummary(None, None, None, Status.UNSUPPORTED, "why", None, None)


def known(mean: float, most: int | None = None, status=Status.OK, reason="") -> SizeSummary:
    return SizeSummary(mean, mean, int(mean) if most is None else most, status, reason)


UNKNOWN = SizeSummary(None, None, None, Status.UNSUPPORTED, "why")


def test_births_and_ends_that_were_seen_are_a_lower_bound():
    """A child that came and went between two looks at the tree is not counted."""
    assert births_and_ends(1).startswith(
        "a process began or ended inside a window at least 1 time; such a window lacks"
    )
    assert "at least 9 times; " in births_and_ends(9)


def resident(name, *values) -> Resident:
    return Resident(name, np.array(values, float))


def test_the_working_set_is_that_of_windows_that_are_alike():
    found = working_set(reader([10, 20, 60, NAN, 9000]), np.array([True, True, True, True, False]), NOTHING)
    assert found == WorkingSetSummary(30, 20, 60, Status.OK, "", lower_bound=False, estimated=False)


def test_a_working_set_that_is_less_than_exact_says_so():
    all_ = np.ones(2, bool)
    told = working_set(reader([10, 20], status=Status.APPROXIMATE, reason="as told"), all_, NOTHING)
    assert (told.mean, told.status, told.reason) == (15, Status.APPROXIMATE, "as told")
    shared = working_set(reader([10, 20], [NAN, 0]), all_, NOTHING)
    assert (shared.status, shared.reason) == (Status.APPROXIMATE, SHARED_UNKNOWN)
    assert working_set(reader([NAN, 20], [NAN, 0]), all_, NOTHING).status == Status.OK, (
        "what is not known shares nothing"
    )


def test_it_is_a_lower_bound_where_most_windows_may_lack_pages():
    session = reader([10, 20, 30, 40, 50])
    missed = f"about 9 MiB {MORE_TOUCHED}"
    session.samples.status[:] = [Status.APPROXIMATE] * 5
    session.samples.reason[:] = ["it ran on", missed, "it ran on", missed, missed]
    for alike, lower_bound, reason in (
        ([1, 1, 1, 1, 1], True, missed),
        ([1, 1, 1, 1, 0], False, "it ran on"),
        ([0, 1, 0, 0, 0], True, missed),
    ):
        found = working_set(session, np.array(alike, bool), NOTHING)
        assert (found.lower_bound, found.reason) == (lower_bound, reason)


def test_it_is_a_lower_bound_where_children_came_and_went_in_most_windows():
    session = reader([10, 20, 30])
    session.samples.gaps[:] = [3, 0, 0]
    assert not working_set(session, np.ones(3, bool), NOTHING).lower_bound
    session.samples.gaps[1] = 1
    found = working_set(session, np.ones(3, bool), NOTHING)
    assert (found.lower_bound, found.status, found.reason) == (True, Status.APPROXIMATE, NOT_WATCHED)


def test_file_pages_that_faults_mapped_are_said_and_make_it_no_lower_bound():
    session = reader([10 * MIB, 20 * MIB, 900 * MIB])
    session.samples.status[1] = Status.APPROXIMATE
    session.samples.reason[:2] = [f"about 2 MiB {MORE_TOUCHED}"] * 2
    session.samples.faulted_in_bytes[:] = [NAN, 8 * MIB, 800 * MIB]
    found = working_set(session, np.array([True, True, False]), NOTHING)
    assert not found.lower_bound
    assert found.reason == (
        "4.00 MiB are pages of files or shared memory that page faults mapped, touched or not; "
        f"about 2 MiB {MORE_TOUCHED}"
    )
    session.samples.faulted_in_bytes[1] = 2.9 * MIB
    assert working_set(session, np.array([True, True, False]), NOTHING).lower_bound


def test_windows_that_may_lack_more_than_faults_mapped_are_a_lower_bound():
    """The faulted pages may be just those that were touched."""
    session = reader([10 * MIB, 20 * MIB])
    session.samples.status[:] = [Status.APPROXIMATE] * 2
    session.samples.reason[:] = [f"about 9 MiB {MORE_TOUCHED}"] * 2
    session.samples.faulted_in_bytes[:] = [8 * MIB, 8 * MIB]
    found = working_set(session, np.ones(2, bool), NOTHING)
    assert (found.lower_bound, found.reason) == (True, f"about 9 MiB {MORE_TOUCHED}")
    session.samples.reason[:] = [f"{MISSED}: its notes cannot be read"] * 2
    assert working_set(session, np.ones(2, bool), NOTHING).lower_bound, "it has no bound"


def test_the_reason_is_that_of_a_window_that_counts():
    session = reader([10, 20], status=Status.OK)
    session.samples.status[0], session.samples.reason[0] = Status.APPROXIMATE, "it ran on"
    found = working_set(session, np.array([False, True]), NOTHING)
    assert (found.status, found.reason) == (Status.OK, "")


def test_the_largest_bound_of_the_windows_is_said():
    session = reader([10, 20, 30, 40])
    session.samples.reason[:] = [f"about {size} {MORE_TOUCHED}" for size in ("91.9 MiB", "1.50 GiB", "980 KiB")] + [""]
    found = working_set(session, np.ones(4, bool), NOTHING)
    assert found.reason == f"about 1.50 GiB {MORE_TOUCHED}, in other windows less"
    session.samples.reason[3] = f"{MISSED}: its notes cannot be read"
    assert working_set(session, np.ones(4, bool), NOTHING).reason == session.samples.reason[3], "it has no bound"


@pytest.mark.parametrize(("released", "lower_bound"), [(2.0, True), (1.9, False)])
def test_reclaim_that_takes_touched_pages_makes_it_a_lower_bound(released, lower_bound):
    given = ReleasedSummary(released, released, 2, Status.APPROXIMATE, SEVERAL_PAGES, 1.0, released)
    found = working_set(reader([10, 20, 30]), np.ones(3, bool), given)
    assert (found.lower_bound, found.reason) == (lower_bound, TAKEN_BACK if lower_bound else "")
    exact = replace(given, status=Status.OK, reason="")
    assert not working_set(reader([10, 20, 30]), np.ones(3, bool), exact).lower_bound
    children = replace(given, reason=SHORT_CHILDREN)
    assert not working_set(reader([10, 20, 30]), np.ones(3, bool), children).lower_bound, "nothing took them back"
    unknown = working_set(reader([NAN], status=Status.FAILED, reason="it broke"), np.ones(1, bool), given)
    assert (unknown.lower_bound, unknown.reason) == (False, "it broke"), "nothing is a bound of what is not known"


@pytest.mark.parametrize(
    ("session", "why"),
    [
        (reader([NAN], able=Capability("wss", False, "no root", "use sudo")), "no root (use sudo)"),
        (reader([NAN], able=Capability("wss", False, "no root")), "no root"),
        (reader([NAN], status=Status.FAILED, reason="it broke"), "it broke"),
        (reader([NAN]), "no window was complete"),
    ],
)
def test_why_there_is_no_working_set(session, why):
    assert why_no_working_set(session) == why
    assert working_set(session, np.ones(1, bool), NOTHING).reason == why


def test_the_largest_window():
    lengths_s = np.array([0.1, 0.2, 0.3])
    assert largest_window(np.array([5, 9, NAN]), lengths_s) == LargestWindow(9, 0.2)
    assert largest_window(np.array([NAN] * 3), lengths_s) == LargestWindow(None, None)


def test_shared_memory_is_known_exactly_in_part_or_not():
    all_ = np.ones(3, bool)
    assert shared_memory(reader([10, 10, 10], [1, 2, 3]), all_).mean == 2
    part = shared_memory(reader([10, 10, 10], [NAN, 4, 6]), all_)
    assert (part.mean, part.status, part.reason) == (5, Status.APPROXIMATE, "not known in 1 window")
    none = shared_memory(reader([10, 10, 10], [NAN, 0, 0]), all_)
    assert (none.mean, none.reason) == (None, "page frames of all processes were seen in no window")


def readings(*values, lengths=None) -> Readings:
    ends = np.cumsum(np.ones(len(values), np.int64) if lengths is None else np.array(lengths))
    return Readings(np.array(values, float), ends, np.concatenate(([0], ends[:-1])), ends)


def test_resident_memory_is_weighted_by_the_time_that_each_reading_stands_for():
    read = readings(100, 200, lengths=(3, 1))
    assert resident_set(read, RSS).mean == 125
    assert resident_set(read, RSS).meaning == "of one process"
    assert resident_set(read, PSS).meaning.startswith("sum over the processes, shared")


def test_pss_of_a_tree_and_why_there_is_none():
    rows = [{"pss_reason": ""}, {"pss_reason": "denied"}]
    whole = proportional_set(resident(PSS, 10, 20), rows, readings(10, 20), 0)
    assert (whole.mean, whole.status, whole.reason) == (15, Status.OK, "")
    part = proportional_set(resident(PSS, 10, NAN), rows, readings(10, NAN), 1)
    assert (part.mean, part.status, part.reason) == (10, Status.APPROXIMATE, "not known in 1 window: denied")
    follows = replace(readings(10, 20), at_most_bytes=3 << 20)
    between = "between its readings it follows the RSS, and is at most 3.00 MiB"
    assert proportional_set(resident(PSS, 10, 20), rows, follows, 0).reason == between
    both = proportional_set(resident(PSS, 10, NAN), rows, follows, 1)
    assert both.reason == f"not known in 1 window: denied; {between}"
    none = proportional_set(resident(SUM_OF_RSS, 10, 20), rows, readings(10, 20), 0)
    assert (none.mean, none.status, none.reason) == (None, Status.UNSUPPORTED, "denied")
    assert proportional_set(resident(SUM_OF_RSS, 1), rows[:1], readings(1), 0).reason == "not recorded"
    assert "of one alone RSS says it" in proportional_set(resident(RSS, 1), rows, readings(1), 0).reason


def test_the_touched_part_or_why_there_is_none():
    found = touched_of_resident(np.array([10.0, 30]), resident(PSS, 100, 100))
    assert (found.of, found.fraction, found.resident_bytes, found.reason) == ("PSS", 0.2, 100, "")
    none = touched_of_resident(np.array([10.0]), resident(SUM_OF_RSS, 100))
    assert (none.fraction, none.reason) == (
        None,
        "the working set counts shared pages once, a sum of RSS several times",
    )
    none = touched_of_resident(np.array([NAN]), resident(RSS, 100))
    assert (none.fraction, none.reason) == (None, "working set and resident memory are known together in no window")


def test_released_memory_is_what_came_and_is_not_there():
    """Ten pages came, three more are there: seven were given back; then four of four; each in a quarter of a second."""

    def row(sample: int, faults: int, pages: int) -> dict:
        begin_ns = sample * S
        return {
            "sample": sample, "process": 1, "minor_faults": faults, "major_faults": 0, "faulted_in_bytes": None,
            "rss_bytes": pages * PAGE, "start_ns": begin_ns, "end_ns": begin_ns + S // 4,
        }  # fmt: skip

    rows = [row(0, 100, 50), row(1, 110, 53), row(2, 114, 53), row(3, 999, 53)]
    windows = reader([PAGE] * 4)
    of = np.array([True, True, True, False])
    found = released_memory(windows, rows, of)
    assert (found.mean, found.max, found.per_s, found.status) == (5.5 * PAGE, 7 * PAGE, 22 * PAGE, Status.OK)
    short = {**row(2, 5, 2), "process": 2, "start_ns": 2 * S + S // 5}  # there for a part of the window
    assert released_memory(windows, [*rows[:3], short], of).per_s == 22 * PAGE
    windows.samples.disturbed[:] = ["reclaim on this machine"] * 4
    assert released_memory(windows, rows, of).status == Status.OK, "others' pages, as far as is known"
    windows.samples.disturbed[:2] = [f"{LIMIT}; NUMA balancing on this machine"] * 2
    reclaimed = released_memory(windows, rows, of)
    assert (reclaimed.mean, reclaimed.status, reclaimed.reason) == (5.5 * PAGE, Status.APPROXIMATE, SEVERAL_PAGES)
    windows.samples.disturbed[:2] = ["", ""]
    windows.samples.gaps[3] = 5
    assert released_memory(windows, rows, of).status == Status.OK, "that window does not count"
    windows.samples.gaps[2] = 5
    assert released_memory(windows, rows, of).reason == SHORT_CHILDREN
    none = released_memory(windows, rows[:1], np.array([True, False, False, False]))
    assert (none.mean, none.per_s) == (None, None)
    assert none.reason == "faults and RSS of two windows in a row are known of no process"


@pytest.mark.parametrize(
    ("released", "wss", "shown"), [(1.0, 100.0, True), (0.99, 100.0, False), (None, 100.0, False), (1.0, None, False)]
)
def test_released_memory_is_spoken_of_from_a_hundredth_of_the_working_set(released, wss, shown):
    size = known(wss * MIB) if wss else UNKNOWN
    mean = None if released is None else released * MIB
    lines = released_lines(ReleasedSummary(mean, mean, 3 * MIB, Status.OK, "", 2.0 * MIB, mean), size, several=False)
    assert bool(lines) is shown
    if shown:
        assert lines[0].startswith(
            "given back   of a window up to 1.00 MiB in the mean, 3.00 MiB in one, 2.00 MiB/s: pages"
        )


def test_released_memory_that_is_reclaimed_has_no_bound():
    released = ReleasedSummary(2.0 * MIB, 2.0 * MIB, 3 * MIB, Status.APPROXIMATE, SEVERAL_PAGES, 2.0 * MIB, 2.0 * MIB)
    (line,) = released_lines(released, known(9 * MIB), several=False)
    assert line.startswith(
        "given back   of a window about 2.00 MiB in the mean, 3.00 MiB in one, 2.00 MiB/s (counted by page faults, "
        "each of which may bring several pages of a file): pages that"
    )


def test_copies_of_shared_pages_look_like_released_memory():
    released = ReleasedSummary(2.0 * MIB, 2.0 * MIB, 3 * MIB, Status.OK, "", 2.0 * MIB, 2.0 * MIB)
    (line,) = released_lines(released, known(100 * MIB), several=True)
    assert line.endswith("(copies of pages that processes shared count here, too)")


def test_groups_of_windows():
    groups = (
        Group(np.array([True, True, False]), (S // 10, S // 5), 0.75),
        Group(np.array([False, False, True]), (S, S), 0.25),
    )
    found = window_groups(groups, np.array([10, NAN, 50]), np.array([0.1, 0.2, 1.0]))
    assert found == (
        WindowGroup((0.1, 0.2), 2, 0.75, pytest.approx(0.15), (0.1, 0.2), 10),
        WindowGroup((1, 1), 1, 0.25, 1, (1, 1), 50),
    )


def test_windows_of_other_lengths_are_said():
    groups = [WindowGroup((0.1,), n, 0.5, 0.1, (0.1, 0.1), n * MIB) for n in range(1, 7)]
    clauses = [f"{n} of 100 ms (50.0 % of the time, median WSS {n}.00 MiB)" for n in range(1, 7)]
    start = f"figures of the working set are over one window{clauses[0][1:]}; windows of other lengths: "
    assert window_sentences(groups[:1]) == []
    assert window_sentences(groups[:2]) == [start + clauses[1]]
    several = f"figures of the working set are over the 2 windows{clauses[1][1:]}; windows of other lengths: "
    assert window_sentences(groups[1:3]) == [several + clauses[2]]
    assert window_sentences(groups[:4]) == [start + ", ".join(clauses[1:4])]
    assert window_sentences(groups) == [start + ", ".join(clauses[1:4]) + " and 2 more lengths"]


def test_windows_of_several_lengths_are_said_with_the_shortest_and_the_longest():
    budgeted = WindowGroup((20.0, 24.0), 21, 0.5, 2.7, (2.1, 4.0), MIB)
    (sentence,) = window_sentences([budgeted, WindowGroup((0.1, 0.1), 1, 0.5, 0.1, (0.1, 0.1), MIB)])
    assert "over the 21 windows of 2.1 s to 4.0 s, median 2.7 s (50.0 % of the time, median WSS 1.00 MiB)" in sentence


def test_the_line_of_the_working_set_names_a_larger_window_of_another_length():
    wss = WorkingSetSummary(MIB, MIB, 2 * MIB, Status.OK, "", lower_bound=False, estimated=False)
    none = WorkingSetSummary(None, None, None, Status.UNSUPPORTED, "why", lower_bound=False, estimated=False)
    plain = "working set  mean 1.00 MiB, median 1.00 MiB, max 2.00 MiB"
    assert working_set_line(wss, LargestWindow(2 * MIB, 1.0), 9.0, 1.0) == plain
    assert working_set_line(wss, LargestWindow(None, None), 9.0, 1.0) == plain
    assert working_set_line(wss, LargestWindow(3 * MIB, 2.0), 9.0, 1.0) == f"{plain}; 3.00 MiB in one of 2.0 s"
    assert working_set_line(none, LargestWindow(3 * MIB, 2.0), 9.0, 1.0) == "working set  n/a: why"
    short = f"{plain}, in windows of 1.0 s of its 3.0 s"
    assert working_set_line(wss, LargestWindow(2 * MIB, 1.0), 1.0, 2.0) == short
    assert working_set_line(wss, LargestWindow(3 * MIB, 2.0), 1.0, 2.0) == f"{short}; 3.00 MiB in one of 2.0 s"
    assert working_set_line(none, LargestWindow(None, None), 1.0, 2.0) == "working set  n/a: why"
    least = working_set_line(replace(wss, lower_bound=True), LargestWindow(None, None), 9.0, 1.0)
    assert least == plain.replace("working set  ", "working set  at least: ")


def test_shared_memory_has_a_line_in_a_tree():
    assert shared_lines(known(MIB), known(MIB), 1) == []
    assert shared_lines(known(MIB), UNKNOWN, 2) == []
    assert shared_lines(UNKNOWN, known(MIB), 2) == ["shared       n/a: why"]
    (line,) = shared_lines(known(MIB), known(MIB), 2)
    assert line == "shared       mean 1.00 MiB, median 1.00 MiB, max 1.00 MiB of the working set, counted once"


def test_resident_memory_has_one_line_or_two():
    clause = "mean 1.00 MiB, median 1.00 MiB, max 1.00 MiB"
    assert resident_lines(known(MIB), UNKNOWN, RSS) == [f"resident     {clause}"]
    several = "shared pages counted several times"
    assert resident_lines(known(MIB), UNKNOWN, SUM_OF_RSS) == [
        f"resident     sum of RSS: {clause}; {several} (PSS n/a: why)"
    ]
    assert resident_lines(known(MIB), known(MIB), PSS) == [
        f"resident     PSS: {clause}",
        f"sum of RSS   {clause}; {several}",
    ]
