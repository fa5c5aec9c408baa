"""A list below the chart of allocations: its title names the rows that are left out, and the other lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memtui.widgets import text
from memtui.widgets.panel import line_width
from memtui.widgets.raster import Line
from memtui.widgets.table import Listing, ListingView

LISTS = ("tensors", "events", "layers", "breakdown", "stack")
WITHOUT_STACKS = LISTS[:4]


@dataclass(frozen=True, slots=True)
class AllocationListView(ListingView):
    """``hidden`` stays 0: the title shows with ``of`` and ``left_out`` how many rows are hidden."""

    of: int = 0  # rows there are, in sight of the filter or not
    left_out: str = ""  # the text about rows that a key hides; "": no key hides rows of this list
    filter_text: str = ""
    layer: str | None = None  # the only one the list is about
    foot: str = ""
    lists: tuple[str, ...] = WITHOUT_STACKS  # those that a key chooses


class AllocationList(Listing):
    """``list_index``: the index of its name in LISTS."""

    view: AllocationListView

    def __init__(self, list_index: int, view: AllocationListView, **options: Any) -> None:
        super().__init__(view, **options)
        self.list_index = list_index

    def scroll_rows(self, by: int) -> None:
        super().scroll_rows(by)
        self.post_message(self.Selected(self, self.selected))

    def heading(self) -> Line:
        view, draw_style = self.view, self.draw_style
        shown = len(view.rows)
        line: Line = [
            (view.title, draw_style["title"]),
            ((f"  {shown}" + f" of {view.of}" * (view.of > shown)) * view.counted, draw_style["dim"]),
        ]
        if view.left_out:
            line += [(f", {view.left_out} (", draw_style["dim"]), ("f", draw_style["key"]), (")", draw_style["dim"])]
        if view.layer is not None:
            line += [("  in ", draw_style["dim"]), (text.fit(text.clean(view.layer), 24).rstrip(), draw_style["focus"])]
        if view.filter_text:
            line += [
                ("  / ", draw_style["key"]),
                (text.fit(text.clean(view.filter_text), 20).rstrip(), draw_style["bright"]),
            ]
        return line

    def heading_right(self, width: int) -> Line:
        """Return the lists and their keys, in full where there is room."""
        draw_style = self.draw_style
        for names in (self.view.lists, ("",) * len(self.view.lists)):
            line: Line = []
            for index, name in enumerate(names):
                here = index == self.list_index
                label = f" {name}" if name else ""
                line += [(f" {index + 1}", draw_style["selected" if here else "key"])]
                line += [(f"{label} ", draw_style["selected" if here else "dim"])]
            if line_width(line) + line_width(self.heading()) + 8 <= width:
                return line
        return line

    def footing(self) -> Line:
        return [(text.clean(self.view.foot), self.draw_style["dim"])] if self.view.foot else []
