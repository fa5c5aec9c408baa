"""The budget: which interval keeps the cost of watching below a share of the time, in numbers and on a real process."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.overhead_budget import AIM, RECENT, Budget, allowed, budget_event, budget_of_event, seconds
from memtui.analysis.target_loss import OWN_CPU
from memtui.core.argtypes import overhead
from memtui.core.samples import ProcessWindow, tree_paused_ns
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from memtui.session.session import Session
from memtui.tui.presenters.presenter import Presenter
from tests.support.budgets import S, budgeted
from tests.support.cli import memtui
from tests.support.live import TRACKER
from tests.support.sessions import MS, write_session
from tests.support.streams import finish, order_for, ordered

pytestmark = pytest.mark.real_clock

HOUR = 3600 * S
SHARES = st.integers(1_000, 200_000)  # 0.1 to 20 %
COSTS = st.integers(MS // 10, 3 * S)


class Watching:
    """A clock, a budget, and windows of which each costs what it is told."""

    def __init__(self, ppm: int, asked_ns: int = 200 * MS, longest_ns: int = HOUR, standing_ppm: int = 0) -> None:
        self.budget, self.asked_ns = Budget(ppm, longest_ns, 0, 0), asked_ns
        self.now_ns = self.cpu_ns = self.spent_ns = 0
        self.standing_ppm = standing_ppm  # CPU that goes on between windows
        self.intervals: list[int] = []

    def window(self, paused_ns: int, cpu_ns: int = 0) -> None:
        interval_ns = self.budget.interval_ns(self.asked_ns)
        self.intervals.append(interval_ns)
        elapsed_ns = interval_ns + paused_ns
        cpu_ns += elapsed_ns * self.standing_ppm // 10**6
        self.now_ns, self.cpu_ns = self.now_ns + elapsed_ns, self.cpu_ns + cpu_ns
        self.spent_ns += max(paused_ns, cpu_ns / OWN_CPU)  # of a window; below its share is each by itself
        self.budget.record(self.now_ns, paused_ns, self.cpu_ns)

    @property
    def share_ppm(self) -> float:
        """What was spent of all time so far."""
        return 1e6 * self.spent_ns / self.now_ns


@given(SHARES, COSTS, COSTS, st.integers(0, 100))
def test_a_constant_cost_stays_below_the_budget_and_uses_it(ppm, held, cpu, standing_per_cent):
    watching = Watching(ppm, asked_ns=MS, longest_ns=10**6 * S, standing_ppm=ppm * standing_per_cent // 200)
    for _ in range(80):
        watching.window(held, cpu)
    before = watching.now_ns, watching.spent_ns
    for _ in range(20):
        watching.window(held, cpu)
    settled_ppm = 1e6 * (watching.spent_ns - before[1]) / (watching.now_ns - before[0])
    assert settled_ppm <= ppm * 1.001
    assert watching.share_ppm <= ppm * 1.01  # and the beginning is paid back
    assert len(set(watching.intervals[-20:])) <= 2  # it does not swing
    if watching.intervals[-1] > 2 * MS:
        paused = held / watching.intervals[-1]  # the pause is part of a window's time, and not of the interval
        assert settled_ppm >= AIM * ppm * 0.85 / (1 + paused)


@given(SHARES, st.lists(COSTS, min_size=1, max_size=60), st.integers(MS, 10 * S), st.integers(MS, HOUR))
def test_the_interval_keeps_its_bounds(ppm, costs, asked, longest):
    watching = Watching(ppm, asked, longest)
    for cost in costs:
        watching.window(cost)
    assert all(asked <= interval <= max(asked, longest) for interval in watching.intervals)


@given(SHARES, st.integers(10 * MS, 3 * S), st.integers(10, 1000))
def test_a_dear_window_is_answered_at_once_and_forgotten_slowly(ppm, cost, times):
    watching = Watching(ppm, asked_ns=MS, longest_ns=10**9 * S)
    for _ in range(60):
        watching.window(cost)
    usual = watching.intervals[-1]
    watching.window(times * cost)
    watching.window(cost)
    assert watching.intervals[-1] >= 0.2 * times * cost / ppm * 1e6  # of what would pay for it whole
    watching.window(cost)
    assert watching.intervals[-1] > usual * 1.5  # not back in one step
    for _ in range(60):
        watching.window(cost)
    assert watching.intervals[-1] <= usual * 1.2
    assert watching.share_ppm <= ppm * 1.01


@given(SHARES, COSTS, st.integers(2, 50))
def test_a_cost_that_stays_higher_is_paid_for(ppm, cost, times):
    watching = Watching(ppm, asked_ns=MS, longest_ns=10**9 * S)
    for _ in range(30):
        watching.window(cost)
    for _ in range(40):
        watching.window(times * cost)
    assert watching.share_ppm <= ppm * 1.01


def test_a_budget_that_is_never_reached_leaves_the_interval_alone():
    watching = Watching(10_000)
    for _ in range(20):
        watching.window(MS)
    assert set(watching.intervals) == {200 * MS}
    assert watching.budget.warning() == ""


def test_what_was_not_spent_is_no_reason_for_a_burst():
    watching = Watching(10_000, asked_ns=MS)
    for _ in range(20):
        watching.window(100 * MS)
    usual = watching.intervals[-1]
    watching.now_ns += HOUR  # nothing was sampled
    for _ in range(RECENT):
        watching.window(100 * MS)
    assert watching.intervals[-1] >= usual


def test_a_budget_that_cannot_be_met_says_once_which_interval_would_meet_it():
    watching = Watching(1_000, longest_ns=10 * S)
    watching.window(500 * MS)
    assert watching.budget.warning() == (
        "the budget of 0.1 % cannot be met: a window costs 500 ms, for which an interval of 500 s would do; "
        "the longest there can be is 10 s"
    )
    watching.window(500 * MS)
    assert watching.budget.warning() == ""
    assert watching.intervals[-1] == 10 * S


@pytest.mark.parametrize(
    ("lost_ns", "cpu_ns", "what"),
    [
        (2 * S, S, "one window costs this program 2.0 s, so a budget of 1 %"),
        (S, 6 * S, "memtui takes 6.0 s of CPU time for a window, so 3 % of a CPU (a budget of 1 %)"),
        (2 * S, 6 * S, "one window costs this program 2.0 s, so a budget of 1 %"),
    ],
)
def test_what_a_costly_first_window_means_is_said_before_the_second_by_the_larger_cost(lost_ns, cpu_ns, what):
    watching = Watching(10_000)
    assert watching.budget.warning() == ""
    watching.window(lost_ns, cpu_ns)
    assert watching.budget.warning() == (
        f"{what} allows one in 200 s: i or --max-overhead for more and dearer ones, "
        "--pages sampled for a part of the memory at a time"
    )
    watching.window(lost_ns, cpu_ns)
    assert watching.budget.warning() == "", "it is said once"


def test_the_larger_cost_is_that_of_the_window_that_stands_for_all():
    watching = Watching(10_000)
    for lost_ns, cpu_ns in ((0, 0), (5 * S, 0), (0, 6 * S), (0, 6 * S)):
        watching.window(lost_ns, cpu_ns)
    assert watching.budget.warning().startswith("memtui takes 6.0 s of CPU time for a window, ")


@pytest.mark.parametrize("cost_ns", [MS, 600 * MS])  # of 1 %: one in 0.1 s, and one in the minute that is seldom
def test_a_cheap_window_is_not_worth_a_warning(cost_ns):
    watching = Watching(10_000)
    for _ in range(3):
        watching.window(cost_ns)
        assert watching.budget.warning() == ""


def test_where_the_second_window_comes_soon_it_is_the_one_that_is_told():
    """Of 10 s at the longest: the first one's cost would take 20 s, which it may not take again."""
    watching = Watching(10_000, longest_ns=10 * S)
    watching.window(200 * MS)
    assert watching.budget.warning() == ""
    watching.window(300 * MS)
    assert watching.budget.warning() == (
        "the budget of 1 % cannot be met: a window costs 300 ms, for which an interval of 30 s would do; "
        "the longest there can be is 10 s"
    )
    cheaper = Watching(10_000, longest_ns=10 * S)
    for cost_ns in (200 * MS, 50 * MS):
        cheaper.window(cost_ns)
        assert cheaper.budget.warning() == ""


