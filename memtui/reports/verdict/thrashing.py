"""Rule ``thrashing``: the program waits for pages that have to be read again, because memory is full."""

from __future__ import annotations

from collections import defaultdict
from typing import TypeVar

import numpy as np

from memtui.analysis.limit_forecast import rate, whose_limit
from memtui.core.fast_numpy import median
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.units import percent, size, span
from memtui.reports.memory_limit import LimitSummary
from memtui.reports.verdict.recent import Check, Finding, Floats, Recent

RULE = "thrashing"
LOOKED_S = 60.0
LEAST_S, LEAST_RATES = 30.0, 3  # rates: between the ends of windows
FAULTS_PER_S = 50.0  # a disk of 100 us a page is waited for in 0.5 % of the time, one of 10 ms in half of it
LEAST_SHARE = 0.75  # of the windows in which there are that many
AGAIN_PER_S = 2560.0  # pages that were dropped and are read again: 10 MiB/s
WAITING_SHARE = 0.1  # of the time: in which a task waits for memory
FULL_SHARE = 0.95  # of the limit: in use and page cache together


def thrashing(recent: Recent) -> Check:
    """Return how often a second pages are waited for while the limit of memory is reached; a wait may read several."""
    subject = "waiting for pages from disk or swap"
    rates = major_fault_rates(recent)
    if rates is None:
        enough = f"from {1 + LEAST_RATES} windows and {span(LEAST_S)} on"
        seen = f"{recent.windows.stop - recent.windows.start} windows in {span(recent.span_s)}"
        return Check(RULE, f"{subject}: {seen}: {enough}", measured=False)
    rate_per_s = median(rates)
    what = f"{subject}: {rate_per_s:.0f} times a second in the median of the last {span(looked_at_s(recent))}"
    waited, waits = stall_share(recent)
    what += f"; {waits}" if waits else ""
    limit, again_per_s = recent.limit, _refaults_per_s(recent)
    # A fault may read far ahead: many pages come again for few faults.
    much_again = again_per_s is not None and again_per_s >= AGAIN_PER_S and waited >= WAITING_SHARE
    often = bool((rates >= FAULTS_PER_S).mean() >= LEAST_SHARE)
    if not often and not (much_again and limit is not None and is_full(limit)):
        return Check(RULE, what)
    if limit is None:
        return Check(RULE, f"{what}; the limit of memory is not known", measured=False)
    if not is_full(limit):
        return Check(RULE, f"{what}, with memory left: they are read for the first time, or come back from swap")
    if again_per_s is not None and again_per_s < FAULTS_PER_S:
        return Check(RULE, f"{what}; {_again(again_per_s)}: they are read for the first time")
    start = f"It waits {rate_per_s:,.0f} times a second for pages from disk or swap"
    if not often and again_per_s is not None:
        start = f"It reads {rate(again_per_s * PAGE_BYTES)} again that had been dropped"
    return Check(
        RULE,
        what,
        finding=Finding(
            f"{start}, because {whose_limit(limit.cgroup)} is full: {size(limit.needed_bytes)} in use and "
            f"{size(limit.reclaimable_bytes)} page cache of {size(limit.limit_bytes)}.",
            f"{start}: memory is full.",
            "Give it more memory, or read the data in the order in which it lies, in smaller pieces.",
            (
                f"major faults a second, by window: {rates.min():.0f} to {rates.max():.0f}",
                f"page cache: {size(limit.reclaimable_bytes)}; what can be used still: {size(limit.left_bytes)}",
                *([_again(again_per_s)] if again_per_s is not None else []),
                *([waits] if waits else []),
            ),
        ),
    )


def is_full(limit: LimitSummary) -> bool:
    """Return whether what is in use and page cache together reach a limit of memory."""
    return limit.needed_bytes + limit.reclaimable_bytes >= FULL_SHARE * limit.limit_bytes


def _again(pages_per_s: float) -> str:
    return f"pages read again that had been dropped: {pages_per_s:,.0f} a second"


def _refaults_per_s(recent: Recent) -> float | None:
    """Return how many pages a second were read in the last minute that had been in memory; None: not counted."""
    counts = [(limit.t_ns, limit.cgroup, limit.refaults) for limit in recent.limits if limit.refaults is not None]
    counted = last_minute(counts)
    if len(counted) < 2:
        return None
    (first_ns, _, before), (last_ns, _, after) = counted[0], counted[-1]
    return max(after - before, 0) / (last_ns - first_ns) * 1e9


_Count = TypeVar("_Count")


def last_minute(counts: list[tuple[int, str, _Count]]) -> list[tuple[int, str, _Count]]:
    """Return those of (time, cgroup, count) that are of the last one's cgroup, and of the minute before it."""
    return [each for each in counts if each[1] == counts[-1][1] and each[0] >= counts[-1][0] - LOOKED_S * 1e9]


def stall_share(recent: Recent) -> tuple[float, str]:
    """Return for which share of the time tasks waited for memory (pressure stall information), and that in words.

    (0, "") where that is not known.
    """
    stalls = [limit for limit in recent.limits if limit.some_stall_ns is not None]
    counted = last_minute([(limit.t_ns, limit.stall_cgroup, limit) for limit in stalls])
    if len(counted) < 2:
        return 0.0, ""
    first, last = counted[0][2], counted[-1][2]
    shares = [
        max(after - before, 0) / (last.t_ns - first.t_ns)
        for before, after in ((first.some_stall_ns, last.some_stall_ns), (first.full_stall_ns, last.full_stall_ns))
        if before is not None and after is not None
    ]
    whose = whose_limit(last.stall_cgroup)
    all_tasks = f", and all of them at once {percent(shares[1])}" if len(shares) > 1 else ""
    return shares[0], f"tasks of {whose} waited for memory {percent(shares[0])} of the time{all_tasks}"


def looked_at_s(recent: Recent) -> float:
    """Return the seconds in which major faults are counted: a minute, or that of enough windows where it is longer."""
    windows_s = -float(recent.t_s[max(len(recent.t_s) - 1 - LEAST_RATES, 0)])
    return min(max(LOOKED_S, windows_s), recent.span_s)


def major_fault_rates(recent: Recent) -> Floats | None:
    """Return major faults a second of the tree, window by window: f8[n]; None: too few are known.

    In the last minute; or in the last windows, where these are longer.
    """
    faults: dict[int, int] = defaultdict(int)
    before: dict[int, int] = {}
    ends_ns: dict[int, int] = {}
    for row in recent.process_samples(looked_at_s(recent)):
        if row["major_faults"] is None:
            continue
        sample, process = row["sample"], row["process"]
        ends_ns[sample] = max(ends_ns.get(sample, 0), row["end_ns"])
        faults[sample] += max(row["major_faults"] - before.get(process, row["major_faults"]), 0)
        before[process] = row["major_faults"]
    samples = sorted(ends_ns)
    apart_s = np.diff(np.array([ends_ns[sample] / 1e9 for sample in samples]))
    if len(apart_s) < LEAST_RATES or apart_s.sum() < LEAST_S or (apart_s <= 0).any():
        return None
    return np.array([faults[sample] for sample in samples[1:]], np.float64) / apart_s
