"""Memory by call stack: what memray says was allocated, and what of it was touched and resident at the cursor."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from memtui.core.call_stacks import Frame
from memtui.tui.presenters import Presenter
from memtui.tui.presenters.stacks import StackLog
from memtui.tui.screens.parts_screen import CursorScreen
from memtui.tui.screens.presenter_thread import Action
from memtui.tui.screens.stack_lists import CALLS, call_rows
from memtui.widgets import text
from memtui.widgets.table import Column, Listing, ListingView, Row
from memtui.widgets.views.stacks import GROUPS, StacksView, StackUseRow

_LOOKING = "looking ..."
_LEAST_ROOM = 24  # cells of a stack
_NUMBERS = tuple(Column(name, cells, right=True, rank=rank) for name, cells, rank in (
    ("touched", 12, 1), ("resident", 12, 2), ("there", 12, 1), ("at peak", 12, 3), ("allocations", 14, 4),
))  # fmt: skip
_KEYS = ("g stack, function, file", "Enter calls", "s S sort", "← → sample", "n N process", "? help", "Esc back")


class _Ready(Message):
    def __init__(self, view: StacksView) -> None:
        super().__init__()
        self.view = view


class _Opened(Message):
    def __init__(self, key: Hashable, calls: Sequence[Frame]) -> None:
        super().__init__()
        self.key, self.calls = key, calls


class StacksScreen(CursorScreen):
    """The list of call stacks."""

    HELP = "stacks"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "group", "by stack, by function, by file"),
        Binding("s", "sort", "sort by the next column"),
        Binding("S", "reverse", "reverse the order"),
        Binding("n", "process(1)", "next captured process"),
        Binding("N", "process(-1)", "previous one"),
        Binding("enter", "open", "all calls of the chosen stack"),
        Binding("escape", "lift", "back"),
        Binding("C,q", "leave", "back"),
    ]

    def __init__(self, submit: Callable[[Action], object]) -> None:
        """Take ``submit``, which runs an action in the thread of the presenter."""
        columns = (*_NUMBERS, Column("stack", 0))
        super().__init__(submit, Listing(ListingView("by stack", columns, note=_LOOKING)))
        self._log = StackLog()
        self._view = StacksView(GROUPS[0], note=_LOOKING)
        self._opened: _Opened | None = None  # the stack whose calls are listed

    def find(self) -> None:
        def view(presenter: Presenter) -> None:
            self.post_message(_Ready(self._log.view(presenter.reader, presenter.playhead)))

        self._submit(view)

    def on__ready(self, message: _Ready) -> None:
        if message.view is not self._view:
            self._view = message.view
            self.fill()

    def fill(self) -> None:
        view = self._view
        arrow = "▼" if view.descending else "▲"
        title = f"by {view.by}, {view.count:,} · sorted by {view.sort} {arrow}" if view.pid else f"by {view.by}"
        columns = (*_NUMBERS, Column(view.by, 0))
        if self._opened is not None:
            calls = call_rows(self._opened.calls)
            self.rows.show(ListingView("call stack, the innermost call first", CALLS, calls))
            self._show_edges()
            return
        room = self.app.size.width - 6 - sum(column.cells for column in _NUMBERS)
        rows = tuple(_row(row, view.by, max(room, _LEAST_ROOM) if view.by == "stack" else 0) for row in view.rows)
        self.rows.show(ListingView(title, columns, rows, view.note, counted=False))
        self._show_edges()

    def _show_edges(self) -> None:
        view, width = self._view, self.app.size.width
        self.foot.show(f" {text.fitting_keys(_KEYS, width - 2)}")
        parts = [(" memory by call stack", 1)]
        if view.pid:
            parts.append((f"   pid {view.pid}{' (n N others)' if view.several else ''}", 3))
        if view.time_s is not None:
            parts.append((f"   window at {view.time_s:.1f} s", 2))
        if view.peak_bytes:
            parts.append((f" · allocated at most {text.size(view.peak_bytes)}", 4))
        parts += [(f" · {line}", rank) for line, rank in ((view.note, 2), (view.resident, 5)) if line]
        self.head.show(text.fitting_ranked(parts, width, ""))

    def action_group(self) -> None:
        self._close()
        self._submit(lambda presenter: self._log.next_group())
        self.update_view()

    def action_process(self, by: int) -> None:
        self._close()
        self._submit(lambda presenter: self._log.next_process(by))
        self.update_view()

    def action_sort(self) -> None:
        self._close()
        self._submit(lambda presenter: self._log.next_sort())
        self.update_view()

    def action_reverse(self) -> None:
        self._close()
        self._submit(lambda presenter: self._log.reverse())
        self.update_view()

    def on_listing_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        key = self.rows.selected
        if self._opened is not None or not isinstance(key, tuple):
            return
        by, number = key
        if by == GROUPS[0]:
            self._submit(lambda _: self.post_message(_Opened(key, self._log.calls(number))))

    def on__opened(self, message: _Opened) -> None:
        if self._opened is None and self.rows.selected == message.key:
            self._opened = message
            self.fill()
            self.rows.select(0)

    def action_lift(self) -> None:
        if self._opened is None:
            self.action_leave()
            return
        self._close()

    def _close(self) -> None:
        """List stacks again: what a key changes has to be in sight."""
        if self._opened is not None:
            key, self._opened = self._opened.key, None
            self.fill()
            self.rows.select(key)

    def action_leave(self) -> None:
        self.app.pop_screen()


def _row(row: StackUseRow, by: str, room: int) -> Row:
    """Return a row; of a stack that does not fit into so many cells (0: it is cut elsewhere) the outer calls go."""
    sizes = (row.touched_bytes, row.resident_bytes, row.there_bytes, row.peak_bytes)
    cells = ["" if size is None else text.size(size) for size in sizes]
    count = "" if row.allocations is None else f"{row.allocations:,}"
    name = text.sentence(row.name, room).rstrip() if room else row.name
    key = row.key if row.key < 0 else (by, row.key)  # texts of different stacks may be equal
    return Row(key, (*cells, count, name), "text" if row.touched_bytes else "dim")
