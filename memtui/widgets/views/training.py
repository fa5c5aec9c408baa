"""What the training screen shows: values for widgets, made in another thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.widgets.views.memory import TimeAxis


@dataclass(frozen=True, slots=True, eq=False)
class TrainingView:
    """Tensors over time, and the training steps at the cursor.

    Attributes:
        axis: the time axis that all screens share.
        start_ns, end_ns: i8[n]: stretches of time in sight, rising.
        allocated_bytes: i8[n, categories]: at the fullest moment of each stretch.
        index: of the stretch at the cursor, -1 where none was seen.
        step: number of the step at the cursor; None: not known.
        op: the operator that allocated last at the fullest moment of the stretch at the cursor.
        step_ns: median length of the steps around the cursor; None without any.
        view: how much of the steps is recorded.
        reason: why nothing is recorded.
        view_fraction: share of the time that seeing takes, an estimate.
        recorded: how many steps were recorded whole.
        nearest: index among them of the step nearest to the cursor; -1 without any.
        pids: how many processes train; the view is of one of them.
        pid: of that process; 0: none.
        device: the device whose memory is shown.
        devices: those that can be chosen.
        note: shown where nothing was seen.
        learning: the learning curves; None where the training reports none.
    """

    axis: TimeAxis
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    allocated_bytes: NDArray[np.int64]
    index: int = -1
    step: int | None = None
    op: str = ""
    step_ns: float | None = None
    view: str = ""
    reason: str = ""
    view_fraction: float = 0.0
    recorded: int = 0
    nearest: int = -1
    pids: int = 0
    pid: int = 0
    device: str = MAIN_MEMORY
    devices: tuple[str, ...] = (MAIN_MEMORY,)
    note: str = ""
    learning: LearningView | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LearningView:
    """How well a training learns.

    Attributes:
        axis: the time axis that all screens share.
        t_ns: i8[n], of the points in sight, rising.
        loss, accuracy, minimum: f8[n]: mean loss, percent right, percent to reach from there on; nan: not reported.
        title: network and rule.
        iteration, epoch: at the cursor; 0: none yet.
        epochs: their number at the end; 0: not reported.
        loss_here, accuracy_here, minimum_here: the last values at the cursor; nan: none.
        peak: the segment that sets the peak of memory.
    """

    axis: TimeAxis
    t_ns: NDArray[np.int64]
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    minimum: NDArray[np.float64]
    title: str = ""
    iteration: int = 0
    epoch: int = 0
    epochs: int = 0
    loss_here: float = float("nan")
    accuracy_here: float = float("nan")
    minimum_here: float = float("nan")
    peak: str = ""
