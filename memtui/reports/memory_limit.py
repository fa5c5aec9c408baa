"""How much memory is left until the kernel kills, and when none is left if use goes on growing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memtui.analysis.memory_growth import LONGEST_S, growth_of
from memtui.analysis.memory_sentences import Forms
from memtui.core.samples import MemoryLimit
from memtui.core.text import printable
from memtui.core.units import size, span
from memtui.reports.source import ReportSource

LATEST_S = 86_400.0  # what is further away is not foretold
LEAST_SHARE = 0.002  # of the limit: what use grew by at least, where the end is foretold
SPAN_NS = round(LONGEST_S * 1e9)


@dataclass(frozen=True, slots=True)
class Forecast:
    """When no memory is left, if use goes on growing as it does.

    Attributes:
        full_in_s: seconds until then.
        full_in_low_s, full_in_high_s: between which that lies with 95 %, if the growth stays as it is.
        growth_bytes_per_s: by how much use grows.
    """

    full_in_s: float
    full_in_low_s: float
    full_in_high_s: float
    growth_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class LimitSummary:
    """The limit of memory that leaves least at one moment.

    Attributes:
        cgroup: whose limit that is; empty: the memory of the machine.
        limit_bytes: the limit.
        needed_bytes: what everything under it uses, without page cache.
        reclaimable_bytes: page cache under it, which the kernel takes back first.
        swap_bytes: how much of it can still be swapped out.
        left_bytes: how much more can be used.
        forecast: when nothing is left; None: use does not grow steadily, or that is more than a day away.
    """

    cgroup: str
    limit_bytes: int
    needed_bytes: int
    reclaimable_bytes: int
    swap_bytes: int
    left_bytes: int
    forecast: Forecast | None


def last_limit(reader: ReportSource) -> LimitSummary | None:
    """Return the limit at the end of a session; None where it was not read after its first window.

    Raises SessionError.
    """
    samples = reader.samples
    return limit_summary(reader.memory_limits(int(samples.end_ns[-1]) - SPAN_NS, 2**62)) if len(samples) else None


def limit_summary(limits: list[MemoryLimit]) -> LimitSummary | None:
    """Return the last of these limits, and what follows from the ten minutes before; they are in the order of time."""
    if not limits:
        return None
    last = limits[-1]
    return LimitSummary(
        last.cgroup,
        last.limit_bytes,
        last.needed_bytes,
        last.reclaimable_bytes,
        last.swap_bytes,
        last.left_bytes,
        _forecast([limit for limit in limits if (limit.cgroup, limit.limit_bytes) == (last.cgroup, last.limit_bytes)]),
    )


def _forecast(limits: list[MemoryLimit]) -> Forecast | None:
    t_s = np.array([limit.t_ns for limit in limits], np.int64)
    gone_bytes = -np.array([limit.left_bytes for limit in limits], np.float64)
    growth = growth_of((t_s - t_s[-1]) / 1e9, gone_bytes)
    left_bytes = float(-gone_bytes[-1])
    if growth is None or left_bytes <= 0 or left_bytes > LATEST_S * growth.bytes_per_s:
        return None
    if gone_bytes[-1] - gone_bytes.min() < LEAST_SHARE * limits[-1].limit_bytes:
        return None
    low_s, high_s = left_bytes / growth.high_bytes_per_s, left_bytes / growth.low_bytes_per_s
    return Forecast(left_bytes / growth.bytes_per_s, low_s, high_s, growth.bytes_per_s)


def limit_lines(limit: LimitSummary | None) -> list[str]:
    """Return the line of the report on the limit."""
    if limit is None:
        return []
    used = f"{size(limit.needed_bytes)} of the {size(limit.limit_bytes)} of {_whose(limit)} were in use at the end"
    swap = f"; {size(limit.swap_bytes)} can be swapped out" if limit.swap_bytes else ""
    line = f"limit        {used}{_cache(limit)}{swap}"
    if limit.forecast is not None:
        line += f"; full in about {_when(limit.forecast)} if use goes on growing by {_rate(limit.forecast)}"
    return [line]


def forecast_forms(limit: LimitSummary | None) -> Forms:
    """Return a sentence of the screen in several forms, the longest first; none where nothing is foretold."""
    if limit is None or limit.forecast is None:
        return ()
    whose = _whose(limit)
    start = (
        f"{whose[:1].upper()}{whose[1:]} will be out of memory in about {_when(limit.forecast)} "
        f"if its use goes on growing by {_rate(limit.forecast)}"
    )
    end = f": {size(limit.needed_bytes)} of {size(limit.limit_bytes)} are in use{_cache(limit)}."
    return start + end, f"{start}."


def _cache(limit: LimitSummary) -> str:
    cache_bytes = limit.reclaimable_bytes
    return f", and {size(cache_bytes)} more are page cache that the kernel takes back first" if cache_bytes else ""


def _whose(limit: LimitSummary) -> str:
    return f"cgroup {printable(limit.cgroup)}" if limit.cgroup else "the machine"


def _when(forecast: Forecast) -> str:
    low, high = span(forecast.full_in_low_s), span(forecast.full_in_high_s)
    return span(forecast.full_in_s) if low == high else f"{span(forecast.full_in_s)} ({low} to {high})"


def _rate(forecast: Forecast) -> str:
    """Return a rate per second, minute or hour: in the first unit in which it is at least a MiB."""
    rate = forecast.growth_bytes_per_s
    seconds, name = next((unit for unit in ((1, "s"), (60, "min")) if rate * unit[0] >= 1 << 20), (3600, "h"))
    return f"{size(rate * seconds)}/{name}"
