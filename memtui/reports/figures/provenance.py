"""The provenance of a figure and the doubts about it, since a figure is used without its report."""

from __future__ import annotations

from collections import Counter

import numpy as np

from memtui.analysis.working_set import NOTABLE_SHARE
from memtui.core.fast_numpy import intervals_s
from memtui.core.options import tracker_label
from memtui.core.samples import SHARED_UNKNOWN, Status
from memtui.core.units import between, duration, percent, span
from memtui.reports.figures.svg import SMALL_PT, wrap
from memtui.reports.source import ReportSource

LINES = 3  # of one sentence


def sentences(reader: ReportSource) -> list[str]:
    """Return session, program, tracker and windows; then the reasons why the numbers are less than exact."""
    hello, samples = reader.hello, reader.samples
    lengths = (samples.end_ns - samples.start_ns) / 1e9
    true = f", {duration(float(np.median(lengths)))} true (median)" if len(samples) else ""
    span_s = (samples.end_ns[-1] - samples.start_ns[0]) / 1e9 if len(samples) else 0.0
    how = f"tracker {tracker_label(hello.tracker)}" + (
        f", flush {hello.flush}" if hello.flush not in ("", "off") else ""
    )
    requested = between(*map(duration, intervals_s(samples.asked_ns[:], hello.options.interval_ns)))
    if len(samples) and hello.options.max_overhead_ppm:
        true = f", {between(*map(duration, intervals_s(samples.intervals_ns(), 0)))} budgeted{true}"
    facts = [
        f"{reader.short_title}: {hello.target.command} (pid {hello.target.pid})",
        f"memtui {hello.memtui_version}, {how}, filter {hello.options.filter}; window "
        f"{requested} asked{true}; {len(samples)} windows in {span(span_s)}",
    ]
    return facts + doubts(reader)


def doubts(reader: ReportSource) -> list[str]:
    """Return one sentence for each way in which the working set is not exact."""
    samples = reader.samples
    lines = []
    pairs = zip(samples.status, samples.reason, strict=True)
    reasons = Counter(reason for status, reason in pairs if status == Status.APPROXIMATE)
    lines += [f"approximate in {_windows(count)}: {reason}" for reason, count in reasons.most_common()]
    causes = Counter(filter(None, samples.disturbed))
    lines += [f"disturbed in {_windows(count)}: {cause}" for cause, count in causes.most_common()]
    if births := int((samples.gaps[:] > 0).sum()):
        lines.append(f"in {_windows(births)} processes began or ended: what they touched unwatched is missing")
    lost = int(np.isnan(samples.wss_bytes).sum())
    if lost and reader.hello.wss.ok:
        lines.append(f"{_windows(lost)} without a working set")
    for_each = int((np.isnan(samples.shared_bytes) & ~np.isnan(samples.wss_bytes)).sum())
    if for_each:
        lines.append(f"in {_windows(for_each)}, {SHARED_UNKNOWN}")
    with np.errstate(invalid="ignore"):
        notable = samples.unknown_bytes > NOTABLE_SHARE * samples.wss_bytes
    if notable.any():
        share = float(np.nanmax(samples.unknown_bytes[notable] / samples.wss_bytes[notable]))
        lines.append(f"up to {percent(share)} of the working set of {_windows(int(notable.sum()))} perhaps not touched")
    warnings = sum(event.kind == "warning" for event in reader.events(0, 2**62))
    if warnings:
        lines.append(f"{warnings} warning{'s' * (warnings > 1)} of the recording: see its report")
    return lines


def lines(reader: ReportSource, width: float, *more: str) -> list[str]:
    """Return the sentences, and those of the figure itself, in lines of a footnote."""
    return [line for text in (*more, *sentences(reader)) for line in wrap(text, width, SMALL_PT, LINES)]


def _windows(count: int) -> str:
    return f"{count} window" + "s" * (count != 1)
