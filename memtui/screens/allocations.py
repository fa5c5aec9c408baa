"""The allocations of recorded training steps: what is held when, by what kind of tensor, and what is alive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from memtui.analysis.step_trace import CATEGORIES, StepTrace
from memtui.present import Presenter
from memtui.screens.arrange import too_small
from memtui.screens.feed import Action
from memtui.widgets import text
from memtui.widgets.allocation_chart import AllocationChart
from memtui.widgets.listing import Column, Listing, ListingView, Row
from memtui.widgets.notice import Notice, Words

MOST = 500  # tensors in the list: the largest
_COLUMNS = (
    Column("size", 12, right=True),
    Column("kind", 18),
    Column("layer", 24, rank=3),
    Column("since", 10, right=True, rank=2),
    Column("allocated by", 0),
)
_NONE = "no step of a training was recorded: memtui trace -- python train.py records some"
_KEYS = "← → allocation · P peak · n N step · ↑ ↓ tensor · Esc back"
_EMPTY = StepTrace.from_columns(np.empty((7, 0), np.int64), step=0, start_ns=0, end_ns=0, existing=0, names=())


class _Ready(Message):
    """A step, its number among those that were recorded, and words about it."""

    def __init__(self, number: int, of: int, words: str, trace: StepTrace) -> None:
        super().__init__()
        self.number, self.of, self.words, self.trace = number, of, words, trace


class AllocationScreen(Screen[None]):
    """One recorded step at a time, at its peak."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,t", "step(1)", "next allocation in sight"),
        Binding("left,T", "step(-1)", "previous one"),
        Binding("shift+right", "step(10)", "ten on"),
        Binding("shift+left", "step(-10)", "ten back"),
        Binding("home", "to(0)", "as the step began"),
        Binding("end", "to(-1)", "last allocation"),
        Binding("P", "peak", "the peak"),
        Binding("n", "next(1)", "next recorded step"),
        Binding("N", "next(-1)", "previous recorded step"),
        Binding("down", "move(1)", "next tensor"),
        Binding("up", "move(-1)", "previous tensor"),
        Binding("pagedown", "page(1)", "next page"),
        Binding("pageup", "page(-1)", "previous page"),
        Binding("escape,a,q", "leave", "back"),
    ]

    def __init__(self, ask: Callable[[Action], object], number: int = -1) -> None:
        """``ask`` lets the presenter do something, in its thread; ``number`` of the step to open on, -1: the last."""
        super().__init__()
        self._ask, self._number, self._trace = ask, number, _EMPTY
        self.head = Words("title", id="header")
        self.chart = AllocationChart(_EMPTY)
        self.blocks = Listing(ListingView("alive at the cursor", _COLUMNS, note=_NONE))
        self.foot = Words("dim", f" {_KEYS}", id="footer")
        self.notice = Notice(id="notice")

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.chart, self.blocks, self.foot

    def compose(self) -> ComposeResult:
        yield from self.parts
        yield self.notice

    def on_mount(self) -> None:
        self.blocks.choose(True)
        self.on_resize()
        self._look(self._number)

    def on_resize(self) -> None:
        words = too_small(*self.app.size)
        self.notice.show(words)
        self.notice.display = bool(words)
        for part in self.parts:
            part.display = not words
        chart = max(6, (self.app.size.height - 2) * 6 // 10)
        self.chart.styles.height = chart
        self.blocks.styles.height = max(3, self.app.size.height - 2 - chart)

    def _look(self, number: int) -> None:
        """At a recorded step; -1: the last."""

        def find(presenter: Presenter) -> None:
            steps = presenter.reader.allocation_steps()
            if not steps:
                self.post_message(_Ready(-1, 0, _NONE, _EMPTY))
                return
            at = len(steps) - 1 if number < 0 else min(number, len(steps) - 1)
            step = steps[at]
            where = step.peak_op.rpartition("/")[2] + (f" in layer {step.peak_layer}" if step.peak_layer else "")
            words = (
                f"step {step.step} of pid {step.pid}   peak {text.size(step.peak_bytes)} at {where or 'its begin'} · "
                f"{step.rows} rows · recording it took {text.duration(step.cost_ns / 1e9)} more"
            )
            self.post_message(_Ready(at, len(steps), words, presenter.reader.step_trace(step)))

        self._ask(find)

    def on__ready(self, message: _Ready) -> None:
        self._number, self._trace = message.number, message.trace
        which = f"  {message.number + 1} of {message.of} recorded" if message.of else ""
        self.head.show(f" allocations{which}   {message.words}")
        self.chart.show(message.trace)
        self._point(message.trace.peak_row)

    def _point(self, row: int) -> None:
        trace = self._trace
        if not len(trace):
            return
        row = max(trace.existing - 1, 0, min(len(trace) - 1, row))
        self.chart.point(row)
        alive = trace.live_at(row)
        rows = tuple(
            Row(
                block.block,
                (
                    text.size(block.size_bytes),
                    CATEGORIES[block.category],
                    trace.name(block.layer),
                    "before"
                    if block.since_ns <= trace.start_ns
                    else text.duration((block.since_ns - trace.start_ns) / 1e9),
                    trace.name(block.op) or "before this step",
                ),
            )
            for block in alive[:MOST]
        )
        more = f" (the largest of {len(alive)})" if len(alive) > MOST else ""
        self.blocks.show(ListingView(f"alive at the cursor{more}", _COLUMNS, rows, "nothing is alive"))

    def on_allocation_chart_pointed(self, message: AllocationChart.Pointed) -> None:
        self._point(message.row)

    def action_step(self, by: int) -> None:
        self._point(self.chart.row + by * max(1, len(self._trace) // self.chart.columns))

    def action_to(self, row: int) -> None:
        self._point(row if row >= 0 else len(self._trace) - 1)

    def action_peak(self) -> None:
        self._point(self._trace.peak_row)

    def action_next(self, by: int) -> None:
        if self._number + by >= 0:
            self._look(self._number + by)

    def action_move(self, by: int) -> None:
        self.blocks.move(by)

    def action_page(self, by: int) -> None:
        self.blocks.move(by * self.blocks.in_sight)

    def action_leave(self) -> None:
        self.dismiss()


def _age(since_begin_ns: int) -> str:
    return text.duration(since_begin_ns / 1e9) if since_begin_ns > 0 else "before"
