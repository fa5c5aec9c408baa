"""The numbers of a session: ``Report`` has all of them, and its parts are in the ``*_summary`` modules.

A part is a dataclass, the function that builds it from a session, and its lines of text. A new number of the report is
a field of a part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.alike import groups
from memtui.analysis.overhead_budget import allowed
from memtui.analysis.resident import RSS, has_all_processes, resident
from memtui.analysis.resident_readings import resident_readings, rss_readings, windows_without
from memtui.core.fast_numpy import intervals_s
from memtui.core.json_fields import fields_to_json
from memtui.core.options import DEFAULT_OVERHEAD_PPM
from memtui.core.samples import Event
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.reports import memory_summary as memory
from memtui.reports.allocation_summary import AllocationSummary, allocation_summary
from memtui.reports.counter_summary import CounterSummary, counter_summaries
from memtui.reports.energy_summary import EnergySummary, energy_summary
from memtui.reports.huge_page_share import huge_page_share
from memtui.reports.import_summary import ImportSummary, import_summary
from memtui.reports.memory_limit import LimitSummary, last_limit
from memtui.reports.overhead_summary import Overhead, budget_clause, overhead_of
from memtui.reports.post_mortem import PostMortem, post_mortem
from memtui.reports.power_summary import PowerSummary, power_summaries
from memtui.reports.process_summary import ProcessSummary, process_summaries
from memtui.reports.redact import open_source
from memtui.reports.reuse_summary import ReuseSummary, reuse_summary
from memtui.reports.size_summary import SizeSummary, finite_median
from memtui.reports.source import ReportSource, Source
from memtui.reports.stack_summary import StackSummary, stack_summaries
from memtui.reports.tensor_summary import TensorSummary, tensor_summary
from memtui.reports.training_summary import LearningSummary, TrainingSummary, learning_summaries, training_summaries
from memtui.reports.verdict.verdict import Verdict, last_verdict
from memtui.session.sample_arrays import SampleArrays

SECOND_NS = 1e9
MARK_KINDS = ("mark", "interval", "exec", "stopped")  # kinds of events that are not a defect


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
    """An event at a moment, seconds after the first window."""

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
    """Times and processes outside every window.

    Attributes:
        processes: number of processes that started or ended inside a window.
        end_s: duration of the session after the last window.
        samples: number of windows that the recorder was too slow to store.
        events: reported gaps.
    """

    processes: int
    end_s: float
    samples: int
    events: tuple[GapEvent, ...]


@dataclass(frozen=True, slots=True)
class Disturbances:
    """Number of disturbed windows, and their number by cause."""

    samples: int
    causes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Downsampled:
    """The size of the file at which page sets were downsampled."""

    to_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of a session, in the order of the document.

    Attributes:
        memtui_version, session, host, target: recorder, name of the session, machine and program.
        processes: every process that existed in a window.
        tracker, flush, rearm, filter: how pages were tracked, and which of them were stored.
        rejected: trackers that could not be used.
        interval_s, intervals_s: first requested interval, and the shortest and longest later on.
        true_interval_s: median length of the windows of the working-set figures.
        windows: windows by interval; figures of the working set are those of the first group.
        duration_s, samples: time from the first window to the last, and number of windows.
        wss_bytes, wss_largest, shared_bytes: working set, largest window, and the part that processes share.
        huge_page_share: share of huge pages in it.
        rss_bytes, pss_bytes, touched_fraction: resident memory, and the touched part of it.
        given_back_bytes: released memory in a window.
        reuse: reuse distances.
        budgeted_s: shortest and longest interval under a budget; None without a budget.
        overhead: cost of recording.
        power: mean power and energy of each source.
        gpu_counters: how busy the parts of each GPU were, and its traffic.
        energy: energy of the recorded time by part of the machine; None where no power was recorded.
        training, learning: training steps, and progress of learning, of each process that reported them.
        imported: origin of the session; None where memtui recorded it.
        allocations, device_allocations: recorded steps in main memory, and on each other device.
        by_category: working set by tensor; None: not traced.
        by_stack: bytes by call stack, of each process that memray captured.
        gaps, marks, warnings, disturbed: events during the recording.
        thinned: file size at which page sets were downsampled; None where they were not.
        lost: number of windows without a working set.
        memory_limit: how much memory was left at the end, where least was left; None where that was not read.
        verdict: what the rules say at the end; None without a window.
        post_mortem: what grew before the program was killed or failed; None where it was not.
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
    wss_bytes: memory.WorkingSetSummary
    wss_largest: memory.LargestWindow
    shared_bytes: SizeSummary
    huge_page_share: float | None
    rss_bytes: memory.ResidentSummary
    pss_bytes: memory.ResidentSummary
    touched_fraction: memory.TouchedFraction
    given_back_bytes: memory.ReleasedSummary
    reuse: ReuseSummary
    budgeted_s: tuple[float, float] | None
    overhead: Overhead
    power: tuple[PowerSummary, ...]
    gpu_counters: tuple[CounterSummary, ...]
    energy: EnergySummary | None
    training: tuple[TrainingSummary, ...]
    imported: ImportSummary | None
    learning: tuple[LearningSummary, ...]
    allocations: AllocationSummary | None
    device_allocations: Mapping[str, AllocationSummary | None]
    by_category: TensorSummary | None
    by_stack: tuple[StackSummary, ...]
    gaps: Gaps
    marks: tuple[Mark, ...]
    warnings: tuple[str, ...]
    disturbed: Disturbances
    thinned: Downsampled | None
    lost: int
    memory_limit: LimitSummary | None
    verdict: Verdict | None
    post_mortem: PostMortem | None
    end_reason: str
    end: str

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``report --json``; docs/reference/schemas describe it."""
        return fields_to_json(self)


