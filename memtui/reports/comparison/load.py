"""The sessions of a comparison, of any kind, read once each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.address_ranges import mapped_bytes
from memtui.analysis.alike import groups
from memtui.analysis.lines import Line
from memtui.analysis.resident import SUM_OF_RSS, resident
from memtui.analysis.resident_readings import Readings, resident_readings, rss_readings
from memtui.analysis.reuse_cdf import cdf, knee, quantiles
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.statistics import quantile
from memtui.core.fast_numpy import intervals_s
from memtui.core.options import tracker_label
from memtui.core.units import between, duration, percent, size
from memtui.reports.comparison.model import OF_BURSTS, ComparedSession, RecordedMemory
from memtui.reports.comparison.training import run_of
from memtui.reports.figures.provenance import doubts
from memtui.reports.memory_summary import memory_uses, released_memory, working_set
from memtui.reports.power_summary import power_summaries
from memtui.reports.reuse_summary import NO_ESTIMATE, burst_reuse, exact_reuse
from memtui.reports.source import ReportSource
from memtui.session.budget_log import BudgetLog
from memtui.session.sample_arrays import SampleArrays

NOTHING = Line(np.empty(0), np.empty(0))


def recorded(reader: ReportSource, name: str) -> ComparedSession:
    """Return a session of the comparison. Raises SessionError."""
    return ComparedSession(
        name,
        reader.hello.target.command,
        conditions(reader),
        run_of(reader),
        memory_of(reader),
        doubts(reader) if len(reader.samples) else (),
    )


def names(paths: Sequence[Path], *, redact: bool = False) -> list[str]:
    """Return the names of sessions: file names where these are unique, else paths; "session" when redacted."""
    if redact:
        return ["session"] * len(paths)
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def conditions(reader: ReportSource) -> dict[str, str]:
    """Return the conditions of a recording, which compared sessions should have in common."""
    hello, samples = reader.hello, reader.samples
    options, host = hello.options, hello.host
    budgets = ["none" if share is None else percent(share) for share, _ in BudgetLog(reader).all()]
    return {
        "windows asked": between(*map(duration, intervals_s(samples.asked_ns[:], options.interval_ns))),
        "budget": ", then ".join(budgets),
        "tracker": tracker_label(hello.tracker),
        "flush": hello.flush,
        "rearm": hello.rearm,
        "pause": ("all at once" if options.together else "one by one") if options.pause else "no",
        "filter": options.filter,
        "children": "watched" if options.children else "no",
        "machine": host.hostname,
        "kernel": host.kernel,
        "architecture": host.architecture,
        "CPUs": str(host.cpu_count),
        "memory": size(host.memory_bytes),
        "memtui": hello.memtui_version,
    }


def memory_of(reader: ReportSource) -> RecordedMemory | None:
    """Return the recorded memory of the whole tree; None without a window."""
    samples = reader.samples
    if not len(samples):
        return None
    mapped = mapped_bytes(reader.vma_rows(), samples.sample[:])
    line, figures, reasons = reuse_of(exact_reuse(reader), _why_no_reuse(reader))
    of_bursts, why_not = burst_figures(reader)
    hello, uses = reader.hello, memory_uses(reader)
    resident_memory = resident(samples, reader.processes(), uses)
    rss, readings = rss_readings(samples, uses), resident_readings(samples, resident_memory, uses)
    pss = readings.bytes * np.nan if resident_memory.name == SUM_OF_RSS else readings.bytes
    no_wss = "" if hello.wss.ok else hello.wss.reason
    lengths_ns = samples.end_ns - samples.start_ns
    alike = groups(
        samples.intervals_ns(), lengths_ns, np.isfinite(samples.wss_bytes), exact=not samples.has_budget, most=1
    )[0].windows
    released = released_memory(reader, reader.process_samples(0, samples.newest), alike)
    figures = {
        "windows": float(len(samples)),
        "duration_s": float(samples.end_ns[-1] - samples.start_ns[0]) / 1e9,
        "true_interval_s": quantile(lengths_ns[alike] / 1e9, 0.5),
        "wss_median_bytes": quantile(samples.wss_bytes[alike], 0.5),
        "wss_p95_bytes": quantile(samples.wss_bytes[alike], 0.95),
        "rss_median_bytes": quantile(rss.bytes, 0.5, rss.lengths_ns),
        "rss_p95_bytes": quantile(rss.bytes, 0.95, rss.lengths_ns),
        "pss_median_bytes": quantile(pss, 0.5, readings.lengths_ns),
        "pss_p95_bytes": quantile(pss, 0.95, readings.lengths_ns),
        # What was mapped after the last window is not known, but it is no less than what was resident.
        "mapped_max_bytes": float(np.nanmax(np.concatenate((mapped, rss.bytes)))) or None,
        **figures,
        **of_bursts,
    }
    for name in ("wss_median_bytes", "wss_p95_bytes"):
        if figures[name] is None:
            reasons[name] = no_wss or "no window was complete"
    reasons |= why_not
    reasons |= {name: "PSS was not read" for name in ("pss_median_bytes", "pss_p95_bytes") if figures[name] is None}
    return RecordedMemory(
        intervals_s(samples.asked_ns[:], hello.options.interval_ns)
        if not samples.has_budget
        else intervals_s(samples.intervals_ns(), 0),
        over_time(reader, samples.wss_bytes[:]),
        read_over_time(samples, readings) if uses else over_time(reader, resident_memory.bytes),
        over_time(reader, mapped),
        line,
        figures,
        reasons,
        power_summaries(reader.power(0, 1 << 62)),
        resident_memory.name,
        working_set(reader, alike, released).lower_bound,
    )


def over_time(reader: ReportSource, values: NDArray[np.float64]) -> Line:
    """Return values of all windows over seconds since the start of the first; lost windows are holes."""
    samples = reader.samples
    lost = np.flatnonzero(np.diff(samples.sample) > 1) + 1
    starts_ns = np.insert(samples.start_ns, lost, samples.end_ns[lost - 1])
    with_holes = np.insert(np.asarray(values, np.float64), lost, np.nan)
    return stepped(starts_ns - samples.start_ns[0], with_holes, int(samples.end_ns[-1] - samples.start_ns[0]))


def read_over_time(samples: SampleArrays, readings: Readings) -> Line:
    """Return resident memory over seconds since the start of the first window."""
    start_ns = int(samples.start_ns[0])
    return stepped(readings.start_ns - start_ns, readings.bytes, int(readings.end_ns[-1]) - start_ns)


def stepped(starts_ns: NDArray[np.int64], values: NDArray[np.float64], end_ns: int) -> Line:
    """Return values from moments on, the last one up to the end; times since the start of the session."""
    if not len(values):
        return NOTHING
    return Line(np.append(starts_ns, end_ns) / 1e9, np.append(values, values[-1]))


def reuse_of(exact: ExactReuse, why: str) -> tuple[Line, dict[str, float | None], dict[str, str]]:
    """Return the reuse curve, its figures, and why figures are missing; ``why``: the general reason."""
    curve = cdf(exact)
    figures: dict[str, float | None] = dict.fromkeys(
        (
            *("reuse_p50_bytes", "reuse_p95_bytes", "reuse_p50_estimate_bytes", "reuse_p95_estimate_bytes"),
            *("knee_bytes", "knee_share"),
        )
    )
    if curve is None:
        return NOTHING, figures, dict.fromkeys(figures, why)
    reasons: dict[str, str] = {}
    for share, bounds in quantiles(exact, (0.5, 0.95)).items():
        figures[f"reuse_p{share * 100:.0f}_bytes"] = None if bounds is None else bounds[1]
        estimate = exact.estimate(share)
        figures[name := f"reuse_p{share * 100:.0f}_estimate_bytes"] = None if estimate is None else round(estimate)
        if estimate is None:
            reasons[name] = NO_ESTIMATE
    bend = knee(curve)
    if bend.clear:
        figures |= {"knee_bytes": bend.size_bytes, "knee_share": bend.share}
    else:
        reasons |= dict.fromkeys(("knee_bytes", "knee_share"), f"no clear knee: it bends by {bend.bend:.2f} of 1")
    return Line(curve.sizes_bytes, 100 * curve.least), figures, reasons


def burst_figures(reader: ReportSource) -> tuple[dict[str, float | None], dict[str, str]]:
    """Return the estimates of what bursts tell, and why they are missing.

    They are of windows of one length, whatever those of the session are.
    """
    bursts = burst_reuse(reader)
    figures: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, share, beyond in zip(OF_BURSTS, (0.5, 0.95), ("half", "5 %"), strict=True):
        distance = bursts.within(share)
        estimate = None if distance is None else distance[2]
        figures[name] = None if estimate is None else float(round(estimate))
        if not bursts.touches:
            reasons[name] = "no window was cut into parts"
        elif distance is None:
            reasons[name] = f"more than {beyond} of their touches did not come back"
        elif estimate is None:
            reasons[name] = NO_ESTIMATE
    return figures, reasons


def _why_no_reuse(reader: ReportSource) -> str:
    for capability in (reader.hello.wss, reader.hello.pages):
        if not capability.ok:
            return capability.reason
    return "no page was touched in two windows"