def test_a_second_window_comes_soon_and_the_first_is_no_example():
    watching = Watching(10_000)
    watching.window(2 * S)
    watching.window(100 * MS)
    assert watching.intervals[-1] == 40 * S  # a twentieth of the time, at the worst
    watching = Watching(10_000, longest_ns=10**4 * S)
    watching.window(200 * MS)
    watching.window(100 * MS)
    assert watching.intervals[-1] == 5 * S
    for _ in range(60):
        watching.window(100 * MS)
    assert watching.intervals[-1] <= 12 * S
    assert watching.share_ppm <= 10_000 * 1.01


def test_what_one_window_costs_is_said_as_it_is_rounded():
    watching = Watching(10_000)
    watching.window(1_050 * MS)
    assert watching.budget.warning().startswith(
        "one window costs this program 1.1 s, so a budget of 1 % allows one in 110 s"
    )


@pytest.mark.parametrize(("longest_ns", "comes_soon"), [(30 * S, True), (12 * S + 1, True), (12 * S, False)])
def test_a_second_window_that_would_come_no_sooner_than_the_longest_interval_is_not_waited_for(longest_ns, comes_soon):
    """Of 600 ms, the first window allows one in the minute that is seldom; the second one comes after 12 s."""
    budget = Budget(10_000, longest_ns, 0, 0)
    budget.record(S, 600 * MS, 0)
    assert budget.needed_ns == 60 * S
    assert (budget.warning() == "") == comes_soon


