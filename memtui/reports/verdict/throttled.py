"""Rule ``throttled``: the kernel holds the program up, because its cgroup is above ``memory.high``."""

from __future__ import annotations

from memtui.analysis.limit_forecast import whose_limit
from memtui.core.units import size, span
from memtui.reports.verdict.recent import Check, Finding, Recent
from memtui.reports.verdict.thrashing import last_minute, stall_share

RULE = "throttled"
LEAST_S = 20.0
EVENTS_PER_S = 1.0  # each holds a task up until it gave pages back, which takes up to 2 s
NEAR_SHARE = 0.9  # of the boundary: what is in use again after that


def throttled(recent: Recent) -> Check:
    """Return how often a second tasks were held up in the last minute for being above ``memory.high``."""
    subject = "memory.high of its cgroup"
    counts = [(limit.t_ns, limit.high_cgroup, limit) for limit in recent.limits if limit.high_events is not None]
    if not counts:
        return Check(RULE, f"{subject}: none is set", measured=False, applies=False)
    counted = last_minute(counts)
    first, last = counted[0][2], counted[-1][2]
    looked_s = (last.t_ns - first.t_ns) / 1e9
    used_bytes, high_bytes = last.high_used_bytes or 0, last.high_bytes or 0
    whose = whose_limit(last.high_cgroup)
    what = f"{subject}: {size(used_bytes)} of the {size(high_bytes)} of {whose} in use"
    if looked_s < LEAST_S:
        return Check(RULE, f"{what}, seen for {span(looked_s)}: from {span(LEAST_S)} on", measured=False)
    often_per_s = max((last.high_events or 0) - (first.high_events or 0), 0) / looked_s
    what = f"{what}, above it {often_per_s:.1f} times a second in the last {span(looked_s)}"
    if often_per_s < EVENTS_PER_S or used_bytes < NEAR_SHARE * high_bytes:
        return Check(RULE, what)
    start = f"It is held up {often_per_s:,.0f} times a second, because {whose} is above its memory.high"
    _, waits = stall_share(recent)
    return Check(
        RULE,
        what,
        finding=Finding(
            f"{start}: {size(used_bytes)} in use of {size(high_bytes)}, in the last {span(looked_s)}.",
            f"{start}.",
            f"Raise memory.high of {whose} (systemd: MemoryHigh=), or have the program need less: nothing is killed "
            "there, but each time a task has to give memory back before it goes on.",
            (f"events above memory.high: {often_per_s:,.1f} a second", *([waits] if waits else [])),
        ),
    )
