"""Rule ``cost``: memtui itself slows the program by more than its budget."""

from __future__ import annotations

import numpy as np

from memtui.analysis.target_loss import recent_loss
from memtui.core.units import about_percent, duration, span
from memtui.reports.verdict.recent import Check, Finding, Recent
from memtui.session.budget_log import BudgetLog

RULE = "cost"
LOOKED_S = 60.0
LEAST_S = 45.0
MOST_TIMES = 1.5  # the budget: an estimate of a loss is not more exact
PAYING_NS = 2_000_000_000  # of an interval after the last window
LEAST_OVER = 0.002  # of the time


def recording_cost(recent: Recent) -> Check:
    """Return what the program lost in the last minute by being watched, where that is above the budget."""
    subject, samples = "cost of watching", recent.source.samples
    if recent.span_s < LEAST_S:
        seen = f"{span(recent.span_s)} of windows so far: from {span(LEAST_S)} on"
        return Check(RULE, f"{subject}: {seen}", measured=False)
    budget = BudgetLog(recent.source).at(int(samples.end_ns[recent.windows.stop - 1]))
    first = recent.windows.start + int(np.searchsorted(recent.t_s, -LOOKED_S))
    first = min(max(first, int(np.searchsorted(samples.end_ns, budget.since_ns))), recent.windows.stop - 1)
    of = slice(first, recent.windows.stop)
    looked_s = min(LOOKED_S, (recent.end_ns - int(samples.start_ns[first])) / 1e9)
    intervals_ns = samples.intervals_ns(of)
    next_ns = samples.next_ns[of][-1]
    next_ns = float(intervals_ns[-1] if np.isnan(next_ns) else next_ns)
    loss = recent_loss(samples.lost_ns[of], samples.end_ns[of], next_ns)
    if loss is None:
        return Check(RULE, f"{subject}: not known", measured=False)
    most = budget.share
    what = f"{subject}: {about_percent(loss)} of its time"
    if most is None:
        return Check(RULE, f"{what}, without a budget")
    if loss <= max(MOST_TIMES * most, most + LEAST_OVER):
        paying = f", {duration(next_ns / 1e9)} that pay for the last window included" if next_ns > PAYING_NS else ""
        return Check(RULE, f"{what} in the last {span(looked_s)}{paying}, with a budget of {most * 100:g} %")
    start = f"memtui slows it by {about_percent(loss)}, more than its budget of {most * 100:g} %"
    apart_s = float(np.mean(intervals_ns)) / 1e9
    needed = duration(apart_s * loss / most).replace(" ", "")
    return Check(
        RULE,
        what,
        finding=Finding(
            f"{start}, in the last {span(looked_s)}.",
            f"{start}.",
            f"Choose a longer interval (key i, or --interval {needed}), or --pages sampled.",
            (f"windows in that time: {of.stop - of.start}, {duration(apart_s)} apart",),
        ),
    )