def test_the_longest_interval_can_be_what_a_budget_needs():
    budget = Budget(10_000, 120 * S, 0, 0)
    for number in (1, 2):
        budget.record(number * 1000 * S, 1_200 * MS, 0)
    assert budget.warning().startswith("one window costs this program 1.2 s, so a budget of 1 % allows one in 120 s: ")


def exact(*windows: tuple[int, int]) -> Budget:
    """A budget of all the time, in which nanoseconds count; windows are (elapsed, time lost)."""
    budget, now_ns = Budget(10**6, HOUR, 0, 0), 0
    for elapsed_ns, lost_ns in windows:
        now_ns += elapsed_ns
        budget.record(now_ns, lost_ns, 0)
    return budget


def test_an_interval_pays_for_a_window_and_a_quarter_of_the_debt_to_the_nanosecond():
    assert exact().interval_ns(0) == 1
    assert exact((0, 5)).interval_ns(0) == 7  # 5 + 5 / 4, of nine tenths: nothing was earned in no time
    assert exact((10, 0), (11, 15)).interval_ns(0) == 18  # 15 + 4 / 4: the 10 before were not saved up
    assert exact((0, 5)).interval_ns(8) == 8
    assert exact((0, 480)).interval_ns(0) == 670
    assert exact((0, 484)).interval_ns(0) == 680


def test_what_cost_nothing_or_less_is_no_cost():
    budget = Budget(10**6, HOUR, 0, 100)
    budget.record(10, 0, 100)
    assert (budget.last_ns, budget.typical_ns) == (0, 0)
    budget.record(20, -3, 90)
    assert (budget.last_ns, budget.typical_ns) == (0, 0)


def test_another_share_is_kept_from_now_on_without_the_debt_of_the_old_one():
    budget = exact((0, 5))
    budget.set_share(10**6)
    assert budget.interval_ns(0) == 6
    budget.set_share(500_000)
    assert (budget.share, budget.needed_ns, budget.interval_ns(0)) == (0.5, 10, 12)
    watching = Watching(1_000, longest_ns=10 * S)
    watching.window(500 * MS)
    assert watching.budget.warning().startswith("the budget of 0.1 % cannot be met")
    watching.budget.set_share(2_000)
    assert watching.budget.warning().startswith("the budget of 0.2 % cannot be met")


def test_a_session_has_a_budget_where_its_share_is_above_nothing():
    assert [allowed(ppm) for ppm in (None, -1, 0, 1, 10**6)] == [None, None, None, 1e-6, 1]


def test_intervals_are_said_so_that_they_can_be_asked_for():
    assert [seconds(value) for value in (7.41e9, 0.1234e9, 123e9, 99.9e9)] == ["7.5 s", "0.13 s", "130 s", "100 s"]


@pytest.mark.parametrize(
    ("text", "ppm"), [("1%", 10_000), ("1 %", 10_000), ("0.5", 5_000), ("0.01", 100), ("100", 10**6)]
)
def test_what_may_be_asked_for(text, ppm):
    assert overhead(text) == ppm


