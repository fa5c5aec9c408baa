"""Bytes by call stack: what a capture says was allocated, and what recorded windows say was touched and resident."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.stack_capture import StackCapture
from memtui.analysis.stack_use import StackUse, covers, has_places, stack_use
from memtui.reports.source import ReportSource
from memtui.reports.window_means import spread
from memtui.session.page_windows import Window, windows_of

NOT_JOINED = "no recording of this process: memtui import CAPTURE --join SESSION"
NO_PLACES = "the file has no addresses or no times, which a capture of memray has"
NOT_RESIDENT = "not recorded: memtui record --keep-resident"
_F = NDArray[np.float64]
Windows = NDArray[np.int64] | None
Columns = list[_F | None]
"""One number for each stack, or group of stacks, in each; None: not known."""


@dataclass(frozen=True, slots=True, eq=False)
class StackSums:
    """Sums by stack, f8[stacks + 1] each; the last number is of blocks without a known stack.

    Attributes:
        capture: what was captured.
        most_bytes: the most that was allocated at once.
        peak_bytes: allocated when most was.
        left_bytes: allocated at the end of the capture.
        allocations: how often it allocated.
        windows: count of the windows that the next ones are means of.
        there_windows: in how many of them there was a block all the time.
        there_bytes: of blocks that were there in the whole window.
        touched_bytes: of these, what was touched.
        resident_bytes: of these, what was resident; None: not known, with a reason.
        passing_bytes: touched where blocks of this stack alone came or went.
        shared_bytes: touched where blocks of several stacks came or went.
        outside_bytes: touched where no block was.
        reason: why no window counts.
        resident_reason: why it is not known what was resident.
    """

    capture: StackCapture
    most_bytes: int
    peak_bytes: _F
    left_bytes: _F
    allocations: _F
    windows: int = 0
    there_windows: NDArray[np.int64] | None = None
    there_bytes: _F | None = None
    touched_bytes: _F | None = None
    resident_bytes: _F | None = None
    passing_bytes: _F | None = None
    shared_bytes: float | None = None
    outside_bytes: float | None = None
    reason: str = ""
    resident_reason: str = ""


def stack_sums(reader: ReportSource) -> list[StackSums]:
    """Return the sums of every captured process. Raises SessionError."""
    return [sums_of(reader, capture) for capture in reader.captures()]


def sums_of(reader: ReportSource, capture: StackCapture) -> StackSums:
    """Return the sums of one capture. Raises SessionError."""
    allocated = allocated_by(capture)
    windows, reason = covered_windows(reader, capture)
    if reason:
        return replace(allocated, reason=reason)
    resident = {window.sample for window in windows} & set(reader.resident_samples(windows[0].process))
    if resident:
        windows = [window for window in windows if window.sample in resident]
    chosen = [windows[number] for number in spread(len(windows)).tolist()]
    uses = [use for window in chosen if (use := use_of(reader, capture, window)) is not None]
    if not uses:
        return replace(allocated, reason="no pages are stored of a window within the capture")
    return _with_uses(allocated, uses)


def allocated_by(capture: StackCapture) -> StackSums:
    """Return what a capture says by itself."""
    blocks = capture.blocks
    most_bytes, peak_row = capture.peak()
    peak_bytes, _ = capture.sums(blocks.alive_after(peak_row))
    left_bytes, _ = capture.sums(blocks.freed >= capture.rows)
    _, allocations = capture.sums(np.ones(len(blocks), bool))
    return StackSums(
        capture,
        most_bytes,
        peak_bytes=peak_bytes.astype(float),
        left_bytes=left_bytes.astype(float),
        allocations=allocations.astype(float),
    )


def covered_windows(reader: ReportSource, capture: StackCapture) -> tuple[list[Window], str]:
    """Return the windows that a capture covers, and why there is none. Raises SessionError."""
    if not has_places(capture):
        return [], NO_PLACES
    keys = {process.key for process in reader.processes() if process.pid == capture.pid}
    if not keys or not len(reader.samples):
        return [], NOT_JOINED
    windows = [
        window
        for window in windows_of(reader.process_samples, reader.samples, keys)
        if covers(capture, window.start_ns, window.end_ns)
    ]
    return windows, "" if windows else "no window lies within the capture"


def use_of(reader: ReportSource, capture: StackCapture, window: Window) -> StackUse | None:
    """Return the use of one window; None where none of its pages are stored. Raises SessionError."""
    pages = reader.page_set(window.sample, window.process)
    if pages is None:
        return None
    return stack_use(capture, window.start_ns, window.end_ns, pages, reader.resident_set(window.sample, window.process))


def _with_uses(allocated: StackSums, uses: list[StackUse]) -> StackSums:
    resident = [use.resident_bytes for use in uses if use.resident_bytes is not None]
    return replace(
        allocated,
        windows=len(uses),
        there_windows=np.sum([use.steady_bytes > 0 for use in uses], axis=0),
        there_bytes=_mean([use.steady_bytes for use in uses]),
        touched_bytes=_mean([use.touched_bytes for use in uses]),
        resident_bytes=_mean(resident) if len(resident) == len(uses) else None,
        passing_bytes=_mean([use.passing_bytes for use in uses]),
        shared_bytes=float(np.mean([use.shared_bytes for use in uses])),
        outside_bytes=float(np.mean([use.outside_bytes for use in uses])),
        resident_reason="" if len(resident) == len(uses) else NOT_RESIDENT,
    )


def _mean(values: list[NDArray[np.int64]]) -> _F:
    mean: _F = np.mean(values, axis=0)
    return mean
