"""Sentences of the report and the screen about measured memory and the cost of measuring it."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.analysis.miss_ratio import bounds_are_close
from memtui.analysis.resident import PSS, RSS
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.units import about_percent, duration, percent, size

Forms = tuple[str, ...]  # of one sentence, the longest first
FEW_WINDOWS = 5  # a median of fewer may be none of their values: it is said of how many it is
DIFFERENT = 0.05  # of a working set: another one that stands beside it has its own number


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of some windows for the sentences. None is a figure that is not known: its sentence is left out."""

    window_s: float | None = None  # the true length of a window
    wss_median_bytes: float | None = None
    wss_max_bytes: float | None = None
    resident_bytes: float | None = None  # the median of the windows whose working set is known
    reuse_bytes: tuple[float, float] | None = None  # between which 95 % of the returning touches come back
    paused_fraction: float | None = None  # of the time
    own_cpu: float | None = None  # cores that sampler and recorder took
    touched_fraction: float | None = None  # of the resident memory, where both count shared pages in the same way
    resident: str = RSS  # what the resident memory is: that of one process, or the PSS of several
    lost_fraction: float | None = None  # of the time: estimate of the program's loss by being watched
    reuse_estimate_bytes: float | None = None  # of those 95 %, for random order inside each window
    may_lack_pages: bool = False  # of most windows it is known that more may have been touched, and not less
    windows: int | None = None  # how many of that length
    is_estimated: bool = False  # the working set, from a part of the memory in each window
    traced_fraction: float | None = None  # of the time: estimate of the program's loss by tracing its training steps
    until_next: bool = False  # the costs are those until the next window will end, which pays for the last one


def sentences_of(figures: Figures) -> list[Forms]:
    """Return the sentences about some figures, the most important sentence first."""
    return [forms for forms in (_working_set(figures), _reuse(figures), _cost(figures)) if forms]


def fitting(sentences: list[Forms], width: int, rows: int) -> list[str]:
    """Return the lines of as many sentences as fit, each in the longest form that fits.

    A sentence that does not fit in any form is left out; the sentences after it may still fit.
    """
    lines: list[str] = []
    for forms in sentences:
        for form in forms:
            tried = _filled(lines, form, width)
            if len(tried) <= rows:
                lines = tried
                break
    return lines


def _filled(lines: list[str], text: str, width: int) -> list[str]:
    """Return the lines with more text appended."""
    out = list(lines)
    for word in text.split(" "):
        if out and len(out[-1]) + 1 + len(word) <= width:
            out[-1] += f" {word}"
        else:
            out.append(word)
    return out


def _working_set(figures: Figures) -> Forms:
    wss, most, fraction = figures.wss_median_bytes, figures.wss_max_bytes, figures.touched_fraction
    if wss is None or most is None:
        return ()
    least, ends = ("at least ", ["."]) if figures.may_lack_pages else ("", [f", and {size(most)} at most.", "."])
    length, which, median = duration(figures.window_s), "a window", " in the median"
    if figures.windows == 1:
        which, median, ends = "the one window", "", ["."]
    elif figures.windows is not None and figures.windows < FEW_WINDOWS:
        which = f"{figures.windows} windows"
    estimated = " (estimated)" * figures.is_estimated
    start = f"In {which} of {length} the program touches {least}{size(wss)}{estimated}{median}"
    if fraction is None:
        return tuple(start + end for end in ends)
    kind = "PSS" if figures.resident == PSS else "resident memory"
    of_them = "" if figures.windows == 1 else "median "
    share = f" ({percent(fraction)} of the {kind} then, {of_them}{size(figures.resident_bytes)})"
    touched_bytes = fraction * (figures.resident_bytes or 0.0)
    if abs(touched_bytes - wss) > DIFFERENT * wss:  # of fewer windows than the working set
        share = (
            f" ({size(touched_bytes)} of {size(figures.resident_bytes)} where the {kind} is known, {percent(fraction)})"
        )
    return (*(start + share + end for end in ends), f"{start}.")


def _reuse(figures: Figures) -> Forms:
    """Return the sentence; an empty tuple where the bounds say too little, or do not hold for want of pages."""
    if figures.reuse_bytes is None or figures.may_lack_pages:
        return ()
    what = "would hold 95 % of the touches of pages that were touched before"
    if bounds_are_close(*figures.reuse_bytes):
        return (f"An LRU memory of {size(figures.reuse_bytes[1])} {what}, as far as windows of this length tell.",)
    if figures.reuse_estimate_bytes is None:
        return ()
    estimate, (low, high) = size(figures.reuse_estimate_bytes), figures.reuse_bytes
    bounds = f"between {size(low)} and {size(high)}" if low > PAGE_BYTES else f"{size(high)} at most"
    return (f"An LRU memory of about {estimate} ({bounds}) {what}, if their order inside each window is random.",)


def _cost(figures: Figures) -> Forms:
    if figures.paused_fraction is None or figures.own_cpu is None:
        return ()
    who = "it" if figures.resident == RSS else "one or another of its processes"
    paused = f"{who} was held for {percent(figures.paused_fraction)} of the time"
    took = f"memtui took {percent(figures.own_cpu)} of one CPU"
    is_traced, traced = figures.traced_fraction is not None, about_percent(figures.traced_fraction)
    if figures.lost_fraction is None:
        return (f"To see this, {paused}, and {took}" + f", and tracing {traced} of its time" * is_traced + ".",)
    when = "With the time until the next window" if figures.until_next else "So far"
    slowed = (
        f"{when} watching cost it {about_percent(figures.lost_fraction)}" + f", and tracing {traced} more" * is_traced
    )
    return f"{slowed}: {paused}, and {took}.", f"{slowed}."
