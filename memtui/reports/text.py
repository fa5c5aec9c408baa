"""The numbers of a report as lines of text; the lines of a part are in its ``*_summary`` module."""

from __future__ import annotations

from memtui.core.options import tracker_label
from memtui.core.samples import LONG_GAP_S, End
from memtui.core.text import printable
from memtui.core.units import between, duration, size
from memtui.reports import memory_summary as memory
from memtui.reports.allocation_summary import device_lines
from memtui.reports.counter_summary import counter_line
from memtui.reports.energy_summary import energy_lines
from memtui.reports.huge_page_share import huge_page_lines
from memtui.reports.import_summary import ImportSummary, import_lines
from memtui.reports.memory_limit import limit_lines
from memtui.reports.overhead_summary import overhead_line
from memtui.reports.post_mortem import post_mortem_lines
from memtui.reports.power_summary import power_line
from memtui.reports.process_summary import count_in_windows, process_lines, short_command_line
from memtui.reports.report import Report
from memtui.reports.reuse_summary import reuse_lines
from memtui.reports.stack_summary import stack_lines
from memtui.reports.tensor_summary import tensor_lines
from memtui.reports.training_summary import learning_lines, training_lines
from memtui.reports.verdict.verdict import verdict_lines

TEXT_COLUMN = 13  # in which the text of a line begins, after its name
LONG_GAP = 0.05  # of the recorded time: an end outside every window that gets a line


def format_report(report: Report) -> str:
    """Return the report as a page of text."""
    imported = report.imported
    lines = [
        *(_recorded_lines(report) if imported is None else _imported_lines(report, imported)),
        *training_and_tensor_lines(report),
        *map(power_line, report.power),
        *map(counter_line, report.gpu_counters),
        *energy_lines(report.energy),
        *process_lines(report.processes),
        *([f"{mark.kind:<12} at {mark.t_s:.1f} s: {mark.text}" for mark in report.marks] if imported is None else []),
        *_gap_lines(report),
        *_doubt_lines(report),
    ]
    return "\n".join(map(printable, lines))


def _imported_lines(report: Report, imported: ImportSummary) -> list[str]:
    """Return the lines of an imported file: its allocations and its marks."""
    return [f"session      {report.session}", *import_lines(imported)]


def _recorded_lines(report: Report) -> list[str]:
    """Return the lines of a recorded process."""
    processes = count_in_windows(report.processes)
    return [
        f"target       {short_command_line(report.target.command)} (pid {report.target.pid}) on {report.host.hostname}",
        f"session      {report.session}, {report.samples} samples in {recorded_time(report)}, {how_it_ended(report)}",
        f"tracker      {tracker_label(report.tracker)}, flush {report.flush}, filter {report.filter}, "
        f"asked {between(*map(duration, report.intervals_s))}, {budgeted(report)}"
        f"true {duration(report.true_interval_s)}",
        memory.working_set_line(report.wss_bytes, report.wss_largest, report.duration_s, report.gaps.end_s),
        *(f"windows      {sentence}" for sentence in memory.window_sentences(report.windows)),
        *memory.shared_lines(report.shared_bytes, report.wss_bytes, processes),
        *huge_page_lines(report.huge_page_share),
        *memory.resident_lines(report.rss_bytes, report.pss_bytes, report.touched_fraction.of),
        *memory.released_lines(report.given_back_bytes, report.wss_bytes, several=processes > 1),
        *limit_lines(report.memory_limit),
        *verdict_lines(report.verdict),
        *post_mortem_lines(report.post_mortem),
        *reuse_lines(report.reuse),
        overhead_line(report.overhead),
    ]


def training_and_tensor_lines(report: Report) -> list[str]:
    """Return the lines of trainings, recorded steps and tensors."""
    what = "training step" if report.imported is None else "stretch"
    return [
        *training_lines(report.training),
        *learning_lines(report.learning),
        *device_lines(report.allocations, report.device_allocations, what),
        *tensor_lines(report.by_category),
        *stack_lines(report.by_stack),
    ]


def _gap_lines(report: Report) -> list[str]:
    """Return the line of times outside every window."""
    gaps = report.gaps
    lines = [f"gap          at {gap.t_s:.1f} s: {gap.text}" for gap in gaps.events]
    if _is_long(gaps.end_s, report.duration_s):
        lines.append(f"gap          the last {duration(gaps.end_s)} are in no window: that one had not ended")
    if gaps.processes:
        lines.append(f"gap          {memory.births_and_ends(gaps.processes)}")
    return lines


def _doubt_lines(report: Report) -> list[str]:
    """Return the lines with other reasons why the numbers are less than exact."""
    lines = [f"warning      {text}" for text in report.warnings]
    lines += [
        f"disturbed    {count} window{'s' * (count != 1)}: {cause}" for cause, count in report.disturbed.causes.items()
    ]
    if report.thinned is not None:
        room = size(report.thinned.to_bytes)
        lines.append(
            f"downsampled  page sets had to make room to keep the file below {room} (--max-size), the oldest first"
        )
    if report.lost:
        lines.append(f"lost         {report.lost} window{'s' * (report.lost != 1)} without a working set")
    return lines


def recorded_time(report: Report) -> str:
    """Return the time of all windows, and that of the recording where a notable part of it is in no window."""
    windows_s, after_s = report.duration_s, report.gaps.end_s
    if not _is_long(after_s, windows_s):
        return duration(windows_s)
    return f"{duration(windows_s)} of {duration(windows_s + after_s)}"


def _is_long(gap_s: float, windows_s: float) -> bool:
    """Return whether the time after the last window is worth a line; ``windows_s``: the time of all windows."""
    return gap_s > min(LONG_GAP * max(windows_s, 1), LONG_GAP_S)


def budgeted(report: Report) -> str:
    """Return the interval under a budget, followed by a comma; "" without a budget."""
    return f"budgeted {between(*map(duration, report.budgeted_s))}, " if report.budgeted_s else ""


def how_it_ended(report: Report) -> str:
    """Return ``end`` and ``end_reason`` as text."""
    kind, reason = report.end, report.end_reason
    if kind == "recording":
        return "still recording"
    if kind == "target exited":
        return f"ended: {End(0, kind, reason).description}"
    return f"ended: {kind}" + (f" ({reason})" if reason else "")
