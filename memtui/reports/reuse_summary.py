"""The part of a report on reuse distances, and the only place where those of a whole session are added up."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.analysis.reuse_histogram import ExactReuse
from memtui.core.samples import SAMPLED, Status
from memtui.core.units import size
from memtui.reports.memory_summary import why_no_working_set
from memtui.reports.source import ReportSource


@dataclass(frozen=True, slots=True)
class DistanceBounds:
    """The bounds between which a reuse distance lies, bytes."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class ReuseSummary:
    """Reuse distances of all windows.

    Attributes:
        first_touches: number of accesses to pages that were not accessed before.
        median_bytes, p95_bytes: median and 95th percentile of the distances of all returning accesses.
        status, reason: why there are no distances.
    """

    first_touches: int | None
    median_bytes: DistanceBounds | None
    p95_bytes: DistanceBounds | None
    status: str
    reason: str


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
    median, p95 = exact.quantile(0.5), exact.quantile(0.95)
    if median is None or p95 is None:
        reason = "no page was touched in two windows"
        return ReuseSummary(exact.first_touches, None, None, Status.UNSUPPORTED, reason)
    return ReuseSummary(exact.first_touches, DistanceBounds(*median), DistanceBounds(*p95), Status.OK, "")


def _why_no_distances(reader: ReportSource) -> str:
    """Return why a session can have no reuse distances; empty where it can."""
    hello = reader.hello
    if not hello.wss.ok:
        return why_no_working_set(reader)
    if not hello.pages.ok:
        return f"{hello.pages.reason} ({hello.pages.remedy})" if hello.pages.remedy else hello.pages.reason
    return SAMPLED if hello.options.samples_pages else ""


def reuse_line(reuse: ReuseSummary) -> str:
    """Return the line of the report."""
    median, p95 = reuse.median_bytes, reuse.p95_bytes
    if median is None or p95 is None:
        return f"reuse        n/a: {reuse.reason}"
    return (
        f"reuse        half of all returning touches within {size(median.lower)} - {size(median.upper)}, "
        f"95 % within {size(p95.lower)} - {size(p95.upper)}; {reuse.first_touches} first touches"
    )
