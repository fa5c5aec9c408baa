"""The budget of a recording, at any moment of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from memtui.analysis.overhead_budget import budget_event
from memtui.core.samples import Event
from memtui.reports.comparison.load import conditions
from memtui.reports.report import build_report
from memtui.reports.source import Source
from memtui.session.budget_log import BudgetLog
from memtui.session.session import Session
from memtui.tui.presenters import Presenter
from tests.support.sessions import messages, write_session

PPM, SECOND = 10_000, 10**9


@pytest.fixture
def log(tmp_path):
    """Of a session that begins with 1 %, has 5 % from the third second on, and none from the fifth."""
    hello, *rest = messages(40)
    hello = replace(hello, options=replace(hello.options, max_overhead_ppm=PPM))
    begin_ns = hello.clock.monotonic_ns
    events = [
        Event(begin_ns + 3 * SECOND, "interval", budget_event(5 * PPM)),
        Event(begin_ns + 4 * SECOND, "interval", "the interval is 2 s from here on"),
        Event(begin_ns + 4 * SECOND, "mark", budget_event(9 * PPM)),
        Event(begin_ns + 5 * SECOND, "interval", budget_event(None)),
    ]
    path = write_session(tmp_path / "s.memtui", [hello, *events, *rest])
    with closing(Session(path)) as session:
        yield BudgetLog(session), begin_ns


def test_the_budget_of_a_moment_is_the_last_one_that_was_set(log):
    budgets, begin_ns = log
    shares = [budgets.at(begin_ns + seconds * SECOND).share for seconds in (0, 2, 3, 4, 5, 60)]
    assert shares == [0.01, 0.01, 0.05, 0.05, None, None]
    assert budgets.at(begin_ns + 4 * SECOND).since_ns == begin_ns + 3 * SECOND
    assert [budget.share for budget in budgets.all()] == [0.01, 0.05, None]


def test_what_budgets_allow_in_a_span_of_time(log):
    budgets, begin_ns = log
    assert budgets.mean_share(begin_ns, begin_ns + 3 * SECOND) == pytest.approx(0.01)
    assert budgets.mean_share(begin_ns + SECOND, begin_ns + 5 * SECOND) == pytest.approx(0.03)
    assert budgets.mean_share(begin_ns, begin_ns + 8 * SECOND) is None


def test_screen_report_and_comparison_have_the_budget_that_was_set(log, tmp_path):
    path = tmp_path / "s.memtui"
    with closing(Session(path)) as session:
        presenter = Presenter(session, follow=False)
        budgets = []
        for seconds in (1, 4, 7):
            presenter.playhead.seek(seconds * SECOND)
            budgets.append(presenter.view().header.budget)
    assert budgets == [0.01, 0.05, None]
    assert build_report(path).overhead.budget is None, "a part of it had none"
    with closing(Source(path)) as source:
        assert conditions(source)["budget"] == "1.0 %, then 5.0 %, then none"
