"""The part of a report on reuse distances, and the only place where those of a whole session are added up."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.analysis.miss_ratio import are_one_figure
from memtui.analysis.reuse_estimate import ASSUMPTION
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.core.samples import SAMPLED, Status
from memtui.core.units import size
from memtui.reports.memory_summary import why_no_working_set
from memtui.reports.source import ReportSource


@dataclass(frozen=True, slots=True)
class DistanceBounds:
    """The bounds between which a reuse distance lies, bytes, and its estimate for random order inside each window."""

    lower: float
    upper: float
    estimate: float | None = None


@dataclass(frozen=True, slots=True)
class ReuseSummary:
    """Reuse distances of all windows.

    Attributes:
        first_touches: number of accesses to pages that were not accessed before.
        median_bytes, p95_bytes: median and 95th percentile of the distances of all returning accesses.
        status, reason: why there are no distances.
        estimate_reason: why there is no estimate.
    """

    first_touches: int | None
    median_bytes: DistanceBounds | None
    p95_bytes: DistanceBounds | None
    status: str
    reason: str
    estimate_reason: str = ""


def exact_reuse(reader: ReportSource) -> ExactReuse:
    """Return the reuse distances of all windows of a session. Raises SessionError."""
    exact = ExactReuse()
    if len(reader.samples):
        for _, _, distances in reader.iterate_reuse(0, reader.samples.newest):
            exact.add(distances)
    return exact


def reuse_summary(reader: ReportSource) -> ReuseSummary:
    """Return the summary of a session's reuse distances. Raises SessionError."""
    exact = exact_reuse(reader)
    if reason := _why_no_distances(reader):
        return ReuseSummary(None, None, None, Status.UNSUPPORTED, reason)
    median, p95 = _bounds(exact, 0.5), _bounds(exact, 0.95)
    if median is None or p95 is None:
        reason = "no page was touched in two windows"
        return ReuseSummary(exact.first_touches, None, None, Status.UNSUPPORTED, reason)
    why = "" if median.estimate is not None else "recorded by a memtui that did not store what an estimate needs"
    return ReuseSummary(exact.first_touches, median, p95, Status.OK, "", why)


def _bounds(exact: ExactReuse, share: float) -> DistanceBounds | None:
    bounds, estimate = exact.quantile(share), exact.estimate(share)
    return None if bounds is None else DistanceBounds(*bounds, None if estimate is None else round(estimate))


def _why_no_distances(reader: ReportSource) -> str:
    """Return why a session can have no reuse distances; empty where it can."""
    hello = reader.hello
    if not hello.wss.ok:
        return why_no_working_set(reader)
    if not hello.pages.ok:
        return f"{hello.pages.reason} ({hello.pages.remedy})" if hello.pages.remedy else hello.pages.reason
    return SAMPLED if hello.options.samples_pages else ""


def within(distance: DistanceBounds) -> str:
    """Return a distance as text: its bounds, with the estimate before them where they are apart."""
    bounds = f"{size(distance.lower)} - {size(distance.upper)}"
    return f"about {size(distance.estimate)} ({bounds})" if _has_estimate(distance) else bounds


def is_estimated(reuse: ReuseSummary) -> bool:
    """Return whether ``within`` gives an estimate of one of the distances."""
    return any(d is not None and _has_estimate(d) for d in (reuse.median_bytes, reuse.p95_bytes))


def _has_estimate(distance: DistanceBounds) -> bool:
    """Return whether an estimate is known and says more than the bounds."""
    return distance.estimate is not None and not are_one_figure(distance.lower, distance.upper)


def reuse_line(reuse: ReuseSummary) -> str:
    """Return the line of the report."""
    median, p95 = reuse.median_bytes, reuse.p95_bytes
    if median is None or p95 is None:
        return f"reuse        n/a: {reuse.reason}"
    line = (
        f"reuse        half of all returning touches within {within(median)}, 95 % within {within(p95)}; "
        f"{reuse.first_touches} first touches"
    )
    return f"{line}; {ASSUMPTION}" if is_estimated(reuse) else line
