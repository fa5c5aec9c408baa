"""What is shown of several sessions over one another: values for widgets, for text and for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memtui.analysis.lines import Line
from memtui.core.options import LETTERS
from memtui.reports.power_summary import PowerSummary


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One training.

    Attributes:
        title: network and rule, and the file where two are called the same.
        loss, accuracy, memory: over iterations, from 1; percent; bytes that tensors hold at the fullest moments.
        loss_s, accuracy_s, memory_s: the same over seconds since the training began.
        step: of the recorded iteration that took most: bytes above its start, over the share of its
            allocations and frees that have happened, in percent.
        iterations: how many there were.
        last_accuracy, best_accuracy, last_loss: percent; None: not measured.
        step_ms: median length of an iteration; None: not known.
        peak_above_start_bytes: of the recorded iteration that took most; None: none was recorded whole.
        peak_bytes: all that was held then.
        peak_parts: bytes by category at that moment.
        segment: the layers that this was in, in words.
        one_segment: the rule keeps one segment at a time, so that this one alone sets the peak.
    """

    title: str
    loss: Line
    accuracy: Line
    memory: Line
    loss_s: Line
    accuracy_s: Line
    memory_s: Line
    step: Line
    iterations: int
    last_accuracy: float | None
    best_accuracy: float | None
    last_loss: float | None
    step_ms: float | None
    peak_above_start_bytes: int | None
    peak_bytes: int | None
    peak_parts: dict[str, int]
    segment: str
    one_segment: bool


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What was recorded of the memory of a program, or the same in longer windows.

    Attributes:
        interval_s: windows that were asked for, shortest and longest.
        wss, rss, mapped: bytes over seconds since the first window began; ``mapped``: address space.
        resident: what ``rss`` is, ``analysis.resident``: of several processes their PSS, or the sum of their RSS.
        reuse: percent of all touches that a memory of so many bytes certainly holds (LRU), first touches among them.
        figures: numbers with units in their names, of ``load.figures``; None: not known.
        reasons: why, by the name of a figure.
        power: of each source, as in a report.
    """

    interval_s: tuple[float, float]
    wss: Line
    rss: Line
    mapped: Line
    reuse: Line
    figures: Mapping[str, float | None]
    reasons: Mapping[str, str] = field(default_factory=dict)
    power: Sequence[PowerSummary] = ()
    resident: str = "RSS"


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A session that is compared.

    Attributes:
        name: of its file, as short as tells it apart.
        program: what ran.
        conditions: under which it was recorded, in words, by what they are.
        training: None where it tells of none.
        memory: None where no window was recorded.
        doubts: what makes its numbers less than exact.
    """

    name: str
    program: str
    conditions: Mapping[str, str]
    training: Run | None
    memory: Memory | None
    doubts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SameWindows:
    """Sessions of different windows in windows of one length, of the pages that were stored of one process each.

    Attributes:
        interval_s: the length.
        memories: in the order of the sessions; None where it cannot be derived.
        reasons: why, by index in that order.
        reason: why there is none at all; empty where there are some.
    """

    interval_s: float
    memories: Sequence[Memory | None]
    reasons: Mapping[int, str] = field(default_factory=dict)
    reason: str = ""


def change_words(run: Run, first: Run) -> str:
    """Return how much less or more memory a training takes than another one at its peak, above the start."""
    if run is first or not run.peak_above_start_bytes or not first.peak_above_start_bytes:
        return ""
    return against(run.peak_above_start_bytes, first.peak_above_start_bytes)


def against(value: float | None, first: float | None) -> str:
    """Return how much more than another value one is, ``+4.2 %``; empty where one of them is not known, or nothing."""
    if value is None or not first:
        return ""
    return f"{value / first - 1:+.1%}".replace("%", " %").replace("-", "−")


def letters(indices: Sequence[int]) -> str:
    """Return ``A, B and C``."""
    names = [LETTERS[index] for index in indices]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
