"""The lists below the chart of allocations, for one step: rows are formatted when they come into sight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_filter import parse_row_filter
from memtui.analysis.allocation_trace import CATEGORIES, PHASES
from memtui.analysis.layer_tree import NO_LAYER, LayerTree
from memtui.analysis.trace_index import StepIndex
from memtui.core.call_stacks import CallStacks
from memtui.core.options import RULES
from memtui.formats.category_rules import bundled
from memtui.reports.breakdown.rules import Layers, break_down, items_of, items_of_sums
from memtui.session.tables.imported import LINES, ImportedFrom
from memtui.tui.screens.stack_lists import CALLS, SUMS, StackLists
from memtui.widgets import text
from memtui.widgets.allocation_table import LISTS, WITHOUT_STACKS, AllocationListView
from memtui.widgets.row_panel import LazyRows
from memtui.widgets.table import Column, Row

UNFOLDED_ROWS = 24  # of the tree at first: as many whole levels as that
BAR_CELLS = 26  # of the longest bar of a breakdown
TENSORS = (
    Column("size", 12, right=True),
    Column("kind", 18),
    Column("layer", 24, rank=3),
    Column("since", 10, right=True, rank=2),
    Column("allocated by", 0),
)
EVENTS = (
    Column("time", 14, right=True),
    Column("change", 12, right=True),
    Column("held", 11, right=True),
    Column("kind", 17, rank=2),
    Column("phase", 11, rank=4),
    Column("layer", 24, rank=3),
    Column("operator", 0),
)
BREAKDOWN = (
    Column("category", 0, most=30),
    Column("size", 12, right=True),
    Column("share", 10, right=True),
    Column("allocations", 13, right=True, rank=3),
    Column("", BAR_CELLS + 2, rank=2),
)
_PARTS = ("weights", "gradients", "optimiser state", "activations")
_PART_OF = [CATEGORIES.index(name) for name in _PARTS]
_REST = [number for number in range(len(CATEGORIES)) if number not in _PART_OF]
LAYERS = (
    Column("layer", 0, most=48),  # figures belong near to the names
    Column("weights", 10, right=True, rank=4),
    Column("gradients", 11, right=True, rank=6),
    Column("optimiser", 11, right=True, rank=7),
    Column("activations", 13, right=True, rank=3),
    Column("the rest", 10, right=True, rank=8),
    Column("held", 10, right=True),
    Column("allocated", 11, right=True, rank=2),
    Column("share", 9, right=True, rank=5),
)


class StepLists:
    """One step and the settings of its lists: filter, layer, rows that come to nothing, branches of the tree.

    Creating one takes a tenth of a second for a million rows: not for the thread that draws.
    """

    def __init__(
        self,
        index: StepIndex,
        origin: ImportedFrom | None = None,
        types: Mapping[str, str] | None = None,
        stacks: CallStacks | None = None,
        most_unknown: tuple[str, int] | None = None,
    ) -> None:
        """Take a step.

        Args:
            index: the step.
            origin: the file of another tool that the step is from.
            types: classes of layers by name.
            stacks: the call stacks that its rows have; None: they have none.
            most_unknown: name and bytes of the largest tensor of no model and no optimiser, as it was seen elsewhere.
        """
        self._most_unknown = most_unknown
        self.stacks = None if stacks is None or index.trace.stack is None else StackLists(stacks, index.trace.stack)
        self.index, self.tree, self.origin = index, LayerTree(index), origin
        # Of each category, whether a layer without memory of it has none: a file may not tell such memory.
        there = np.bincount(index.trace.category[index.born], minlength=len(CATEGORIES)) > 0
        self._recorded_categories = [origin is None or bool(count) for count in there]
        tagged = origin is not None and origin.driver
        self._layers = None if tagged else Layers.of(index.trace, types or {}, stacks)
        self.rules = RULES[0]
        self._phased = origin is None or bool((index.trace.phase != PHASES.index("between")).any())
        self.filter_text = ""
        self.layer: int | None = None  # node of the tree
        self.shows_all = False  # rows that come to nothing, too
        self.unfolded = self.tree.levels(UNFOLDED_ROWS)
        self._keep: NDArray[np.bool_] | None = None  # bool[n]; None: all
        self._sort_out()

    def like(self, other: StepLists) -> None:
        """Take the settings of another step."""
        if len(other.tree):
            paths = {other.tree.path(node) for node in other.unfolded}
            self.unfolded = {node for node in self.tree.parents.tolist() if self.tree.path(node) in paths}
        self.filter_text, self.shows_all, self.rules = other.filter_text, other.shows_all, other.rules
        self.layer = None if other.layer is None else self.tree.find(other.tree.path(other.layer))
        self._sort_out()

    def filter(self, expression: str) -> None:
        """Show only rows that match. Raises ValueError for an invalid expression; then nothing changes."""
        parse_row_filter(expression)
        self.filter_text = expression.strip()
        self._sort_out()

    def about(self, layer: int | None) -> None:
        """Show only rows of a layer and of the layers below it."""
        self.layer = layer
        self._sort_out()

    def toggle_all(self) -> None:
        """Show or hide rows that come to nothing."""
        self.shows_all = not self.shows_all
        self._sort_out()

    def next_rules(self) -> None:
        """Break down by the next set of rules."""
        self.rules = RULES[(RULES.index(self.rules) + 1) % len(RULES)]

    def fold(self, nodes: set[int], *, unfold: bool) -> None:
        """Hide or show the layers below some layers."""
        self.unfolded = self.unfolded | nodes if unfold else self.unfolded - nodes

    def _sort_out(self) -> None:
        """Find the rows that are shown."""
        index, keep = self.index, parse_row_filter(self.filter_text)(self.index)
        if self.layer is not None:
            inside = self.tree.below(self.layer)[index.layer]
            keep = inside if keep is None else keep & inside
        self._keep = keep
        shown = np.ones(len(index), bool) if keep is None else keep.copy()
        # All allocations that existed before the step are one row, without operator or layer.
        shown[: index.start_row + (keep is not None and index.trace.existing > 0)] = False
        hidden = shown & index.zero if not self.shows_all else np.zeros(0, bool)
        if not self.shows_all:
            shown &= ~index.zero
        self._events = LazyRows(np.flatnonzero(shown), self._event)
        self._hidden = int(np.count_nonzero(hidden))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the lists that there are."""
        return WITHOUT_STACKS if self.stacks is None else LISTS

    @property
    def layer_name(self) -> str | None:
        """Return the name of the layer that the lists are about; None: of all layers."""
        return None if self.layer is None else self.tree.path(self.layer) or NO_LAYER

    # Tensors

    def tensors(self, row: int) -> AllocationListView:
        """Return the tensors alive after a row, the largest first."""
        alive = self.index.alive(row)
        rows = LazyRows(np.flatnonzero(self._in_list(alive)), self._tensor)
        return self._of_alive("", TENSORS, rows, of=int(np.count_nonzero(alive)), foot=self._absent)

    def _in_list(self, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of the tensors that are alive pass the filter."""
        return alive if self._keep is None else alive & self._keep[self.index.born]

    def _of_alive(
        self, by: str, columns: tuple[Column, ...], rows: Sequence[Row], *, of: int, foot: str
    ) -> AllocationListView:
        """Return a list about what is alive and passes the filter."""
        return AllocationListView(
            f"{self._alive}{by}",
            columns,
            rows,
            "nothing is alive" if self._keep is None else "nothing alive is of that filter",
            of=of,
            filter_text=self.filter_text,
            layer=self.layer_name,
            foot=foot,
            lists=self.names,
        )

    def born(self, block: object) -> int | None:
        """Return the row that allocated a tensor of the list."""
        return int(self.index.born[block]) if isinstance(block, int) and len(self.index) else None

    def _tensor(self, block: int) -> Row:
        index, trace = self.index, self.index.trace
        row = int(index.born[block])
        before = row < trace.existing
        cells = (
            text.size(int(index.size_bytes[block])),
            CATEGORIES[int(trace.category[row])],
            trace.name(int(index.layer[row])),
            "before" if before else self._since(row),
            trace.name(int(trace.op[row])) or ("before this step" + self._whose(block) if before else ""),
        )
        return Row(block, cells)

    def _whose(self, block: int) -> str:
        """Return the name of a tensor of an unknown kind, as a clause; "" where its size is not that of a known one."""
        index, most = self.index, self._most_unknown
        kind = CATEGORIES[int(index.trace.category[index.born[block]])]
        return f": {most[0]}" if most and kind == "unknown" and int(index.size_bytes[block]) == most[1] else ""

    # Events

    def events(self) -> AllocationListView:
        """Return every allocation and free."""
        index = self.index
        none = "no row is of that filter" if self._keep is not None else "nothing was allocated in this step"
        vain = "freed at once" if self.origin is None else "that come to nothing"
        none = f"all of them are {vain} (f shows them)" if self._hidden else none
        left_out = f"those {vain}, too" if self.shows_all else f"{self._hidden} {vain} hidden"
        return AllocationListView(
            "events",
            EVENTS,
            self._events,
            none,
            of=len(index) - index.start_row,
            left_out=left_out,
            filter_text=self.filter_text,
            layer=self.layer_name,
            foot=self._absent,
            lists=self.names,
        )

    def event_for_row(self, row: int) -> int | None:
        """Return the event in the list for a row of the step: the row itself, or the last event before it.

        Return None for an empty list.
        """
        numbers = self._events.numbers
        return int(numbers[max(0, self._events.last_until(row))]) if len(numbers) else None

    def event_after(self, row: int, by: int) -> int | None:
        """Return the event ``by`` rows further in the list."""
        numbers = self._events.numbers
        if not len(numbers):
            return None
        return int(numbers[max(0, min(len(numbers) - 1, max(0, self._events.last_until(row)) + by))])

    def _event(self, row: int) -> Row:
        index, trace = self.index, self.index.trace
        total = text.size(int(index.usage_bytes[row]))
        if row < trace.existing:
            return Row(
                row, ("begin", text.change(index.start_bytes), total, "", "", "", "there before this step"), "dim"
            )
        change = int(trace.delta_bytes[row])
        cells = (
            self._when(row),
            text.change(change),
            total,
            CATEGORIES[int(trace.category[row])],
            PHASES[int(trace.phase[row])] if self._phased else "",
            trace.name(int(index.layer[row])),
            trace.name(int(trace.op[row])) or ("freed" if change < 0 else ""),
        )
        return Row(row, cells, "live" if row == index.peak_row else "dim" if change < 0 else "text")

    def _when(self, row: int) -> str:
        """Return the time of a row, or its position in a file without times."""
        trace = self.index.trace
        if self.origin is not None and self.origin.counts:
            return f"{'line' if self.origin.clock == LINES else 'row'} {trace.t_ns[row]}"
        return f"{(int(trace.t_ns[row]) - trace.start_ns) / 1e6:.3f} ms"

    def _since(self, row: int) -> str:
        trace = self.index.trace
        if self.origin is not None and self.origin.counts:
            return self._when(row)
        return text.duration((int(trace.t_ns[row]) - trace.start_ns) / 1e9)

    @property
    def _alive(self) -> str:
        """Return the title of the list of tensors: a log of a driver has no frees."""
        driver = self.origin is not None and self.origin.driver
        return "allocated up to the cursor" if driver else "alive at the cursor"

    @property
    def _absent(self) -> str:
        """Return the fields that the file does not have."""
        return "" if self.origin is None else f"not known: {'; '.join(self.origin.absent)}"

    # Breakdown

    def breakdown(self, row: int) -> AllocationListView:
        """Return the tensors alive after a row, added up by category."""
        index, origin = self.index, self.origin
        shown = self._in_list(index.alive(row))
        if origin is not None and origin.sums is not None:
            items = items_of_sums(origin.sums)
        else:
            items = items_of(index.trace, index.born[shown], self._layers)
        result = break_down(items, bundled(self.rules))
        most = max((bar.bytes for bar in result.bars), default=0)
        rows = [
            Row(
                bar.key,
                (
                    bar.name,
                    text.size(bar.bytes),
                    f"{bar.share * 100:.2f} %",
                    str(bar.allocations),
                    "█" * round(BAR_CELLS * bar.bytes / max(1, most)),
                ),
            )
            for bar in result.bars
        ]
        dropped = sum(item.bytes for item in result.dropped)
        left_out = f"; {text.size(dropped)} with tags that these rules do not know are left out" if dropped else ""
        foot = f"total {text.size(result.total_bytes)}{left_out}"
        return self._of_alive(f", rules {self.rules}", BREAKDOWN, rows, of=len(rows), foot=foot)

    # Layers

    def layers(self, row: int) -> AllocationListView:
        """Return the tree of layers, with the bytes allocated after a row."""
        tree, index = self.tree, self.index
        by_node = tree.usage_by_category(row)
        allocated_bytes = int(tree.allocated_bytes[tree.depth == 0].sum())
        recorded = self._recorded_categories

        def layer(node: int) -> Row:
            folded = "" if tree.end[node] == node + 1 else "▼ " if node in self.unfolded else "▶ "
            total = int(by_node[node].sum())
            share = tree.allocated_bytes[node] / allocated_bytes if allocated_bytes else None
            cells = (
                "  " * int(tree.depth[node]) + (folded or "  ") + tree.names[node],
                *(_size(int(by_node[node, part])) if recorded[part] else "n/a" for part in _PART_OF),
                _size(int(by_node[node, _REST].sum())),
                text.size(total),
                _size(int(tree.allocated_bytes[node])),
                text.percent(share),
            )
            return Row(node, cells, "focus" if node == self.layer else "text" if total else "dim")

        whole = (
            f"all: held {text.size(int(index.usage_bytes[row]))}, allocated in the step {text.size(allocated_bytes)}"
        )
        rows = LazyRows(tree.in_sight(self.unfolded), layer)
        none = "no memory of this step is known"
        return AllocationListView(
            "layers at the cursor", LAYERS, rows, none, of=len(tree), foot=whole, lists=self.names
        )

    # Call stacks

    def stack(self, row: int, number: int | None = None) -> AllocationListView:
        """Return the calls of the allocation or free in a row, or those of the stack of a number."""
        trace, rows = self.index.trace, list[Row]()
        change = int(trace.delta_bytes[row])
        what = f"{text.size(abs(change))} {'freed' if change < 0 else 'allocated'}"
        when = "before the first event" if row < trace.existing else f"at {self._when(row)}"
        if self.stacks is not None:
            rows = self.stacks.calls(self.stacks.number(row) if number is None else number)
        return AllocationListView(
            f"stack of {what} {when}" if number is None else "stack of what is alive",
            CALLS,
            rows,
            "the file has no call stack of it",
            of=len(rows),
            foot="the innermost call first" if rows else "",
            lists=self.names,
        )

    def by_stack(self, row: int, group: str) -> AllocationListView:
        """Return the tensors alive after a row, added up by stack, function or file."""
        shown = self._in_list(self.index.alive(row))
        born, sizes = self.index.born[shown], self.index.size_bytes[shown]
        rows = [] if self.stacks is None else self.stacks.sums(born, sizes, group)
        each = "" if group == "by stack" else ": each with all that it calls"
        foot = f"total {text.size(int(sizes.sum()))}{each}"
        return self._of_alive(f" {group}", SUMS, rows, of=len(rows), foot=foot)


def _size(bytes_: int) -> str:
    """Return a size, a zero without a unit: most cells of the tree are 0."""
    return text.size(bytes_) if bytes_ else "0"
