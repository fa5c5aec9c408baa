"""Parts of the title of the screen of recorded steps, each with its rank: those of a higher rank give way first."""

from __future__ import annotations

from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.session.tables.allocations import RecordedStep
from memtui.session.tables.imported import ImportedFrom
from memtui.widgets import text


def allocator_title(step: RecordedStep) -> list[tuple[str, int]]:
    """Return what the allocator of a GPU held at most, in parts with their ranks."""
    if step.allocated_peak_bytes is None:
        return [(" requested, allocated n/a", 3)] if step.allocator_reason else []
    return [
        (f" requested, {text.size(step.allocated_peak_bytes)} allocated", 2),
        (f", {text.size(step.reserved_peak_bytes)} reserved", 3),
    ]


def imported_title(about: ImportedFrom, step: RecordedStep, start_ns: int | None) -> list[tuple[str, int]]:
    """Return file, part of the file and peak of an imported step, in parts with their ranks.

    ``start_ns`` None: the step is all of the file.
    """
    part = ""
    if start_ns is not None and about.counts:
        part = f" {about.clock} {step.start_ns} to {step.end_ns}"
    elif start_ns is not None:
        first, last = ((t_ns - start_ns) / 1e9 for t_ns in (step.start_ns, step.end_ns))
        part = f" {text.duration(first)} to {text.duration(last)}"
    what = "allocated from the driver" if about.driver else "peak"
    where = "" if about.driver else f" at {step.peak_op.rpartition('/')[2] or 'its begin'}"
    return [
        (f"   {text.clean(about.file)}", 2),
        (f" ({text.clean(about.format)})", 6),
        (f" on {step.device}" if step.device != MAIN_MEMORY else "", 3),
        (part, 4),
        (f"   {what} {text.size(step.peak_bytes)}", 2),
        (where, 5),
        (f" · {len(about.warnings)} warnings (memtui report)" if about.warnings else "", 3),
    ]
