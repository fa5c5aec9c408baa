"""What the header says of the cost of watching."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.target_loss import last_part
from memtui.core.samples import End
from memtui.tui.presenters import Presenter
from memtui.tui.presenters.overhead import (
    COST_WINDOW_NS,
    OwnCost,
    lost_share,
    pause_warning,
    recording_cpu_ns,
    with_budget,
)
from memtui.widgets.views.memory import HeaderView, State
from tests.support.screen_driver import held
from tests.support.screen_fakes import STEP_NS, FakeSession

LAST = 99


@pytest.fixture
def samples():
    return FakeSession(LAST + 1).samples


def test_a_pause_that_is_short_enough_is_no_warning():
    session = held(live=False)
    session.samples.paused_ns[:] = 20_000_000  # 9.5 %
    assert Presenter(session, follow=False).view().header.warnings == ()


def test_a_long_pause_is_said_with_its_remedy_while_there_is_one(samples):
    samples.paused_ns[:] = STEP_NS // 4
    assert pause_warning(samples, LAST, recording=True) == (
        "target stopped 25 % of the time: a longer interval disturbs less (i)",
        "stopped 25 %: raise interval (i)",
    )
    assert pause_warning(samples, LAST, recording=False) == ("target stopped 25 % of the time", "stopped 25 %")
    assert pause_warning(samples, 0, recording=True) == ()  # a window alone has no time between windows


def test_the_loss_is_that_of_the_last_seconds_and_unknown_where_a_window_is(samples):
    assert lost_share(samples, LAST) == pytest.approx(4 / 210, rel=0.02)
    samples.lost_ns[0] = np.nan  # long ago
    assert lost_share(samples, LAST) is not None
    samples.lost_ns[LAST] = np.nan
    assert lost_share(samples, LAST) is None


def test_at_the_end_of_a_session_the_loss_is_that_of_all_of_its_time(samples):
    """As in its report. The interval after its last window never came."""
    at_end = End(int(samples.end_ns[LAST]), "stopped")
    assert lost_share(samples, LAST, at_end) == pytest.approx(4 / 210, rel=0.1)
    late = End(int(samples.end_ns[LAST]) + 10**9, "stopped")
    after = last_part(samples, late)
    lost_ns = float(samples.lost_ns[: LAST + 1].sum()) + after.lost_ns
    assert lost_share(samples, LAST, late) == pytest.approx(lost_ns / (late.t_ns - int(samples.start_ns[0])))
    assert lost_share(samples, LAST - 1, late) == lost_share(samples, LAST - 1)


def test_cpu_time_is_that_of_sampler_and_recorder(samples):
    assert recording_cpu_ns(samples, 10, 20) == 10 * 2_100_000
    cost = OwnCost()
    assert cost.cores(samples, 0, live=True) is None
    assert cost.cores(samples, LAST, live=False) == pytest.approx(2.1 / 210)
    samples.end_ns[LAST] += 15 * 10**9  # one window takes longer than the time that is looked at
    assert cost.cores(samples, LAST, live=False) == pytest.approx(2.1 / 15210)
    samples.end_ns[LAST] -= 15 * 10**9
    assert cost.cores(samples, LAST, live=True) == pytest.approx(2.1 / 210)  # so soon it is still opening the session


def test_the_cpu_time_of_the_viewer_counts_while_it_watches_live(samples, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "process_time", lambda: clock[0] / 10)
    cost = OwnCost()
    cores = []
    for now in (104.0, 105.0, 107.0, 130.0):
        clock[0] = now
        cores.append(cost.cores(samples, LAST, live=True))
    assert cores == pytest.approx([0.01, 0.01, 0.11, 0.01])  # of one reading nothing is known, nor of one long ago


def test_a_budget_that_is_not_kept_names_the_interval_that_would_keep_it(samples):
    view = HeaderView(state=State.PAUSED)
    within = with_budget(view, samples, LAST, 0.05)
    assert within.warnings == ()
    assert within.spent == pytest.approx(4 / 210)
    assert within.budgeted_s is None
    samples.budgeted_ns[:] = samples.next_ns[:] = STEP_NS
    broken = with_budget(view, samples, LAST, 0.01)
    assert broken.budgeted_s == STEP_NS / 1e9
    assert broken.warnings == ("over the budget: an interval of 0.4 s would meet it", "over budget: needs 0.4 s")
    samples.next_ns[:] = 2 * STEP_NS  # the next interval pays for it
    assert with_budget(view, samples, LAST, 0.01).warnings == ()
    live = with_budget(HeaderView(state=State.LIVE, notice="asleep"), samples, LAST, 0.01)
    windows = LAST - int(np.searchsorted(samples.end_ns, samples.end_ns[LAST] - COST_WINDOW_NS))
    assert live.spent == pytest.approx(within.spent * windows / (windows + 2)), "it pays for the last one, too"
    first = with_budget(view, samples, 0, 0.01)
    assert (first.spent, first.warnings) == (None, ())


def test_how_long_the_next_window_takes_is_said_of_a_live_recording(samples):
    samples.end_ns[LAST] = time.monotonic_ns()
    samples.next_ns[LAST] = 8_000_000_000
    live = HeaderView(state=State.LIVE)
    waiting = with_budget(replace(live, origin_ns=int(samples.end_ns[LAST]) - 20 * 10**9), samples, LAST, 0.01)
    assert waiting.wait_s in (7, 8)
    assert waiting.position_s == pytest.approx(20, abs=1), "its clock goes on between windows"
    samples.next_ns[LAST] = 2_500_000_000
    samples.end_ns[LAST] -= 3 * 10**9
    late = with_budget(replace(live, origin_ns=int(samples.end_ns[LAST]) - 20 * 10**9), samples, LAST, 0.01)
    assert late.wait_s is None
    assert late.position_s == pytest.approx(23, abs=1), "and does not go back where the window is due"
    assert with_budget(replace(live, state=State.PAUSED), samples, LAST, 0.01).wait_s is None
    assert with_budget(replace(live, notice="the sampler is gone"), samples, LAST, 0.01).wait_s is None