@pytest.mark.parametrize("text", ["0", "-1%", "101", "nan", "inf", "", "%", "much", "1%%", "0.001"])
def test_bad_budgets_are_one_line(text):
    done = memtui("record", "1", f"--max-overhead={text}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--max-overhead" in done.stderr


def test_time_held_is_that_of_any_process():
    def held(*parts: int | None, together: bool = False) -> int | None:
        return tree_paused_ns(
            [ProcessWindow(n, 0, 1, paused_ns=part) for n, part in enumerate(parts)], together=together
        )

    assert held(3, 4) == 7
    assert held(3, 4, together=True) == 4
    assert held(3, None) is None
    assert held() is None


def test_asked_true_and_budgeted_are_told(tmp_path):
    path = write_session(tmp_path / "s.memtui", budgeted(50))
    report = build_report(path)
    assert report.interval_s == 0.2
    assert report.intervals_s == (0.2, 0.2)
    assert report.budgeted_s == (0.2, 10.0)
    assert report.true_interval_s == 10.0
    budget = report.overhead.budget
    assert budget.met is True
    assert budget.fraction == report.overhead.paused_fraction + report.overhead.self_cpu_fraction
    text = format_report(report)
    assert "asked 200 ms, budgeted 200 ms to 10.0 s, true 10.0 s" in text
    assert "within the budget of 1 % of its time and 3 % of a CPU" in text
    assert memtui("export", path, "--to", "html", "-o", tmp_path).returncode == 0
    page = next(tmp_path.glob("*.html")).read_text()
    assert "200 ms asked, budgeted 200 ms to 10.0 s, 10.0 s true" in page
    assert "window of 0.2 s to 10 s" in page
    reader = Session(path)
    assert not reader.events(0, 1 << 62) or all(e.kind != "interval" for e in reader.events(0, 1 << 62))
    presenter = Presenter(reader, follow=False)
    header = presenter.view().header
    assert (header.requested_s, header.budgeted_s) == (0.2, 10.0)
    assert header.true_s == pytest.approx(10, rel=0.01)
    assert header.budget == 0.01
    assert header.spent is not None
    assert 0.005 < header.spent < 0.007
    assert presenter.view().reuse.interval == "0.2-10 s"  # what a touch is of, not what was asked for
    reader.close()


def test_a_budget_that_was_not_kept_names_the_interval(tmp_path):
    path = write_session(tmp_path / "s.memtui", budgeted(300))
    budget = build_report(path).overhead.budget
    assert budget.met is False
    assert budget.needed_interval_s == pytest.approx(30, rel=0.2)
    over = r"over the budget of 1 % of its time and 3 % of a CPU \(\S+ times\): an interval of 3"
    assert re.search(over, format_report(build_report(path)))
    reader = Session(path)
    warnings = Presenter(reader, follow=False).view().header.warnings
    reader.close()
    assert warnings[0].startswith("over the budget: an interval of 31 s")


def test_an_interval_that_became_long_enough_is_not_named_as_the_way_to_keep_a_budget(tmp_path):
    path = write_session(tmp_path / "s.memtui", budgeted(300, next_s=40))
    budget = build_report(path).overhead.budget
    assert budget.met is False
    assert budget.needed_interval_s is None
    assert "times), as the intervals became long enough only later" in format_report(build_report(path))


HOLD = """
import mmap
memory = mmap.mmap(-1, 64 << 20)
memory[::4096] = b"1" * len(memory[::4096])
print("ready", flush=True)
while True:
    memory[: 4096 * 64 : 4096] = b"2" * 64
"""


def test_the_interval_of_a_real_recording_is_stretched_to_its_budget(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE) as target:
        try:
            assert target.stdout is not None
            target.stdout.readline()
            path = tmp_path / "s.memtui"
            argv = ("--interval", 0.03, "--max-overhead", "5%", "--duration", 8, "-o", path, *TRACKER)
            done = memtui("record", target.pid, *argv)
        finally:
            target.kill()
    assert done.returncode == 0, done.stderr
    assert "budget of 5 %" in done.stderr
    samples = Session(path).samples
    assert (samples.asked_ns == 30 * MS).all()
    assert np.median(samples.next_ns[1:]) > 60 * MS, "even here a window costs more than 3 ms"
    assert len(samples) < 8 * S / (60 * MS)
    if len(samples) < 6:
        pytest.skip(f"the machine is too busy: {len(samples)} windows in 8 s are too few to say more")
    budget = json.loads(memtui("report", path, "--json").stdout)["overhead"]["budget"]
    assert budget["fraction"] <= 0.05 * 1.4  # what the first windows cost is not wholly paid back yet


def test_the_recorders_words_bring_no_window_before_its_time():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as target:
        try:
            order = order_for(target.pid, tracker="rss", interval_ns=S, duration_ns=5 * S // 2)
            result = finish(ordered(order, b"".join(b"recorder %d\n" % n for n in range(1000))))
        finally:
            target.kill()
    assert result.returncode == 0
    assert 2 <= len(result.windows) <= 3


@given(st.one_of(st.none(), st.integers(1, 1_000_000)))
def test_an_event_says_which_budget_it_is(ppm):
    assert budget_of_event(budget_event(ppm)) == pytest.approx(ppm or 0, rel=1e-5)


@pytest.mark.parametrize("share", ["x", "inf %", "", "none "])
def test_other_events_are_of_no_budget(share):
    assert budget_of_event(f"the budget is {share} from here on") is None
    assert budget_of_event("the interval is 2 s from here on") is None


def test_an_event_is_what_it_says():
    assert budget_event(15_000) == "the budget is 1.5 % from here on"
    assert budget_event(None) == "the budget is none from here on"
