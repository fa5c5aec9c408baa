"""Training steps over time: the memory of tensors by kind, live and afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from memtui.tui.presenters import Presenter
from memtui.tui.presenters.training import TrainingLog
from memtui.tui.screens.parts_screen import CursorScreen
from memtui.tui.screens.presenter_thread import Action
from memtui.widgets import text
from memtui.widgets.learning_chart import LearningChart
from memtui.widgets.panel import Panel
from memtui.widgets.table import Column, Listing, ListingView, Row
from memtui.widgets.tensor_kinds import INDEX, LETTERS, ORDER
from memtui.widgets.usage_chart import UsageChart
from memtui.widgets.views.training import TrainingView

_COLUMNS = (
    Column("", 3),
    Column("kind of tensor", 20),
    Column("here", 12, right=True),
    Column("share", 8, right=True),
    Column("most in sight", 15, right=True),
    Column("least in sight", 16, right=True, rank=2),
)
_OPEN = "Enter recorded step near here"  # where steps are recorded
_KEYS = ("space pause", "← → sample", "+ - time", "P peak", "n N process", "? help", "Esc back")


class _Ready(Message):
    def __init__(self, view: TrainingView) -> None:
        super().__init__()
        self.view = view


class TrainingScreen(CursorScreen):
    """The screen of a training, with the time axis, cursor and keys of the memory screen."""

    HELP = "training"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "every allocation of the recorded step near here"),
        Binding("plus,equals_sign", "head('widen', -1)", "less time, closer"),
        Binding("minus", "head('widen', 1)", "more time"),
        Binding("P", "peak", "the peak in sight"),
        Binding("n", "process(1)", "next process that trains"),
        Binding("N", "process(-1)", "previous one"),
        Binding("d", "device", "memory of the next device, where a GPU is used"),
        Binding("escape,a,q", "leave", "back"),
    ]

    def __init__(self, submit: Callable[[Action], object]) -> None:
        """Take ``submit``, which runs an action in the thread of the presenter."""
        super().__init__(submit, Listing(ListingView("by kind", _COLUMNS, counted=False)))
        self._log = TrainingLog()
        self._view: TrainingView | None = None
        self.learning = LearningChart()
        self.chart = UsageChart()

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.learning, self.chart, self.rows, self.foot

    def share_rows(self, height: int) -> None:
        learns = self._view is not None and self._view.learning is not None
        self.learning.display = self.learning.display and learns
        room = height - 2
        kinds = min(len(ORDER) + 3, max(3, room * (3 if learns else 4) // 10))
        learning = max(5, (room - kinds) * 45 // 100) if learns else 0
        self.rows.styles.height, self.learning.styles.height = kinds, learning
        self.chart.styles.height = max(6, room - kinds - learning)

    def find(self) -> None:
        def view(presenter: Presenter) -> None:
            self._log.fit(presenter.reader, presenter.playhead)
            self.post_message(_Ready(self._log.view(presenter.reader, presenter.playhead)))

        self._submit(view)

    def on__ready(self, message: _Ready) -> None:
        changes = self._view is None or (self._view.learning is None) != (message.view.learning is None)
        view = self._view = message.view
        if changes:
            self.on_resize()
        if view.note and view.recorded:  # a session of an older version, which has recorded steps only
            self.app.switch_screen(self._recorded(-1))
            return
        self.fill()
        if view.learning is not None:
            self.learning.show(view.learning)
        self.chart.show(view)
        title = f"by kind {_where(view)}" if view.index >= 0 else "by kind"
        self.rows.show(ListingView(title, _COLUMNS, _rows(view), "no tensors in sight", counted=False))

    def fill(self) -> None:
        recorded = self._view is not None and self._view.recorded
        keys = (_OPEN, *_KEYS) if recorded else _KEYS
        self.foot.show(f" {text.fitting_keys(keys, self.app.size.width - 2)}")
        if self._view is not None:
            self.head.show(text.fitting_ranked(_title_of(self._view), self.app.size.width, ""))

    def on_panel_time_clicked(self, message: Panel.TimeClicked) -> None:
        self._submit(lambda presenter: presenter.playhead.seek(message.t_ns))
        self.update_view()

    def action_peak(self) -> None:
        view = self._view
        if view is not None and len(view.start_ns):
            index = int(np.argmax(view.allocated_bytes.sum(axis=1)))
            t_ns = int(view.end_ns[index])
            self._submit(lambda presenter: presenter.playhead.seek(t_ns))
            self.update_view()

    def action_process(self, by: int) -> None:
        def change(presenter: Presenter) -> None:
            pids = list(dict.fromkeys(row.pid for row in presenter.reader.training.progress()))
            if pids:
                now = pids.index(self._log.pid) if self._log.pid in pids else 0
                self._log.pid = pids[(now + by) % len(pids)]

        self._submit(change)
        self.update_view()

    def action_device(self) -> None:
        view = self._view
        if view is not None:
            following = (view.devices.index(view.device) + 1) % len(view.devices)
            self._log.device = view.devices[following]
            self.update_view()

    def action_open(self) -> None:
        self.app.push_screen(self._recorded(self._view.nearest if self._view is not None else -1))

    def _recorded(self, number: int) -> Screen[None]:
        from memtui.tui.screens.allocations import AllocationScreen

        return AllocationScreen(self._submit, number)

    def action_leave(self) -> None:
        self._submit(lambda presenter: self._log.leave(presenter.playhead))
        self.dismiss()


def _where(view: TrainingView) -> str:
    return "now" if view.axis.follow else f"at {text.clock((view.axis.cursor_ns - view.axis.origin_ns) / 1e9)}"


def _title_of(view: TrainingView) -> list[tuple[str, int]]:
    """Return the step at the cursor, its duration, and how much of it is recorded, as parts with their ranks."""
    if view.note:  # the picture says it
        return [(" training", 1)]
    parts = [(f" training   pid {view.pid}" + (f" of {view.pids}" if view.pids > 1 else ""), 1)]
    if len(view.devices) > 1:
        others = ", ".join(device for device in view.devices if device != view.device)
        parts.append((f" · memory of {view.device} (d: {others})", 2))
    if view.step is not None and view.step_ns is not None:
        rate = 1e9 / max(1.0, view.step_ns)
        parts += [(f" · step {view.step:,}", 2), (f" · {text.duration(view.step_ns / 1e9)} each", 3)]
        parts += [(f", {rate:.0f} a second", 5)] * (rate >= 10)
    if view.view:
        parts += [(f" · cheap view: {view.view}", 4), (f", takes {view.view_fraction * 100:.0f} % of the time", 5)]
    else:
        parts += [(" · cheap view off", 3), (f": {view.reason or 'too few steps'}", 4)]
    return [*parts, (f" · {view.recorded} recorded", 3) if view.recorded else (" · none recorded", 6)]


def _rows(view: TrainingView) -> tuple[Row, ...]:
    """Return a row for each kind, in the order of the picture from the top down."""
    if view.index < 0:
        return ()
    here = view.allocated_bytes[view.index]
    total = max(1, int(here.sum()))
    most, least = view.allocated_bytes.max(axis=0), view.allocated_bytes.min(axis=0)
    rows = []
    for name, index in reversed(list(zip(ORDER, INDEX, strict=True))):
        if most[index]:
            allocated = int(here[index])
            cells = (text.size(allocated), f"{100 * allocated / total:.0f} %", text.size(int(most[index])))
            rows.append(Row(name, (LETTERS[name], name, *cells, text.size(int(least[index])))))
    every = view.allocated_bytes.sum(axis=1)
    whole = (text.size(int(here.sum())), "", text.size(int(every.max())), text.size(int(every.min())))
    return (Row("all", ("", "all that is known", *whole), "bright"), *rows)
