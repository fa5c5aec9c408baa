"""The part of a report on the cost of recording: pauses, time that the target lost, CPU, and the budget."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memtui.analysis.overhead_budget import seconds
from memtui.analysis.target_loss import OVER, OWN_CPU, budget_cost, last_part, lost_in_all
from memtui.core.units import about_percent, percent
from memtui.reports.process_summary import ProcessRows
from memtui.reports.source import ReportSource
from memtui.session.budget_log import BudgetLog

SECOND_NS = 1e9


@dataclass(frozen=True, slots=True)
class Budget:
    """Allowed and actual cost of recording, as shares of the time.

    Attributes:
        max_fraction: allowed share.
        fraction: actual share: what the target lost, or what memtui took of a CPU by ``OWN_CPU``, whichever is more.
            None: fewer than two samples.
        met: whether the actual share is within the budget, or just above it (``OVER``).
        needed_interval_s: interval that would have met the budget, where it was exceeded and the last interval was
            shorter.
    """

    max_fraction: float
    fraction: float | None
    met: bool | None
    needed_interval_s: float | None


@dataclass(frozen=True, slots=True)
class Overhead:
    """The cost of recording.

    Attributes:
        paused_fraction: share of the time in which the target was paused.
        paused_median_s: median pause of a single process.
        paused_max_s: longest pause of a single process.
        lost_fraction: share of the time that the target lost, an estimate.
        self_cpu_fraction: cores that sampler and recorder used.
        traced_fraction: share of the time that tracing its training steps took of the target, an estimate; of several
            processes that of the one it took most of. None: nothing was traced.
        reason: why the cost is unknown.
        budget: budget of the recording; None without one.
    """

    paused_fraction: float | None
    paused_median_s: float | None
    paused_max_s: float | None
    lost_fraction: float | None
    self_cpu_fraction: float | None
    reason: str
    budget: Budget | None
    traced_fraction: float | None = None


def overhead_of(reader: ReportSource, rows: ProcessRows, span_ns: int) -> Overhead:
    """Return the cost of recording, until its end: a window that had not ended pays for those before it.

    ``span_ns``: from the start of the first window to the end of the last.
    """
    samples = reader.samples
    if len(samples) < 2 or span_ns <= 0:
        absent = Overhead(None, None, None, None, None, "fewer than two samples", None)
        return replace(absent, budget=_budget(reader, absent))
    pauses_s = _pauses_s(rows)
    paused = samples.paused_ns[~np.isnan(samples.paused_ns)]
    cpu_ns = samples.sampler_cpu_ns + samples.recorder_cpu_ns
    after = last_part(samples, reader.end, alive=reader.alive)
    span_ns += after.length_ns
    cost = Overhead(
        paused_fraction=float(paused.sum() / span_ns) if len(paused) else None,
        paused_median_s=float(np.median(pauses_s)) if pauses_s else None,
        paused_max_s=max(pauses_s, default=None),
        lost_fraction=lost_in_all(samples, after),
        self_cpu_fraction=after.cpu_share(float(cpu_ns[-1] - cpu_ns[0]), float(samples.end_ns[-1] - samples.end_ns[0])),
        reason="",
        budget=None,
    )
    return replace(cost, budget=_budget(reader, cost))


def _budget(reader: ReportSource, overhead: Overhead) -> Budget | None:
    """Return the allowed and the actual cost, and the interval that would have met an exceeded budget."""
    samples, cpu = reader.samples, overhead.self_cpu_fraction
    span_ns = (int(samples.start_ns[0]), int(samples.end_ns[-1])) if len(samples) else (0, 0)
    most = BudgetLog(reader).mean_share(*span_ns)
    if most is None:
        return None
    if cpu is None:
        return Budget(most, None, None, None)
    fraction = budget_cost(overhead.lost_fraction, cpu, overhead.paused_fraction)
    if fraction <= OVER * most:
        return Budget(most, fraction, True, None)
    needed_s = float(np.diff(reader.samples.end_ns).mean()) / SECOND_NS * fraction / most
    is_enough = float(reader.samples.next_ns[-1]) / SECOND_NS >= needed_s  # nan is not
    return Budget(most, fraction, False, None if is_enough else needed_s)


def _pauses_s(rows: ProcessRows) -> list[float]:
    """Return the longest pause of each process in each window, also where a pause was given up."""
    return [(row["longest_pause_ns"] or row["paused_ns"]) / SECOND_NS for row in rows if row["paused_ns"] is not None]


def overhead_line(overhead: Overhead) -> str:
    """Return the line of the report."""
    lost = overhead.lost_fraction
    slowed = "" if lost is None else f"slowed it by {about_percent(lost)}, "
    if overhead.traced_fraction is not None:
        slowed += f"tracing by {about_percent(overhead.traced_fraction)} more, "
    budget = f"; {budget_clause(overhead.budget)}" if overhead.budget is not None else ""
    return (
        f"overhead     {slowed}paused {percent(overhead.paused_fraction)}, "
        f"own CPU {percent(overhead.self_cpu_fraction)}{budget}"
    )


def budget_clause(budget: Budget) -> str:
    """Return one clause about a budget and whether it was met."""
    percents = budget.max_fraction * 100
    allowance = f"the budget of {percents:g} % of its time and {OWN_CPU * percents:g} % of a CPU"
    if budget.fraction is None:
        return f"{allowance}: n/a with fewer than two samples"
    if budget.met:
        return f"within {allowance}"
    over = f"over {allowance} ({budget.fraction / budget.max_fraction:.3g} times)"
    if budget.needed_interval_s is None:
        return f"{over}, as the intervals became long enough only later"
    return f"{over}: an interval of {seconds(budget.needed_interval_s * SECOND_NS)} would meet it"