def build_report(path: Path, *, redact: bool = False, gco2_per_kwh: float | None = None) -> Report:
    """Return the report of a session file, on request without host, user, paths and addresses.

    Args:
        path: of the session.
        redact: leave out host, user, paths and addresses.
        gco2_per_kwh: grams of CO2 of a kilowatt hour, as the user says; None: no CO2 in the report.

    Raises:
        SessionError: the file cannot be read.
    """
    reader = open_source(path, redact=redact)
    try:
        return report_of(reader, reader.title, gco2_per_kwh)
    finally:
        reader.close()


def own_lengths_ns(samples: SampleArrays, measured: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the lengths of windows: i8[n]. A lost one, which may start with the one before it, counts from its end."""
    start_ns, end_ns = samples.start_ns[:], samples.end_ns[:]
    before_ns = np.concatenate((start_ns[:1], end_ns[:-1]))
    return np.asarray(end_ns - np.where(measured, start_ns, np.maximum(start_ns, before_ns)))


def report_of(reader: ReportSource, title: str, gco2_per_kwh: float | None = None) -> Report:
    """Return the report of a session that is open, under a title of its own. Raises SessionError."""
    hello, samples = reader.hello, reader.samples
    lengths_s = (samples.end_ns - samples.start_ns) / SECOND_NS
    events = reader.events(0, 2**62)
    steps = reader.allocation_steps()
    own_steps = [step for step in steps if step.device == MAIN_MEMORY]  # a step has a row for each device
    start_ns, end_ns = _span(reader)
    rows = reader.process_samples(0, samples.newest) if len(samples) else []
    power_readings = reader.power(0, 2**62)
    uses = memory.memory_uses(reader)
    resident_memory = resident(samples, reader.processes(), uses)
    readings = resident_readings(samples, resident_memory, uses)
    lost = windows_without(resident_memory, samples, readings)
    rss = memory.resident_set(rss_readings(samples, uses), resident_memory.name)
    has_wss = np.isfinite(samples.wss_bytes)
    own_ns = own_lengths_ns(samples, has_wss)
    by_interval = groups(samples.intervals_ns(), own_ns, has_wss, exact=not samples.has_budget)
    alike = by_interval[0].windows if by_interval else np.ones(0, bool)
    alike_samples = set(samples.sample[alike].tolist())
    whole = alike & has_all_processes(samples.gaps[:])
    released = memory.released_memory(reader, rows, alike)
    working_set = memory.working_set(reader, alike, released)
    devices = sorted({step.device for step in steps} - {MAIN_MEMORY})
    budgeted = allowed(hello.options.max_overhead_ppm) and len(samples)
    return Report(
        memtui_version=hello.memtui_version,
        session=title,
        host=HostSummary(hello.host.hostname, hello.host.kernel, hello.host.cpu_count),
        target=TargetSummary(hello.target.pid, hello.target.command, hello.target.start_ticks),
        processes=process_summaries(reader, rows, alike_samples, rss.mean if resident_memory.name == RSS else None),
        tracker=hello.tracker,
        flush=hello.flush,
        rearm=hello.rearm,
        filter=hello.options.filter,
        rejected=tuple(RejectedTracker(tracker.name, tracker.reason, tracker.remedy) for tracker in hello.rejected),
        interval_s=hello.options.interval_ns / SECOND_NS,
        intervals_s=intervals_s(samples.asked_ns[:], hello.options.interval_ns),
        true_interval_s=finite_median(lengths_s[alike]),
        windows=memory.window_groups(by_interval, samples.wss_bytes[:], own_ns / SECOND_NS),
        duration_s=(end_ns - start_ns) / SECOND_NS,
        samples=len(samples),
        wss_bytes=working_set,
        wss_largest=memory.largest_window(samples.wss_bytes[:], lengths_s),
        shared_bytes=memory.shared_memory(reader, alike),
        huge_page_share=huge_page_share(reader, rows, alike_samples),
        rss_bytes=rss,
        pss_bytes=memory.proportional_set(resident_memory, rows, readings, lost),
        touched_fraction=memory.touched_of_resident(np.where(whole, samples.wss_bytes, np.nan), resident_memory),
        given_back_bytes=released,
        reuse=reuse_summary(reader, working_set),
        budgeted_s=intervals_s(_budgeted_ns(reader), 0) if budgeted else None,
        overhead=replace(overhead_of(reader, rows, end_ns - start_ns), traced_fraction=reader.traced_fraction()),
        power=power_summaries(power_readings),
        gpu_counters=counter_summaries(power_readings),
        energy=energy_summary(power_readings, start_ns, end_ns, gco2_per_kwh),
        training=training_summaries(reader, own_steps),
        imported=import_summary(reader),
        learning=learning_summaries(reader, own_steps),
        allocations=allocation_summary(reader, own_steps),
        device_allocations={
            device: allocation_summary(reader, [step for step in steps if step.device == device]) for device in devices
        },
        by_category=tensor_summary(reader),
        by_stack=stack_summaries(reader),
        gaps=_gaps(reader, events, start_ns, end_ns),
        marks=tuple(
            Mark((event.t_ns - start_ns) / SECOND_NS, event.kind, event.text)
            for event in events
            if event.kind in MARK_KINDS
        ),
        warnings=tuple(event.text for event in events if event.kind == "warning"),
        disturbed=Disturbances(sum(map(bool, samples.disturbed)), dict(Counter(filter(None, samples.disturbed)))),
        thinned=Downsampled(reader.downsampled_to_bytes) if reader.downsampled_to_bytes is not None else None,
        lost=int(np.isnan(samples.wss_bytes).sum()) if hello.wss.ok else 0,
        memory_limit=last_limit(reader),
        verdict=last_verdict(reader),
        post_mortem=post_mortem(reader),
        end_reason=reader.end.text if reader.end else "",
        end=reader.end.kind if reader.end else ("recording" if reader.alive else "interrupted"),
    )


def budget_line(path: Path) -> str:
    """Return a line on the budget of a session and its cost; "" where it has no budget, or the default budget.

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


def _budgeted_ns(reader: ReportSource) -> np.ndarray:
    """Return the intervals of all windows, and of one that had not ended after as long as the last one."""
    samples = reader.samples
    intervals_ns, next_ns = samples.intervals_ns(), samples.next_ns[-1]
    waited_ns = reader.end.t_ns - samples.end_ns[-1] if reader.end else 0
    return np.append(intervals_ns, int(next_ns)) if waited_ns > intervals_ns[-1] and next_ns > 0 else intervals_ns


def _span(reader: ReportSource) -> tuple[int, int]:
    if not len(reader.samples):
        return reader.hello.clock.monotonic_ns, reader.hello.clock.monotonic_ns
    return int(reader.samples.start_ns[0]), int(reader.samples.end_ns[-1])


def _gaps(reader: ReportSource, events: list[Event], start_ns: int, end_ns: int) -> Gaps:
    samples = reader.samples
    return Gaps(
        processes=int(samples.gaps.sum()),
        end_s=max(reader.end.t_ns - end_ns, 0) / SECOND_NS if reader.end and len(samples) else 0.0,
        # The number of a window that the recorder was too slow to store is missing.
        samples=samples.newest + 1 - len(samples) if len(samples) else 0,
        events=tuple(
            GapEvent((event.t_ns - start_ns) / SECOND_NS, event.text) for event in events if event.kind == "gap"
        ),
    )
