"""The part of a report on reuse distances, and the only place where those of a whole session are added up."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from memtui.analysis.miss_ratio import are_one_figure
from memtui.analysis.reuse_burst import BurstReuse
from memtui.analysis.reuse_estimate import ASSUMPTION
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.core.samples import SAMPLED, Status
from memtui.core.units import duration, size
from memtui.reports.memory_summary import WorkingSetSummary, why_no_working_set
from memtui.reports.source import ReportSource

NO_ESTIMATE = "recorded by a memtui that did not store what an estimate needs"


@dataclass(frozen=True, slots=True)
class DistanceBounds:
    """The bounds between which a reuse distance lies, bytes, and its estimate for random order inside each window."""

    lower: float
    upper: float
    estimate: float | None = None


@dataclass(frozen=True, slots=True)
class BurstSummary:
    """Reuse distances of probes: short windows at the end of bursts (``memtui.analysis.reuse_burst``).

    Attributes:
        count: of bursts.
        probe_s: the median length of their probes, of which every process has one.
        touches: accesses in them, one for each page and probe.
        median_bytes, p95_bytes: median and 95th percentile of the distances of all of these; None where fewer came back
            within their window and the one before.
    """

    count: int
    probe_s: float
    touches: int
    median_bytes: DistanceBounds | None
    p95_bytes: DistanceBounds | None


@dataclass(frozen=True, slots=True)
class ReuseSummary:
    """Reuse distances of all windows.

    Attributes:
        first_touches: number of accesses to pages that were not accessed before.
        median_bytes, p95_bytes: median and 95th percentile of the distances of all returning accesses.
        status, reason: why there are no distances, or why they are of fewer pages than were touched.
        estimate_reason: why there is no estimate.
        bursts: the distances of shorter windows; None: there are none.
    """

    first_touches: int | None
    median_bytes: DistanceBounds | None
    p95_bytes: DistanceBounds | None
    status: str
    reason: str
    estimate_reason: str = ""
    bursts: BurstSummary | None = None


def exact_reuse(reader: ReportSource, processes: Container[int] | None = None) -> ExactReuse:
    """Return the reuse distances of all windows of a session, or of the processes with these keys in it.

    Raises SessionError.
    """
    exact = ExactReuse()
    if len(reader.samples):
        for _, process, distances in reader.iterate_reuse(0, reader.samples.newest):
            if processes is None or process in processes:
                exact.add(distances)
    return exact


def distance_bounds(exact: ExactReuse, share: float) -> DistanceBounds | None:
    """Return the distance that this share of the touches that came again does not exceed; None where none did."""
    bounds = exact.quantile(share)
    return _distance(None if bounds is None else (*bounds, exact.estimate(share)))


def reuse_summary(reader: ReportSource, working_set: WorkingSetSummary) -> ReuseSummary:
    """Return the summary of a session's reuse distances. Raises SessionError."""
    exact = exact_reuse(reader)
    if reason := _why_no_distances(reader):
        return ReuseSummary(None, None, None, Status.UNSUPPORTED, reason)
    median, p95 = distance_bounds(exact, 0.5), distance_bounds(exact, 0.95)
    if median is None or p95 is None:
        reason = "no page was touched in two windows"
        return ReuseSummary(exact.first_touches, None, None, Status.UNSUPPORTED, reason)
    why = "" if median.estimate is not None else NO_ESTIMATE
    status, reason = (Status.APPROXIMATE, working_set.reason) if working_set.lower_bound else (Status.OK, "")
    return ReuseSummary(exact.first_touches, median, p95, status, reason, why, _burst_summary(reader))


def burst_reuse(reader: ReportSource) -> BurstReuse:
    """Return the reuse distances of all bursts of a session. Raises SessionError."""
    bursts = BurstReuse()
    if len(reader.samples):
        for sample, _, parts in reader.reuse_bursts(0, reader.samples.newest):
            bursts.add(sample, parts)
    return bursts


def _burst_summary(reader: ReportSource) -> BurstSummary | None:
    bursts = burst_reuse(reader)
    if bursts.probe_ns is None or not bursts.touches:
        return None
    median, p95 = (_distance(bursts.within(share)) for share in (0.5, 0.95))
    return BurstSummary(bursts.count, bursts.probe_ns / 1e9, bursts.touches, median, p95)


def _distance(bounds: tuple[int, int, float | None] | None) -> DistanceBounds | None:
    if bounds is None:
        return None
    lower, upper, estimate = bounds
    return DistanceBounds(lower, upper, None if estimate is None else round(estimate))


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


def reuse_lines(reuse: ReuseSummary) -> list[str]:
    """Return the lines of the report: what bursts tell comes first, where they tell a median, in closer bounds."""
    whole, bursts = whole_window_text(reuse), reuse.bursts
    if bursts is None:
        texts = [whole]
    elif bursts.median_bytes is None:
        texts = [whole, burst_text(bursts)]
    else:
        texts = [burst_text(bursts), f"in whole windows {whole}"]
    return [f"{head:<13}{text}" for head, text in zip(("reuse", ""), texts, strict=False)]


def whole_window_text(reuse: ReuseSummary) -> str:
    """Return what whole windows tell."""
    median, p95 = reuse.median_bytes, reuse.p95_bytes
    if median is None or p95 is None:
        return f"n/a: {reuse.reason}"
    text = (
        f"half of all returning touches within {within(median)}, 95 % within {within(p95)}; "
        f"{reuse.first_touches} first touches"
    )
    if reuse.status == Status.APPROXIMATE:
        text = f"{text} (of the pages that were seen: {reuse.reason})"
    return f"{text}; {ASSUMPTION}" if is_estimated(reuse) else text


def burst_text(bursts: BurstSummary) -> str:
    """Return what bursts tell."""
    parts = [
        f"{share} within {within(distance)}"
        for share, distance in (("half of all touches", bursts.median_bytes), ("95 %", bursts.p95_bytes))
        if distance is not None
    ]
    text = ", ".join(parts) or "more than half of all touches are of pages that were not touched in the window before"
    count = f"{bursts.count} burst{'s' * (bursts.count != 1)}"
    return f"in windows of {duration(bursts.probe_s)}, of {count}: {text}"
