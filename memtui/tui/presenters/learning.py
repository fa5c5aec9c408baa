"""Loss and accuracy of a training around the cursor, and the segment that sets the peak of its memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memtui.analysis.peak_segment import representative_step, segment_label, segment_of
from memtui.core.units import size
from memtui.session.session import Session
from memtui.session.tables.allocations import RecordedStep
from memtui.session.tables.learning import About
from memtui.widgets.views.memory import TimeAxis
from memtui.widgets.views.training import LearningView


def learning_view(reader: Session, axis: TimeAxis, pid: int, recorded: Sequence[RecordedStep]) -> LearningView | None:
    """Return the learning curves of one process; None where the process reports none.

    ``recorded`` are its steps that were recorded whole.
    """
    about = next((network for network in reader.training.networks() if network.pid == pid), None)
    if about is None:
        return None
    points = [point for point in reader.training.learning(axis.start_ns, axis.end_ns + 1) if point.pid == pid]
    columns = np.array([(p.t_ns, p.iteration, p.epoch) for p in points], np.int64).reshape(-1, 3).T
    values = np.array([(p.loss, p.accuracy, p.minimum) for p in points], np.float64).reshape(-1, 3).T
    here = int(np.searchsorted(columns[0], axis.cursor_ns, side="right"))
    loss, accuracy, minimum = (_last(row[:here]) for row in values)
    epochs = about.settings.get("epochs")
    return LearningView(
        axis,
        columns[0],
        values[0],
        values[1],
        values[2],
        title=f"{about.network} by {about.rule}",
        iteration=int(columns[1][here - 1]) if here else 0,
        epoch=int(columns[2][here - 1]) if here else 0,
        epochs=epochs if isinstance(epochs, int) else 0,
        loss_here=loss,
        accuracy_here=accuracy,
        minimum_here=minimum,
        peak=_peak_text(about, recorded),
    )


def _last(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else float("nan")


def _peak_text(about: About, recorded: Sequence[RecordedStep]) -> str:
    """Return where the recorded step with the most memory has its peak."""
    most = representative_step(recorded)
    if most is None:
        return ""
    segment = segment_of(most.peak_layer, about.segments)
    above = f"peak +{size(most.peak_above_start_bytes)}"
    if not segment:
        return f"{above} in {most.peak_layer}" if most.peak_layer else above
    return f"{above} set by {segment_label(segment)}" + (" alone" if about.direct else "")
