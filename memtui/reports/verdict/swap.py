"""Rule ``swap``: the program waits for its own pages to come back from swap, though memory is left."""

from __future__ import annotations

from itertools import pairwise

from memtui.core.fast_numpy import median
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.units import size
from memtui.reports.verdict.recent import Check, Finding, Recent
from memtui.reports.verdict.thrashing import FAULTS_PER_S, LEAST_SHARE, is_full, looked_at_s, major_fault_rates

RULE = "swap"
LEAST_RETURNED = 0.5  # of the pages that major faults read: what left the swap in the same time


def swap(recent: Recent) -> Check:
    """Return how much of the tree is swapped out, and whether it is read back while memory is left."""
    subject = "memory in swap"
    readings = _readings(recent, looked_at_s(recent))
    if not readings:
        return Check(RULE, f"{subject}: not read", measured=False)
    in_swap_bytes = sum(of_process[-1][1] for of_process in readings.values())
    what = f"{subject}: {size(in_swap_bytes)}"
    rates, limit = major_fault_rates(recent), recent.limit
    if rates is None or (rates >= FAULTS_PER_S).mean() < LEAST_SHARE:
        return Check(RULE, what)
    back_bytes, seconds = _returned(readings)
    rate_per_s = median(rates)
    if back_bytes < LEAST_RETURNED * rate_per_s * seconds * PAGE_BYTES or not seconds:
        return Check(RULE, f"{what}; what it reads does not come from there")
    what += f", and {size(back_bytes)} came back within {seconds:.0f} s"
    if limit is None:
        return Check(RULE, f"{what}; the limit of memory is not known", measured=False)
    if is_full(limit):
        return Check(RULE, f"{what}, while memory is full")
    start = f"It waits for {rate_per_s:,.0f} pages a second to come back from swap, with memory left"
    return Check(
        RULE,
        what,
        finding=Finding(
            f"{start}: {size(in_swap_bytes)} of it are still swapped out, and {size(limit.left_bytes)} are free.",
            f"{start}.",
            "It is slow until they are back. To keep its memory the next time, give its cgroup no swap "
            "(memory.swap.max), or lower vm.swappiness.",
            (
                f"in swap: {size(in_swap_bytes + back_bytes)}, and {size(in_swap_bytes)} {seconds:.0f} s later",
                f"major faults a second, by window: {rates.min():.0f} to {rates.max():.0f}",
            ),
        ),
    )


def returned_bytes(recent: Recent, seconds: float) -> int:
    """Return how many bytes of the processes that there are left the swap in the last ``seconds``."""
    return _returned(_readings(recent, seconds))[0]


def _readings(recent: Recent, seconds: float) -> dict[int, list[tuple[int, int]]]:
    """Return (when, bytes in swap) of the processes that there are, in the order of time."""
    readings: dict[int, list[tuple[int, int]]] = {}
    for row in recent.process_samples(seconds):
        if row["swap_bytes"] is not None and row["process"] in recent.processes:
            t_ns = row["end_ns"] if row["pss_ns"] is None else row["pss_ns"]
            readings.setdefault(row["process"], []).append((t_ns, row["swap_bytes"]))
    return readings


def _returned(readings: dict[int, list[tuple[int, int]]]) -> tuple[int, float]:
    """Return how many bytes left the swap from reading to reading, and in how many seconds."""
    falls = [max(before - after, 0) for each in readings.values() for (_, before), (_, after) in pairwise(each)]
    spans_ns = (each[-1][0] - each[0][0] for each in readings.values())
    return sum(falls), max(spans_ns, default=0) / 1e9
