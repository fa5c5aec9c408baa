"""Training steps and the memory of tensors over time, at the cursor and around it."""

from __future__ import annotations

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_usage import MOST_ROWS, TensorUsage, fullest
from memtui.core.lru_cache import LruCache
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.session.session import Session
from memtui.session.tables.allocations import RecordedStep
from memtui.session.tables.training import ProgressRow, RecordedProgress
from memtui.tui.presenters.learning import learning_view
from memtui.tui.presenters.playhead import Playhead
from memtui.widgets.views.memory import TimeAxis
from memtui.widgets.views.training import TrainingView

KEEP_PROGRESS = 4 * MOST_ROWS  # decoded ones
NOTHING = "no training step was seen: the program was traced, and no optimiser of torch.optim stepped"
_HOW = (
    "memtui trace -- python train.py does (or run --trace), or the program itself, with memtui.trace(model, optimizer)"
)
UNTRACED = f"nothing is traced: {_HOW}"
WAS_UNTRACED = f"no training step was seen, as nothing was traced: {_HOW}"
WAITING = "no training step has ended yet"


class TrainingLog:
    """Decodes the messages in sight, and caches them."""

    def __init__(self) -> None:
        self._decoded: LruCache[int, RecordedProgress] = LruCache(KEEP_PROGRESS)  # by row
        self._fitted = False
        self._span_ns: tuple[int | None, int | None] | None = None  # before, and as it was fitted
        self.pid = 0
        """The process that is shown; 0: the first that reports steps."""
        self.device = ""
        """The device whose memory is shown; empty: the one with the most memory of tensors."""

    def view(self, reader: Session, head: Playhead) -> TrainingView:
        """Return the view at the cursor."""
        axis = head.axis()
        rows = reader.training.progress(axis.start_ns, axis.end_ns + 1)
        pids = list(dict.fromkeys(row.pid for row in rows))
        pid = self.pid if self.pid in pids else (pids[0] if pids else 0)
        rows = fullest([row for row in rows if row.pid == pid])
        parts = [self._progress(reader, row) for row in rows]
        device, devices = self._device(reader, axis, pid)
        usage = [
            part.usage
            for part in (parts if device == MAIN_MEMORY else self._device_progress(reader, axis, pid, device))
        ]
        start_ns = np.concatenate([u.start_ns for u in usage]) if usage else np.empty(0, np.int64)
        end_ns = np.concatenate([u.end_ns for u in usage]) if usage else np.empty(0, np.int64)
        allocated = (
            np.concatenate([u.usage_bytes for u in usage]) if usage else np.empty((0, len(CATEGORIES)), np.int64)
        )
        # Live, the newest message is a little older than the newest window.
        index = int(np.searchsorted(start_ns, head.cursor_ns, side="right")) - 1
        whole = list(enumerate(reader.allocations.steps()))
        recorded = [(number, step) for number, step in whole if step.pid == pid or not pid]

        def distance(item: tuple[int, RecordedStep]) -> tuple[int, bool, int]:
            step = item[1]  # one row for each device
            return abs(step.start_ns - head.cursor_ns), step.device != device, -step.peak_bytes

        near = min(recorded, key=distance, default=(-1, None))[0]
        here = next((p for p in reversed(parts) if p.row.start_ns <= head.cursor_ns), parts[0] if parts else None)
        moment_ns = head.cursor_ns
        # Steps end while a window lasts, and recorded steps are counted until now.
        newest = [row for row in reader.training.progress(moment_ns) if row.pid == pid][-1:] if head.follow else []
        for row in newest:
            here, moment_ns = self._progress(reader, row), max(moment_ns, row.end_ns)
        step, step_ns = _current_step(here, moment_ns)
        return TrainingView(
            axis,
            start_ns,
            end_ns,
            allocated,
            index,
            step=step,
            op=_allocating_op(usage, index),
            step_ns=step_ns,
            view=here.row.view if here else "",
            reason=here.row.reason if here else "",
            view_fraction=_fraction(rows),
            recorded=len({(step.pid, step.step) for _, step in recorded}),
            nearest=near,
            pids=len(pids),
            pid=pid,
            device=device,
            devices=devices,
            learning=learning_view(reader, axis, self._learner(reader, pid), [step for _, step in recorded]),
            note="" if rows or reader.training.progress() else _why_nothing(reader, head),
        )

    def fit(self, reader: Session, head: Playhead) -> None:
        """Zoom the picture to the training, once, where it took a small part of a session that is over."""
        if self._fitted or head.recording:
            return
        self._fitted = True
        moments = [t_ns for row in reader.training.progress() for t_ns in (row.start_ns, row.end_ns)]
        moments += [point.t_ns for point in reader.training.learning()]
        before = head.span_ns
        if moments and head.fit(min(moments), max(moments)):
            self._span_ns = before, head.span_ns

    def leave(self, head: Playhead) -> None:
        """Restore the span of the picture, unless the user changed it meanwhile."""
        if self._span_ns is not None and head.span_ns == self._span_ns[1]:
            head.span_ns = self._span_ns[0]

    def _learner(self, reader: Session, pid: int) -> int:
        """Return the process that is shown, or before the first step the one that reports a network."""
        return pid or next((network.pid for network in reader.training.networks()), 0)

    def _device(self, reader: Session, axis: TimeAxis, pid: int) -> tuple[str, tuple[str, ...]]:
        """Return the device whose memory is shown, and all devices there are."""
        devices = tuple(reader.training.devices())
        if self.device in devices or len(devices) == 1:
            return self.device or MAIN_MEMORY, devices
        most = {
            device: max(
                (
                    r.peak_bytes
                    for r in reader.training.progress(axis.start_ns, axis.end_ns + 1, device)
                    if r.pid == pid
                ),
                default=0,
            )
            for device in devices
        }
        return max(devices, key=lambda device: most[device]), devices

    def _device_progress(self, reader: Session, axis: TimeAxis, pid: int, device: str) -> list[RecordedProgress]:
        rows = reader.training.progress(axis.start_ns, axis.end_ns + 1, device)
        return [self._progress(reader, row) for row in fullest([row for row in rows if row.pid == pid])]

    def _progress(self, reader: Session, row: ProgressRow) -> RecordedProgress:
        if row.id not in self._decoded:
            self._decoded.put(row.id, reader.training.details(row))
        return self._decoded[row.id]


def _why_nothing(reader: Session, head: Playhead) -> str:
    """Return why there is no training step, and how to record some."""
    if reader.hello.options.trace_every is None:
        return UNTRACED if head.recording else WAS_UNTRACED
    return WAITING if head.recording else NOTHING


def _current_step(part: RecordedProgress | None, cursor_ns: int) -> tuple[int | None, float | None]:
    """Return (number, median length of the steps around) of the step at a moment."""
    if part is None:
        return None, None
    row, ends_ns = part.row, part.ends_ns
    index = min(int(np.searchsorted(ends_ns, cursor_ns)), len(ends_ns) - 1)
    return row.first_step + index, float(np.median(np.diff(ends_ns, prepend=row.start_ns)))


def _allocating_op(usage: list[TensorUsage], index: int) -> str:
    for part in usage:
        if 0 <= index < len(part):
            op = int(part.op[index])
            return part.names[op] if op >= 0 else ""
        index -= len(part)
    return ""


def _fraction(rows: list[ProgressRow]) -> float:
    """Return the share of the cheap view in the time in sight."""
    if len(rows) < 2:
        return 0.0
    first, last = rows[0], rows[-1]
    return (last.cost_ns - first.cost_ns) / max(1, last.end_ns - first.end_ns)
