"""The allocations of recorded training steps: bytes over time by kind of tensor, and the tensors that are alive."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.tensor_pages import UNKNOWN
from memtui.analysis.trace_index import StepIndex
from memtui.core.samples import Event
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.session.tables.allocations import RecordedStep
from memtui.tui.presenters import Presenter
from memtui.tui.screens.allocation_lists import BREAKDOWN, EVENTS, LAYERS, TENSORS, StepLists
from memtui.tui.screens.allocation_titles import allocator_title, imported_title
from memtui.tui.screens.parts_screen import PartsScreen
from memtui.tui.screens.presenter_thread import Action
from memtui.tui.screens.prompt import Prompt
from memtui.tui.screens.stack_lists import CALLS, GROUPS
from memtui.widgets import text
from memtui.widgets.allocation_chart import AllocationChart
from memtui.widgets.allocation_table import LISTS, AllocationList, AllocationListView
from memtui.widgets.label import TextLine
from memtui.widgets.row_panel import RowPanel

_NONE = "no step of a training was recorded: memtui trace -- python train.py records some"
_KEYS = (
    "← → cursor · P peak · n N step · 1-4 list · ↑ ↓ tensor · / filter · Esc back",
    "← → ↑ ↓ cursor · P peak · n N step · 1-4 list · / filter · f all · Esc back",
    "← → cursor · 1-4 list · ↑ ↓ layer · Enter only it · space fold · Esc back",
    "← → cursor · P peak · n N step · 1-4 list · b rules · / filter · Esc back",
    "← → cursor · P peak · 1-4 list · ↑ ↓ row · g sums · Enter open, back · Esc back",
)
_FILTER = "words · op= layer= kind= phase=GLOB · >1MiB · !not"
_EMPTY = StepTrace.from_columns(np.empty((7, 0), np.int64), step=0, start_ns=0, end_ns=0, existing=0, names=())
_TENSORS, _EVENTS, _LAYERS, _BREAKDOWN, _STACK = range(len(LISTS))
LAST, FULLEST = -1, -2


class _Ready(Message):
    """A step, its index among the recorded steps, and a title in parts with their ranks."""

    def __init__(
        self, number: int, of: int, title: list[tuple[str, int]], lists: StepLists, annotations: Sequence[Event] = ()
    ) -> None:
        super().__init__()
        self.number, self.of, self.title, self.lists, self.annotations = number, of, title, lists, annotations


class AllocationScreen(PartsScreen):
    """One recorded step at a time, at its peak."""

    HELP = "allocations"
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
        *(Binding(str(index + 1), f"choose({index})", name) for index, name in enumerate(LISTS)),
        Binding("tab", "other(1)", "next list"),
        Binding("shift+tab", "other(-1)", "previous list"),
        Binding("down", "move(1)", "next row"),
        Binding("up", "move(-1)", "previous row"),
        Binding("pagedown", "page(1)", "next page"),
        Binding("pageup", "page(-1)", "previous page"),
        Binding("slash", "filter", "filter"),
        Binding("f", "toggle_all", "rows that come to nothing"),
        Binding("b", "rules", "break down by other rules"),
        Binding("g", "group", "by stack, function, file"),
        Binding("enter", "open", "only this layer, or the call stack"),
        Binding("C", "stacks", "memory by call stack, of a capture of memray"),
        Binding("space", "fold", "fold or unfold"),
        Binding("plus,equals_sign", "fold_all(False)", "unfold all"),
        Binding("minus", "fold_all(True)", "fold all"),
        Binding("question_mark,f1", "help", "help"),
        Binding("escape", "lift", "look at everything again, or back"),
        Binding("a,q", "leave", "back"),
    ]

    def __init__(self, submit: Callable[[Action], object], number: int = LAST) -> None:
        """Take ``submit``, which runs an action in the thread of the presenter, and the number of the first step."""
        super().__init__()
        self._submit, self._number = submit, number
        self._lists = StepLists(StepIndex(_EMPTY))
        self._heading, self._annotations = list[tuple[str, int]](), tuple[Event, ...]()
        self.head = TextLine("title", id="header")
        self.chart = AllocationChart()
        self.tensors, self.events, self.modules, self.bars, self.calls = (
            AllocationList(index, AllocationListView(name, columns, note="looking ..."))
            for index, (name, columns) in enumerate(
                zip(LISTS, (TENSORS, EVENTS, LAYERS, BREAKDOWN, CALLS), strict=True)
            )
        )
        self.lists = self.tensors, self.events, self.modules, self.bars, self.calls
        self._shown_index = _TENSORS
        self._before = _TENSORS  # the list to which Enter in the tree and in a call stack goes back
        self._stack_row: int | None = None  # of the call stack that is shown; None: that at the cursor
        self._stack_number: int | None = None  # of a stack that was chosen of the sums
        self._group = 0  # of GROUPS
        self.foot = TextLine("dim", id="footer")
        self.prompt = Prompt(self._typed, id="prompt")

    @property
    def active(self) -> AllocationList:
        """Return the list that is shown."""
        return self.lists[self._shown_index]

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.chart, *self.lists, self.foot, self.prompt

    def on_mount(self) -> None:
        for listing in self.lists:
            listing.choose(True)
        self.on_resize()
        self._load(self._number)

    def share_rows(self, height: int) -> None:
        for part in {self.foot if self.prompt.active else self.prompt, *self.lists} - {self.active}:
            part.display = False
        chart = max(6, (height - 2) * 6 // 10)
        self.chart.styles.height = chart
        for listing in self.lists:
            listing.styles.height = max(3, height - 2 - chart)

    def fill(self) -> None:
        self._show_title()
        keys = _KEYS[self._shown_index].replace("1-4", f"1-{len(self._lists.names)}")
        self.foot.show(f" {keys if self._lists.origin is None else keys.replace('Esc back', 'q quit')}")

    def _load(self, number: int) -> None:
        """Open a recorded step, by its index among the recorded steps."""

        def find(presenter: Presenter) -> None:
            steps = presenter.reader.allocations.steps()
            if not steps:
                self.post_message(_Ready(-1, 0, [], StepLists(StepIndex(_EMPTY))))
                return
            index = min(number, len(steps) - 1) if number >= 0 else _fullest(steps, last=number == LAST)
            step, about = steps[index], presenter.reader.imported()
            trace = presenter.reader.allocations.trace(step)
            stacks = None if trace.stack is None else presenter.reader.allocations.call_stacks()
            tensors = presenter.reader.tensors.latest(step.pid, 1 << 62)
            most_unknown = None if tensors is None else tensors.most_of(UNKNOWN)
            types = presenter.reader.allocations.layer_types(step.pid)
            lists = StepLists(StepIndex(trace), about, types, stacks, most_unknown)
            if about is not None:
                start_ns = presenter.reader.hello.clock.monotonic_ns if len(steps) > 1 else None
                annotations = [event for event in presenter.reader.events(0, 1 << 62) if event.kind == "mark"]
                title = imported_title(about, step, start_ns)
                self.post_message(_Ready(index, len(steps), title, lists, annotations))
                return
            on = f" on {step.device}" if step.device != MAIN_MEMORY else ""
            begins = trace.peak_row < trace.existing
            op = "its begin" if begins else text.clean(step.peak_op.rpartition("/")[2]) or "an unknown operator"
            title = [
                (f"   step {step.step:,}", 3),
                (f" of pid {step.pid}", 4),
                (f"{on}   peak {text.size(step.peak_bytes)}", 2),
                *allocator_title(step),
                (f" at {op}", 4),
                (f" in layer {text.clean(step.peak_layer)}" if step.peak_layer and not begins else "", 5),
                (f" · {step.rows} rows", 6),
                (f" · recording it took {text.duration(step.cost_ns / 1e9)} more", 7),
            ]
            self.post_message(_Ready(index, len(steps), title, lists))

        self._submit(find)

    def on__ready(self, message: _Ready) -> None:
        last, node = self._lists, self.modules.selected
        if len(last.index):
            message.lists.like(last)
        self._number, self._lists = message.number, message.lists
        alone = message.of == 1 and message.lists.origin is not None
        which = f"  {message.number + 1} of {message.of}" if message.of and not alone else ""
        recorded = [(" recorded", 4)] if which and not message.lists.origin else []
        self._heading = [(f" allocations{which}", 1), *recorded, *message.title]
        self._annotations = tuple(message.annotations)
        self.tensors.select(None)  # numbers of another step
        if self._shown_index >= len(message.lists.names):
            self._shown_index = self._before
        self.modules.select(None if node is None else message.lists.tree.find(last.tree.path(node)))
        if self._lists.origin is not None and self._lists.origin.driver:
            self.chart.title, self.chart.total_label = "allocated from the driver", "allocated"
        if not message.of:
            self.chart.note = _NONE
        self.chart.show(self._lists.index)
        self.on_resize()
        if message.of:
            self._point(self._lists.index.peak_row)
        for listing in () if message.of else self.lists:
            listing.show(replace(listing.view, note="there is none", counted=False))

    def _point(self, row: int) -> None:
        """Put the cursor on a row of the step."""
        index = self._lists.index
        self._stack_row = None
        if len(index):
            self.chart.point(max(index.start_row, min(len(index) - 1, row)))
            self._fill_list()

    def _fill_list(self) -> None:
        """Fill the list for the row at the cursor."""
        lists, row = self._lists, self.chart.row
        if not len(lists.index):
            return
        self._show_title()
        match self._shown_index:
            case 0:
                self.tensors.show(lists.tensors(row))
            case 1:
                self.events.show(lists.events())
                self.events.select(lists.event_for_row(row))
            case 2:
                self.modules.show(lists.layers(row))
            case 3:
                self.bars.show(lists.breakdown(row))
            case _ if self._group and self._stack_number is None:
                self.calls.show(lists.by_stack(row, GROUPS[self._group]))
            case _:
                row = row if self._stack_row is None else self._stack_row
                self.calls.show(lists.stack(row, self._stack_number))

    def _show_title(self) -> None:
        """Show the title, and the annotation before the cursor."""
        after = ""
        if len(self._lists.index):
            t_ns = int(self._lists.index.trace.t_ns[self.chart.row])
            passed = bisect_right(self._annotations, t_ns, key=lambda annotation: annotation.t_ns)
            after = f' · after "{text.clean(self._annotations[passed - 1].text)}"' if passed else ""
        self.head.show(text.fitting_ranked(self._heading, self.app.size.width, "") + after)

    # The cursor

    def on_allocation_chart_pointed(self, message: AllocationChart.Pointed) -> None:
        self._point(message.row)

    def action_step(self, by: int) -> None:
        self._point(self.chart.row + by * max(1, len(self._lists.index) // self.chart.columns))

    def action_to(self, row: int) -> None:
        self._point(row if row >= 0 else len(self._lists.index) - 1)

    def action_peak(self) -> None:
        self._point(self._lists.index.peak_row)

    def action_next(self, by: int) -> None:
        if self._number + by >= 0:
            self._load(self._number + by)

    # The lists

    def action_choose(self, index: int) -> None:
        if index != self._shown_index and index < len(self._lists.names):
            if index == _STACK:
                self._stack_number = None
                self._stack_row = self._lists.born(self.tensors.selected) if self._shown_index == _TENSORS else None
            if self._shown_index not in (_LAYERS, _STACK):
                self._before = self._shown_index
            self._shown_index = index
            self.on_resize()
            self._fill_list()

    def action_other(self, by: int) -> None:
        self.action_choose((self._shown_index + by) % len(self._lists.names))

    def action_move(self, by: int) -> None:
        if self._shown_index != _EVENTS:
            self.active.move(by)
        elif (row := self._lists.event_after(self.chart.row, by)) is not None:
            self._point(row)

    def action_page(self, by: int) -> None:
        self.action_move(by * self.active.in_sight)

    def on_row_panel_selected(self, message: RowPanel.Selected) -> None:
        """Put the cursor on the event that was clicked."""
        if message.panel is self.events and isinstance(message.key, int):
            self._point(message.key)

    def on_listing_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Show only the selected layer in the other lists, the call stack of a row, or the list it came from."""
        node = self.modules.selected
        if self._shown_index in (_TENSORS, _EVENTS):
            self._group = 0
            self.action_choose(_STACK)
        elif self._shown_index == _STACK:
            self._open_stack()
        elif self._shown_index == _LAYERS and node is not None:
            self._lists.about(node)
            self.action_choose(self._before)

    def _open_stack(self) -> None:
        """Show the calls of the chosen stack, or go back to where it was chosen."""
        key = self.calls.selected
        if not self._group:
            self.action_choose(self._before)
        elif self._stack_number is not None:
            self._stack_number = None
            self._fill_list()
        elif isinstance(key, int):
            self._stack_number = key
            self._fill_list()

    def action_group(self) -> None:
        """Add up what is alive by stack, by function, by file; then the stack of one tensor again."""
        if len(self._lists.names) > _STACK:
            shown, self._stack_number = self._shown_index == _STACK, None
            self._group = (self._group + 1) % len(GROUPS) if shown else max(1, self._group)
            self.action_choose(_STACK)  # what a key changes has to be in sight
            self._fill_list()

    def action_toggle_all(self) -> None:
        self._lists.toggle_all()
        self.action_choose(_EVENTS)  # what a key changes has to be in sight
        self._fill_list()

    def action_rules(self) -> None:
        self._lists.next_rules()
        self.action_choose(_BREAKDOWN)  # what a key changes has to be in sight
        self._fill_list()

    def action_fold(self) -> None:
        node, lists = self.modules.selected, self._lists
        if self._shown_index == _LAYERS and node is not None:
            lists.fold({node}, unfold=node not in lists.unfolded)
            self._fill_list()

    def action_fold_all(self, fold: bool) -> None:
        if self._shown_index == _LAYERS:
            self._lists.fold(set(self._lists.tree.parents.tolist()), unfold=not fold)
            self._fill_list()

    def action_lift(self) -> None:
        """Look at all rows and layers again, or leave."""
        if self._shown_index == _STACK and self._stack_number is not None:
            self._open_stack()
        elif self._lists.filter_text:
            self._filter("")
        elif self._lists.layer is not None:
            self._lists.about(None)
            self.action_choose(_LAYERS)
            self._fill_list()
        else:
            self.dismiss()

    def action_leave(self) -> None:
        self.dismiss()

    def action_stacks(self) -> None:
        from memtui.tui.screens.stacks import StacksScreen

        self.app.push_screen(StacksScreen(self._submit))

    # The filter

    def take_key(self, event: events.Key) -> bool:
        """Return whether a key belongs to what is being typed (see ``MemtuiApp.on_key``)."""
        return self.prompt.take(event)

    def action_filter(self) -> None:
        if self._shown_index == _LAYERS:
            self.action_choose(_EVENTS)
        self.prompt.open("filter", "/", self._lists.filter_text, _FILTER)
        self.on_resize()

    def on_prompt_changed(self, message: Prompt.Changed) -> None:
        self._filter(message.text)

    def _typed(self, _kind: str, expression: str, accepted: bool) -> None:
        if not accepted:
            self._filter("")
            self._close_prompt()
        elif self._filter(expression):
            self._close_prompt()

    def _filter(self, expression: str) -> bool:
        """Return whether the expression is a filter; otherwise the last filter stays, and the reason is shown."""
        try:
            self._lists.filter(expression)
        except ValueError as error:
            self.prompt.complain(str(error))
            return False
        self._fill_list()
        return True

    def _close_prompt(self) -> None:
        self.prompt.close()
        self.on_resize()


def _fullest(steps: Sequence[RecordedStep], *, last: bool) -> int:
    """Return the row with the highest peak; ``last``: of the rows of the last step, one for each device."""
    of = (steps[-1].pid, steps[-1].step)
    rows = [index for index, step in enumerate(steps) if not last or (step.pid, step.step) == of]
    return max(rows, key=lambda index: steps[index].peak_bytes)
