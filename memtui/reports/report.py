"""The numbers of a session: ``Report`` has all of them, and its parts are in the ``*_summary`` modules.

A part is a dataclass, what makes it from a session, and its lines of text. A number that a report should have, too, is
a field of one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memtui.analysis.alike import groups
from memtui.analysis.fast_numpy import intervals_s
from memtui.analysis.overhead_budget import allowed
from memtui.analysis.resident import resident
from memtui.core.options import DEFAULT_OVERHEAD_PPM
from memtui.core.samples import MAIN_MEMORY, Event
from memtui.reports import memory_summary as memory
from memtui.reports.allocation_summary import AllocationSummary, allocation_summary
from memtui.reports.as_dict import fields_as_dict
from memtui.reports.import_summary import ImportSummary, import_summary
from memtui.reports.overhead_summary import Overhead, budget_clause, overhead_of
from memtui.reports.power_summary import PowerSummary, power_summaries
from memtui.reports.process_summary import ProcessSummary, process_summaries
from memtui.reports.redact import open_source
from memtui.reports.reuse_summary import ReuseSummary, reuse_summary
from memtui.reports.size_summary import SizeSummary, median_of_known
from memtui.reports.source import ReportSource, Source
from memtui.reports.tensor_summary import TensorSummary, tensor_summary
from memtui.reports.training_summary import LearningSummary, TrainingSummary, learning_summaries, training_summaries

SECOND_NS = 1e9
MARKS = ("mark", "interval", "exec", "stopped")  # what happened, and is nothing wrong


@dataclass(frozen=True, slots=True)
class HostSummary:
    """The machine that a session was recorded on."""

    hostname: str
    kernel: str
    cpu_count: int


@dataclass(frozen=True, slots=True)
class TargetSummary:
    """The root of the process tree. ``start``: ticks since the machine started, which tell it from a reused pid."""

    pid: int
    command: str
    start: int


@dataclass(frozen=True, slots=True)
class RejectedTracker:
    """A page tracker that could not be used, why, and what would help."""

    name: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Mark:
    """What happened at a moment, seconds after the first window."""

    t_s: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class GapEvent:
    """A gap at a moment, seconds after the first window."""

    t_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Gaps:
    """What is in no window.

    Attributes:
        processes: how many began or ended inside a window.
        end_s: how long the session went on after the last window.
        samples: numbers of windows that the recorder was too slow to take.
        events: gaps that were reported.
    """

    processes: int
    end_s: float
    samples: int
    events: tuple[GapEvent, ...]


@dataclass(frozen=True, slots=True)
class Disturbances:
    """Windows that something disturbed, and how many by cause."""

    samples: int
    causes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Downsampled:
    """The size of the file for which page sets had to make room."""

    to_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of a session, in the order of the document.

    Attributes:
        memtui_version, session, host, target: what recorded what, and what the session is called.
        processes: every process that was there for a window.
        tracker, flush, rearm, filter: how pages were tracked, and which of them were stored.
        rejected: trackers that could not be used.
        interval_s, intervals_s: of windows that were asked for at first, and the shortest and longest later on.
        true_interval_s: the median length of the windows that the working set is of.
        windows: by their interval; figures of the working set are those of the first group.
        duration_s, samples: from the first window to the last, and how many there are.
        wss_bytes, wss_largest, shared_bytes: the working set, the largest window, and what processes share of it.
        rss_bytes, pss_bytes, touched_fraction: resident memory, and how much of it is touched.
        given_back_bytes: what was released in a window.
        reuse: reuse distances.
        budgeted_s: the shortest and longest interval that a budget made of it; None without one.
        overhead: what recording cost.
        power: mean power and energy of each source.
        training, learning: of each process that reported training steps, or how well it learns.
        imported: where the session is from; None where memtui recorded it.
        allocations, device_allocations: recorded steps in main memory, and on each other device.
        by_category: the working set by tensor; None: not traced.
        gaps, marks, warnings, disturbed: what happened.
        thinned: None where nothing had to make room.
        lost: windows without a working set.
        end_reason, end: why and how the session ended.
    """

    memtui_version: str
    session: str
    host: HostSummary
    target: TargetSummary
    processes: tuple[ProcessSummary, ...]
    tracker: str
    flush: str
    rearm: str
    filter: str
    rejected: tuple[RejectedTracker, ...]
    interval_s: float
    intervals_s: tuple[float, float]
    true_interval_s: float | None
    windows: tuple[memory.WindowGroup, ...]
    duration_s: float
    samples: int
    wss_bytes: SizeSummary
    wss_largest: memory.LargestWindow
    shared_bytes: SizeSummary
    rss_bytes: memory.ResidentSummary
    pss_bytes: memory.ResidentSummary
    touched_fraction: memory.TouchedFraction
    given_back_bytes: memory.ReleasedSummary
    reuse: ReuseSummary
    budgeted_s: tuple[float, float] | None
    overhead: Overhead
    power: tuple[PowerSummary, ...]
    training: tuple[TrainingSummary, ...]
    imported: ImportSummary | None
    learning: tuple[LearningSummary, ...]
    allocations: AllocationSummary | None
    device_allocations: Mapping[str, AllocationSummary | None]
    by_category: TensorSummary | None
    gaps: Gaps
    marks: tuple[Mark, ...]
    warnings: tuple[str, ...]
    disturbed: Disturbances
    thinned: Downsampled | None
    lost: int
    end_reason: str
    end: str

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``report --json``; docs/reference/schemas describe it."""
        return fields_as_dict(self)


def build_report(path: Path, *, redact: bool = False) -> Report:
    """Return the report of a session file, on request without host, user, paths and addresses.

    Raises:
        SessionError: the file cannot be read.
    """
    reader = open_source(path, redact=redact)
    try:
        return report_of(reader, reader.title)
    finally:
        reader.close()


def report_of(reader: ReportSource, title: str) -> Report:
    """Return the report of a session that is open, under a title of its own. Raises SessionError."""
    hello, samples = reader.hello, reader.samples
    lengths_s = (samples.end_ns - samples.start_ns) / SECOND_NS
    events = reader.events(0, 2**62)
    steps = reader.allocation_steps()
    own_steps = [step for step in steps if step.device == MAIN_MEMORY]  # those of GPUs are the same ones once more
    start_ns, end_ns = _span(reader)
    rows = reader.process_samples(0, samples.newest) if len(samples) else []
    resident_memory = resident(samples, reader.processes())
    by_interval = groups(samples.intervals_ns(), samples.end_ns - samples.start_ns, exact=not samples.has_budget)
    alike = by_interval[0].windows if by_interval else np.ones(0, bool)
    alike_samples = set(samples.sample[alike].tolist())
    devices = sorted({step.device for step in steps} - {MAIN_MEMORY})
    budgeted = allowed(hello.options.max_overhead_ppm) and len(samples)
    return Report(
        memtui_version=hello.memtui_version,
        session=title,
        host=HostSummary(hello.host.hostname, hello.host.kernel, hello.host.cpu_count),
        target=TargetSummary(hello.target.pid, hello.target.command, hello.target.start_ticks),
        processes=process_summaries(reader, rows, alike_samples),
        tracker=hello.tracker,
        flush=hello.flush,
        rearm=hello.rearm,
        filter=hello.options.filter,
        rejected=tuple(RejectedTracker(tracker.name, tracker.reason, tracker.remedy) for tracker in hello.rejected),
        interval_s=hello.options.interval_ns / SECOND_NS,
        intervals_s=intervals_s(samples.asked_ns, hello.options.interval_ns),
        true_interval_s=median_of_known(lengths_s[alike]),
        windows=memory.window_groups(by_interval, samples.wss_bytes, lengths_s),
        duration_s=(end_ns - start_ns) / SECOND_NS,
        samples=len(samples),
        wss_bytes=memory.working_set(reader, alike),
        wss_largest=memory.largest_window(samples.wss_bytes, lengths_s),
        shared_bytes=memory.shared_memory(reader, alike),
        rss_bytes=memory.resident_set(samples.rss_bytes, resident_memory, lengths_s),
        pss_bytes=memory.proportional_set(resident_memory, rows, lengths_s),
        touched_fraction=memory.touched_of_resident(np.where(alike, samples.wss_bytes, np.nan), resident_memory),
        given_back_bytes=memory.released_memory(rows, alike_samples),
        reuse=reuse_summary(reader),
        budgeted_s=intervals_s(samples.intervals_ns(), 0) if budgeted else None,
        overhead=overhead_of(reader, rows, end_ns - start_ns),
        power=power_summaries(reader.power(0, 2**62)),
        training=training_summaries(reader, own_steps),
        imported=import_summary(reader),
        learning=learning_summaries(reader, own_steps),
        allocations=allocation_summary(reader, own_steps),
        device_allocations={
            device: allocation_summary(reader, [step for step in steps if step.device == device]) for device in devices
        },
        by_category=tensor_summary(reader),
        gaps=_gaps(reader, events, start_ns, end_ns),
        marks=tuple(
            Mark((event.t_ns - start_ns) / SECOND_NS, event.kind, event.text) for event in events if event.kind in MARKS
        ),
        warnings=tuple(event.text for event in events if event.kind == "warning"),
        disturbed=Disturbances(sum(map(bool, samples.disturbed)), dict(Counter(filter(None, samples.disturbed)))),
        thinned=Downsampled(reader.thinned_to_bytes) if reader.thinned_to_bytes is not None else None,
        lost=int(np.isnan(samples.wss_bytes).sum()) if hello.wss.ok else 0,
        end_reason=reader.end.text if reader.end else "",
        end=reader.end.kind if reader.end else ("recording" if reader.alive else "interrupted"),
    )


def budget_line(path: Path) -> str:
    """Return what became of the budget of a session, in a line; nothing where it has none, or the usual one.

    Raises:
        SessionError: the file cannot be read.
    """
    reader = Source(path)
    try:
        start_ns, end_ns = _span(reader)
        budget = overhead_of(reader, [], end_ns - start_ns).budget
        usual = reader.hello.options.max_overhead_ppm == DEFAULT_OVERHEAD_PPM
        return "" if budget is None or usual else budget_clause(budget)
    finally:
        reader.close()


def untraced(path: Path) -> str:
    """Return why a program that was to be traced reported no training step; empty where it did. Raises SessionError."""
    reader = Source(path)
    try:
        if reader.allocation_steps() or reader.training():
            return ""
    finally:
        reader.close()
    return (
        "no training step was recorded: no optimiser of torch.optim stepped (no PyTorch, or its loop updates weights "
        "itself), the program ended before its third step, or its Python takes no start-up hook (-I, -E, -S)"
    )


def _span(reader: ReportSource) -> tuple[int, int]:
    if not len(reader.samples):
        return reader.hello.clock.monotonic_ns, reader.hello.clock.monotonic_ns
    return int(reader.samples.start_ns[0]), int(reader.samples.end_ns[-1])


def _gaps(reader: ReportSource, events: list[Event], start_ns: int, end_ns: int) -> Gaps:
    samples = reader.samples
    return Gaps(
        processes=int(samples.gaps.sum()),
        end_s=max(reader.end.t_ns - end_ns, 0) / SECOND_NS if reader.end and len(samples) else 0.0,
        # A window that the recorder was too slow to take leaves its number missing.
        samples=samples.newest + 1 - len(samples) if len(samples) else 0,
        events=tuple(
            GapEvent((event.t_ns - start_ns) / SECOND_NS, event.text) for event in events if event.kind == "gap"
        ),
    )
