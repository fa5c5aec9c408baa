"""The values of a comparison of sessions, for widgets, for text and for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memtui.analysis.lines import Line
from memtui.core.options import LETTERS
from memtui.core.units import between, duration
from memtui.reports.power_summary import PowerSummary

OF_BURSTS = ("burst_p50_estimate_bytes", "burst_p95_estimate_bytes")  # figures that few sessions have


@dataclass(frozen=True, slots=True, eq=False)
class ComparedTraining:
    """One training.

    Attributes:
        title: network and rule, and the file where two titles are equal.
        loss, accuracy, memory: over iterations, from 1; accuracy in percent; peak bytes of tensors.
        loss_s, accuracy_s, memory_s: the same over seconds since the start of the training.
        step: bytes above the start, of the recorded iteration with the highest peak, over the share of its
            allocations and frees that have happened, in percent.
        iterations: number of iterations.
        last_accuracy, best_accuracy, last_loss: percent; None: not measured.
        step_ms: median length of an iteration; None: unknown.
        peak_above_start_bytes: peak of that iteration; None: no iteration was recorded whole.
        peak_bytes: all allocated memory at that peak.
        peak_parts: bytes by category at that moment.
        segment: layers of that peak, as text.
        one_segment: whether the rule stores one segment at a time, so that this segment alone sets the peak.
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
class RecordedMemory:
    """The recorded memory of a program, or the same in longer windows.

    Attributes:
        interval_s: shortest and longest requested interval.
        wss, rss, mapped: bytes over seconds since the start of the first window; ``mapped``: address space.
        resident: figure of ``rss``, ``analysis.resident``: of several processes their PSS, or the sum of their RSS.
        reuse: percent of all touches, first touches included, that an LRU memory certainly holds, over its bytes.
        figures: numbers with units in their names, of ``load.figures``; None: unknown.
        reasons: why a figure is unknown, by its name.
        power: power of each source, as in a report.
        lower_bound: of most windows of the working-set figures it is known that more may have been touched.
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
    lower_bound: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ComparedSession:
    """A session of a comparison.

    Attributes:
        name: shortest unique name of its file.
        program: command line of the target.
        conditions: conditions of the recording as text, by name.
        training: first training; None without a training.
        memory: recorded memory; None without a window.
        doubts: reasons why its numbers are less than exact.
    """

    name: str
    program: str
    conditions: Mapping[str, str]
    training: ComparedTraining | None
    memory: RecordedMemory | None
    doubts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CommonWindows:
    """Sessions of different windows in windows of one length.

    Shorter windows are merged, of the pages that were stored of one process each; or, where a budget moved the
    interval, windows are selected that took about as long in all sessions.

    Attributes:
        interval_s: the length of merged windows; 0: none were merged.
        memories: memory in the order of the sessions; None where it cannot be derived.
        reasons: why it cannot be derived, by index of the session.
        reason: why it can be derived for no session; "" otherwise.
        selected_s: the shortest and the longest of selected windows; None: none were selected.
    """

    interval_s: float
    memories: Sequence[RecordedMemory | None]
    reasons: Mapping[int, str] = field(default_factory=dict)
    reason: str = ""
    selected_s: tuple[float, float] | None = None

    @property
    def windows(self) -> str:
        """The windows of all sessions: ``windows of 2.0 s, merged``, or ``windows of 4.5 s to 6.3 s``."""
        if self.selected_s is None:
            return f"windows of {duration(self.interval_s)}, merged"
        return f"windows of {between(*map(duration, self.selected_s))}"


def change_text(run: ComparedTraining, first: ComparedTraining) -> str:
    """Return the relative change of a training's peak above its start to that of the first training, as text."""
    if run is first or not run.peak_above_start_bytes or not first.peak_above_start_bytes:
        return ""
    return against(run.peak_above_start_bytes, first.peak_above_start_bytes)


def against(value: float | None, first: float | None) -> str:
    """Return the relative change of a value to the first, ``+4.2 %``; "" where one of them is unknown, or 0."""
    if value is None or not first:
        return ""
    return f"{round(value / first - 1, 3) + 0.0:+.1%}".replace("%", " %").replace("-", "−")  # no "−0.0 %"


def letters(indices: Sequence[int]) -> str:
    """Return ``A, B and C``."""
    names = [LETTERS[index] for index in indices]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
