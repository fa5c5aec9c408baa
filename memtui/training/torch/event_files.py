"""Event files of TensorBoard: loss, accuracy, seconds and memory of a training, by iteration and by epoch."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.peak_segment import peak_of
from memtui.core.errors import FAILURE, UserError
from memtui.core.os_errors import WRITE, refused
from memtui.training.learning_curve import Point
from memtui.training.preflight import INSTALL_TENSORBOARD

SECOND_NS = 1e9
_FLUSH_S = 5  # TensorBoard shows a training that runs, and one that was killed lacks as much at its end


class EventFiles:
    """The event file of one training, in a folder of its own, which TensorBoard shows as a run.

    Raises UserError where TensorBoard cannot be imported, and, as every method does, where the file cannot be written.
    """

    def __init__(self, folder: Path, run: str, settings: Mapping[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(f"TensorBoard cannot be imported ({error}): {INSTALL_TENSORBOARD}", FAILURE) from None
        self.path = folder / run
        self._since_epoch_ns = time.time_ns() - time.monotonic_ns()
        self._epoch_start_ns = time.monotonic_ns()
        self._iteration, self._point_ns = 0, 0  # of the last point; 0: there is none yet
        try:
            self._writer = SummaryWriter(str(self.path), flush_secs=_FLUSH_S)
            self._writer.add_text("settings", f"```json\n{json.dumps(settings, indent=1)}\n```", 0)
        except OSError as error:
            raise self._refused(error) from None

    def add_point(self, point: Point) -> None:
        """Add the mean loss, and the mean time of an iteration, since the point before.

        The time is not added at the first point, before which the process started, nor at a point with an accuracy,
        before which the accuracy was measured.
        """
        t_ns, iteration, _, loss, accuracy, _ = point
        if not math.isnan(loss):
            self._scalar("train/loss", loss, iteration, t_ns)
        if self._point_ns and math.isnan(accuracy) and iteration > self._iteration:
            seconds = (t_ns - self._point_ns) / SECOND_NS / (iteration - self._iteration)
            self._scalar("train/seconds_per_iteration", seconds, iteration, t_ns)
        self._iteration, self._point_ns = iteration, t_ns

    def add_accuracy(self, iteration: int, loss: float, accuracy: float) -> None:
        """Add what was measured on the test examples; ``accuracy``: percent."""
        now_ns = time.monotonic_ns()
        self._scalar("test/loss", loss, iteration, now_ns)
        self._scalar("test/accuracy_percent", accuracy, iteration, now_ns)

    def add_epoch(self, epoch: int, loss: float, accuracy: float) -> None:
        """Add the seconds of an epoch that has ended, and what was measured after it."""
        now_ns = time.monotonic_ns()
        self._scalar("epoch/seconds", (now_ns - self._epoch_start_ns) / SECOND_NS, epoch, now_ns)
        self._scalar("epoch/loss", loss, epoch, now_ns)
        self._scalar("epoch/accuracy_percent", accuracy, epoch, now_ns)
        self._epoch_start_ns = now_ns

    def add_memory(self, trace: StepTrace) -> None:
        """Add the peak of the tensors' memory in a recorded iteration, and what it is made of."""
        peak = peak_of(trace)
        if peak is None:
            return
        iteration = trace.step + 1
        self._scalar("memory/peak_bytes", peak.bytes_, iteration, trace.end_ns)
        self._scalar("memory/peak_above_start_bytes", peak.above_start_bytes, iteration, trace.end_ns)
        for kind, size_bytes in peak.parts.items():
            self._scalar(f"memory/at_peak/{kind.replace(' ', '_')}_bytes", size_bytes, iteration, trace.end_ns)

    def close(self) -> None:
        """Write what waits, and close the file."""
        try:
            self._writer.close()
        except OSError as error:
            raise self._refused(error) from None

    def _scalar(self, tag: str, value: float, step: int, t_ns: int) -> None:
        try:
            self._writer.add_scalar(tag, value, step, (t_ns + self._since_epoch_ns) / SECOND_NS)
        except OSError as error:  # of the thread that writes, or of a queue that is closed
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> UserError:
        return refused(self.path, error, WRITE, code=FAILURE)
