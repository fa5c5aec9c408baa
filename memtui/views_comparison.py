"""What is shown of several trainings over one another: values for widgets and for text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LETTERS = "ABCDEFGH"
MOST = len(LETTERS)  # more lines than that nobody tells apart


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Values at rising places of an axis."""

    x: Floats
    y: Floats


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
class OverlayView:
    """Lines of several trainings on one pair of axes.

    Attributes:
        title: what the values are.
        lines: one for each training, in their order; empty where it has none.
        unit: of the values: "bytes", "%" or "" (plain numbers).
        across: what the other axis counts: "iterations", "s", or "%" of the allocations and frees of one iteration.
    """

    title: str
    lines: tuple[Line, ...]
    unit: str
    across: str


def change_words(run: Run, first: Run) -> str:
    """How much less or more memory a training takes than another one at its peak, above the start."""
    if run is first or not run.peak_above_start_bytes or not first.peak_above_start_bytes:
        return ""
    share = run.peak_above_start_bytes / first.peak_above_start_bytes - 1
    return f"{share:+.1%}".replace("%", " %").replace("-", "−")
