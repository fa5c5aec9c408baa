"""When windows are cut into parts, and how often a budget allows it."""

from itertools import pairwise

import pytest

from memtui.analysis.overhead_budget import Budget
from memtui.recording.sampler.burst_schedule import PROBE_NS, SHORTEST_NS, BurstSchedule

MS, S = 10**6, 10**9


def parts_of(schedule: BurstSchedule, start_ns: int, due_ns: int, pause_ns: int = 0) -> list[int]:
    """Return the lengths of the parts of a window that is cut."""
    now_ns, parts = start_ns, []
    while schedule.cut_ns is not None:
        parts.append(schedule.cut_ns - now_ns)
        now_ns = schedule.cut_ns + pause_ns
        schedule.cut(now_ns, due_ns)
    return [*parts, max(due_ns, schedule.end_ns) - now_ns]


def started(typical_ns: int = 0, share: float = 0.01, length_ns: int = 2 * S) -> tuple[BurstSchedule, int]:
    """Return a schedule in its first burst, and when that window began."""
    schedule, now_ns = BurstSchedule(), 0
    for _ in range(1000):
        schedule.start(now_ns, now_ns + length_ns, typical_ns, typical_ns, share)
        if schedule.cut_ns is not None:
            return schedule, now_ns
        now_ns += length_ns
    raise AssertionError("there was no burst")


def test_parts_are_a_third_of_the_rest_and_the_last_one_is_a_probe():
    schedule, start_ns = started()
    parts = parts_of(schedule, start_ns, start_ns + 2 * S)
    assert [round(part / MS) for part in parts] == [667, 444, 296, 198, 132, 88, 59, 39, 26, 17, 25, 10]
    assert (parts[-1], sum(parts)) == (PROBE_NS, 2 * S)


@pytest.mark.parametrize("pause_ns", [3 * MS, 30 * MS, 80 * MS])
def test_long_pauses_leave_fewer_parts_but_a_whole_probe(pause_ns):
    schedule, start_ns = started()
    parts = parts_of(schedule, start_ns, start_ns + 2 * S, pause_ns)
    assert min(parts) == parts[-1] == PROBE_NS
    assert len(parts) >= 4
    assert sum(parts) + pause_ns * (len(parts) - 1) <= 2 * S + 2 * (PROBE_NS + pause_ns)


def test_the_first_windows_are_whole_and_bursts_keep_a_quarter_of_the_budget():
    assert started()[1] == 4 * S  # the third window
    cost_ns, share = 5 * MS, 0.01
    schedule, now_ns = started(cost_ns, share)
    assert now_ns >= 12 * cost_ns / (0.25 * share)
    first_ns, extra_ns = now_ns, 40 * MS
    schedule.start(now_ns + 2 * S, now_ns + 4 * S, cost_ns + extra_ns, cost_ns, share)
    while schedule.cut_ns is None:
        now_ns += 2 * S
        schedule.start(now_ns, now_ns + 2 * S, cost_ns, cost_ns, share)
    assert extra_ns / (now_ns - first_ns) <= 0.25 * share
    assert extra_ns / (now_ns - first_ns - 4 * S) >= 0.2 * share


def test_bursts_without_a_probe_become_rare():
    schedule, now_ns, length_ns, bursts = BurstSchedule(), 0, 2 * S, []
    for n in range(1000):
        was_burst = schedule.cut_ns is not None
        now_ns = n * length_ns
        cost_ns = 15 * MS if was_burst else 5 * MS
        schedule.start(now_ns, now_ns + length_ns, cost_ns, 5 * MS, 0.01, probes=int(now_ns > 600 * S))
        if schedule.cut_ns is not None:
            bursts.append(now_ns // S)
    waits = [after - before for before, after in pairwise(bursts)]
    early = [wait for wait, after in zip(waits, bursts[1:], strict=True) if after < 400]
    assert len(early) >= 4
    assert all(b >= 1.6 * a for a, b in pairwise(early[1:]))
    assert waits[-1] <= 6  # as often as the budget allows, once there is a probe


def test_the_first_burst_waits_by_what_windows_cost_now():
    """The first windows of a recording are dear."""
    schedule, now_ns, length_ns = BurstSchedule(), 0, 2 * S
    for typical_ns in (500 * MS, 500 * MS, 500 * MS, 5 * MS):
        schedule.start(now_ns, now_ns + length_ns, typical_ns, typical_ns, 0.2)
        now_ns += length_ns
    assert schedule.cut_ns is not None


def test_there_are_none_without_a_budget_or_in_short_windows():
    for length_ns, share in ((2 * S, None), (SHORTEST_NS - 1, 0.01)):
        schedule = BurstSchedule()
        for n in range(100):
            schedule.start(n * length_ns, (n + 1) * length_ns, 0, 0, share)
            assert schedule.cut_ns is None
    schedule, _ = started()
    schedule.cancel()
    assert (schedule.cut_ns, schedule.end_ns) == (None, 0)


def test_bursts_keep_to_their_part_of_a_budget_also_where_windows_become_dearer():
    """A window that was cut is not an example of what a window costs."""
    budget, schedule = Budget(10_000, 3600 * S, 0, 0), BurstSchedule()
    now_ns = burst_ns = 0
    for number in range(400):
        window_ns = (MS + number * 39 * MS // 400) // 4
        interval_ns = budget.interval_ns(10 * S)
        schedule.start(now_ns, now_ns + interval_ns, budget.last_ns, budget.typical_ns, budget.share)
        parts = len(parts_of(schedule, now_ns, now_ns + interval_ns)) if schedule.cut_ns is not None else 1
        now_ns += interval_ns
        budget.record(now_ns, parts * window_ns, 0, parts=parts)
        burst_ns += (parts - 1) * window_ns
    assert interval_ns == 10 * S
    assert 0.001 <= burst_ns / now_ns <= 0.0027
