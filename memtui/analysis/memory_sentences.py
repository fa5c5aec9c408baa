"""What was measured of memory, and what that cost, in sentences: those of the report and of the screen."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.analysis.miss_ratio import bounds_are_close
from memtui.analysis.resident import PSS, RSS
from memtui.core.units import duration, percent, size

Forms = tuple[str, ...]  # of one sentence, the longest first


@dataclass(frozen=True, slots=True)
class Figures:
    """What the sentences speak of, of some windows. None is a figure that is not known: its sentence is left out."""

    window_s: float | None = None  # the true length of a window
    wss_median_bytes: float | None = None
    wss_max_bytes: float | None = None
    resident_bytes: float | None = None  # the median of the windows whose working set is known
    reuse_bytes: tuple[float, float] | None = None  # between which 95 % of the returning touches come back
    paused_fraction: float | None = None  # of the time
    own_cpu: float | None = None  # cores that sampler and recorder took
    touched_fraction: float | None = None  # of the resident memory, where both count shared pages in the same way
    resident: str = RSS  # what the resident memory is: that of one process, or the PSS of several
    lost_fraction: float | None = None  # of the time: what the program lost by being watched, an estimate


def in_words(figures: Figures) -> list[Forms]:
    """Return the sentences about some figures, the one that matters most first."""
    return [forms for forms in (_working_set(figures), _reuse(figures), _cost(figures)) if forms]


def fitting(sentences: list[Forms], width: int, rows: int) -> list[str]:
    """Return the lines of as many sentences as have room, each in its longest form that has.

    One that has no room in any form is left out; those after it may still fit.
    """
    lines: list[str] = []
    for forms in sentences:
        for form in forms:
            tried = _filled(lines, form, width)
            if len(tried) <= rows:
                lines = tried
                break
    return lines


def _filled(lines: list[str], words: str, width: int) -> list[str]:
    """Return the lines with more words behind them."""
    out = list(lines)
    for word in words.split(" "):
        if out and len(out[-1]) + 1 + len(word) <= width:
            out[-1] += f" {word}"
        else:
            out.append(word)
    return out


def _working_set(figures: Figures) -> Forms:
    wss, most, fraction = figures.wss_median_bytes, figures.wss_max_bytes, figures.touched_fraction
    if wss is None or most is None:
        return ()
    begin = f"In a window of {duration(figures.window_s)} the program touches {size(wss)} in the median"
    end = f", and {size(most)} at most."
    if fraction is None:
        return begin + end, f"{begin}."
    kind = " (PSS)" if figures.resident == PSS else ""
    share = f", {percent(fraction)} of the {size(figures.resident_bytes)} that are resident{kind}"
    return begin + share + end, f"{begin}{share}.", f"{begin}."


def _reuse(figures: Figures) -> Forms:
    """Return the sentence, or none where the bounds are too far apart to tell anything."""
    if figures.reuse_bytes is None or not bounds_are_close(*figures.reuse_bytes):
        return ()
    return (
        f"An LRU memory of {size(figures.reuse_bytes[1])} would hold 95 % of the touches of pages that were touched "
        "before, as far as windows of this length tell.",
    )


def _cost(figures: Figures) -> Forms:
    if figures.paused_fraction is None or figures.own_cpu is None:
        return ()
    held = f"it was held for {percent(figures.paused_fraction)} of the time"
    took = f"memtui took {percent(figures.own_cpu)} of one CPU"
    if figures.lost_fraction is None:
        return (f"To see this, {held}, and {took}.",)
    slowed = f"Watching slowed it by about {percent(figures.lost_fraction)}"
    return f"{slowed}: {held}, and {took}.", f"{slowed}."
