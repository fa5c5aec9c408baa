"""How much memory is left until the kernel kills, and when none is left if use goes on growing."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.analysis.limit_forecast import Forecast, forecast_of, forecast_sentence, rate, time_left, whose_limit
from memtui.analysis.memory_growth import LONGEST_S
from memtui.analysis.memory_sentences import Forms
from memtui.core.readings import MemoryLimit
from memtui.core.units import size
from memtui.reports.source import ReportSource

_NEVER = -1000  # OOM_SCORE_ADJ_MIN
SPAN_NS = round(LONGEST_S * 1e9)


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
        forecast: when nothing is left; None: use does not grow steadily, or that is too far away.
        oom_score_adj: of the program; None: not read.
    """

    cgroup: str
    limit_bytes: int
    needed_bytes: int
    reclaimable_bytes: int
    swap_bytes: int
    left_bytes: int
    forecast: Forecast | None
    oom_score_adj: int | None = None


def last_limit(reader: ReportSource) -> LimitSummary | None:
    """Return the limit at the end of a session; None where it was not read after its first window.

    Raises SessionError.
    """
    samples = reader.samples
    if not len(samples):
        return None
    ended = reader.end is not None and reader.end.of_target
    return limit_summary(reader.memory_limits(int(samples.end_ns[-1]) - SPAN_NS, 2**62), ended=ended)


def limit_summary(limits: list[MemoryLimit], *, ended: bool = False) -> LimitSummary | None:
    """Return the last of these limits, and what follows from the ten minutes before; they are in the order of time.

    ``ended``: the program has, so nothing is foretold.
    """
    if not limits:
        return None
    if ended and len(limits) > 1 and limits[-1].cgroup != limits[-2].cgroup:
        limits = limits[:-1]  # read when the program was ending, and had left its cgroup
    last = limits[-1]
    return LimitSummary(
        last.cgroup,
        last.limit_bytes,
        last.needed_bytes,
        last.reclaimable_bytes,
        last.swap_bytes,
        last.left_bytes,
        None if ended else forecast_of(limits),
        last.oom_score_adj,
    )


def limit_lines(limit: LimitSummary | None) -> list[str]:
    """Return the line of the report on the limit."""
    if limit is None:
        return []
    whose = whose_limit(limit.cgroup)
    used = f"{size(limit.needed_bytes)} of the {size(limit.limit_bytes)} of {whose} were in use at the end"
    swap = f"; {size(limit.swap_bytes)} can be swapped out" if limit.swap_bytes else ""
    line = f"limit        {used}{cache_clause(limit)}{swap}"
    if limit.forecast is not None:
        growth = rate(limit.forecast.growth_bytes_per_s)
        line += f"; full in about {time_left(limit.forecast)} if use goes on growing by {growth}"
    return [f"{line}; {clause}" if (clause := victim_clause(limit)) else line]


def victim_clause(limit: LimitSummary) -> str:
    """Return which process the kernel would rather kill, where the program's ``oom_score_adj`` decides that; else "".

    The kernel kills the largest process under a limit. It adds so many thousandths of the limit to the size of each:
    https://docs.kernel.org/filesystems/proc.html, "/proc/<pid>/oom_adj & /proc/<pid>/oom_score_adj".
    """
    adjustment = limit.oom_score_adj
    if not adjustment:
        return ""
    if adjustment == _NEVER:
        return f"the kernel kills others in its place (oom_score_adj {_NEVER})"
    more = f"counts {abs(adjustment) / 10:g} % of the limit {'more' if adjustment > 0 else 'less'} than it has"
    return f"the kernel {more} when it chooses what to kill (oom_score_adj {adjustment})"


def forecast_forms(limit: LimitSummary | None) -> Forms:
    """Return a sentence of the screen in several forms, the longest first; none where nothing is foretold."""
    if limit is None or limit.forecast is None:
        return ()
    start = forecast_sentence(limit.cgroup, limit.forecast)
    end = f": {size(limit.needed_bytes)} of {size(limit.limit_bytes)} are in use{cache_clause(limit)}."
    whose = "Its cgroup" if limit.cgroup else "The machine"  # a cgroup may have a long name
    return start + end, f"{start}.", f"{whose} is out of memory in about {time_left(limit.forecast)}."


def cache_clause(limit: LimitSummary) -> str:
    """Return a clause on page cache that the kernel takes back; "" without any."""
    cache_bytes = limit.reclaimable_bytes
    return f", and {size(cache_bytes)} more are page cache that the kernel takes back first" if cache_bytes else ""
