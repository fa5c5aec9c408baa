"""Rule ``oom``: use grows steadily, and will reach the limit that kills."""

from __future__ import annotations

import numpy as np

from memtui.analysis.limit_forecast import Forecast, rate, time_left, whose_limit
from memtui.analysis.memory_growth import growth_of
from memtui.analysis.resident import PSS
from memtui.core.samples import End, is_lower_bound
from memtui.core.units import duration, size
from memtui.reports.memory_limit import LimitSummary, cache_clause, forecast_forms, victim_clause
from memtui.reports.verdict.recent import FRESH_S, Check, Finding, Floats, Recent

RULE = "oom"
OWN_SHARE = 0.5  # of the growth: with less the program is not what fills the memory
SOON_S = 3600.0  # until when there is still time to finish something


def out_of_memory(recent: Recent) -> Check:
    """Return when the limit that leaves least memory is reached."""
    limit = recent.limit
    if limit is None:
        return Check(RULE, "limit of memory: not read", measured=False)
    used = f"{size(limit.needed_bytes)} of the {size(limit.limit_bytes)} of {whose_limit(limit.cgroup)} in use"
    if recent.end is not None:
        return Check(RULE, f"limit of memory: {used} at its end", finding=_killed(recent.end, limit))
    if limit.forecast is None:
        return Check(RULE, f"limit of memory: {used}{cache_clause(limit)}; what is in use does not reach it soon")
    sentence, _, short = forecast_forms(limit)
    sentence = f"{sentence.removesuffix('.')}{_working_set_clause(recent)}."
    action = _action(limit, limit.forecast, _what_grows(recent, limit.forecast))
    return Check(RULE, f"limit of memory: {used}", finding=Finding(sentence, short, action, _evidence(limit)))


def _killed(end: End, limit: LimitSummary) -> Finding | None:
    """Return that memory ran out; None where the program ended in another way."""
    if not end.killed_for_memory:
        return None
    where = f"Raise the limit of {whose_limit(limit.cgroup)}" if limit.cgroup else "Use a machine with more memory"
    return Finding(
        f"The program was {end.text}.",
        "The kernel killed the program: memory ran out.",
        f"{where}, or have the program need less: the report has what grew in its last minutes.",
        (
            f"when it was read last: {size(limit.needed_bytes)} of {size(limit.limit_bytes)} in use without page "
            f"cache, and {size(limit.reclaimable_bytes)} page cache",
        ),
    )


def _action(limit: LimitSummary, forecast: Forecast, what_grows: str) -> str:
    where = f"raise the limit of {whose_limit(limit.cgroup)}" if limit.cgroup else "use a machine with more memory"
    if forecast.full_in_low_s < SOON_S:
        return f"Save a checkpoint now, then {where} or stop {what_grows}."
    return f"Plan to {where}, or stop {what_grows}, before then."


def _working_set_clause(recent: Recent) -> str:
    """Return the working set of the program, what it needs at least, as a clause; "" where none is known."""
    measured = np.isfinite(recent.wss_bytes)
    if not measured.any():
        return ""
    samples = recent.source.samples
    lengths_ns = (samples.end_ns[recent.windows] - samples.start_ns[recent.windows])[measured]
    length = duration(float(np.median(lengths_ns)) / 1e9)
    at_least = "at least " * is_lower_bound(samples.reason[recent.windows.stop - 1])
    wss_bytes = float(np.median(recent.wss_bytes[measured]))
    return f"; its working set is {at_least}{size(wss_bytes)} in windows of {length}"


def _what_grows(recent: Recent, forecast: Forecast) -> str:
    """Return what is to be stopped: whether it is the program that is watched."""
    kind, t_s, resident = recent.resident_series()
    # Copies of memory that processes shared are seen in a PSS alone, which may be old.
    if recent.too_short or not len(resident) or (kind == PSS and recent.pss_age_s > FRESH_S):
        return "what grows"
    growth = growth_of(t_s, resident)
    if growth is None:
        mean_bytes_per_s = max(_mean_growth(t_s, resident), _mean_growth(*recent.rss_series()))
        own = mean_bytes_per_s >= OWN_SHARE * forecast.growth_bytes_per_s
        return "what grows" if own else "what grows, which is not this program"
    if growth.bytes_per_s < OWN_SHARE * forecast.growth_bytes_per_s:
        return f"what grows (this program by {rate(growth.bytes_per_s)}, others by the rest)"
    return "what grows"


def _mean_growth(t_s: Floats, sizes: Floats) -> float:
    """Return the growth in bytes a second from the first size to the last; 0 where there is one."""
    return float((sizes[-1] - sizes[0]) / (t_s[-1] - t_s[0])) if len(sizes) > 1 and t_s[-1] > t_s[0] else 0.0


def _evidence(limit: LimitSummary) -> tuple[str, ...]:
    forecast = limit.forecast
    if forecast is None:
        return ()
    victim = victim_clause(limit)
    swap = f", of it {size(limit.swap_bytes)} by swapping out" if limit.swap_bytes else ""
    return (
        f"in use without page cache: {size(limit.needed_bytes)} of {size(limit.limit_bytes)}",
        f"left until the kernel kills: {size(limit.left_bytes)}{swap}",
        f"page cache that the kernel takes back first: {size(limit.reclaimable_bytes)}",
        f"full in {time_left(forecast)}, with 95 %, if growth stays as it is",
        *([victim] if victim else []),
    )
