"""One of the lists below the chart of allocations: its title says what is left out, and which others there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memtui.widgets import text
from memtui.widgets.panel import line_width
from memtui.widgets.raster import Line
from memtui.widgets.table import Listing, ListingView

LISTS = ("tensors", "events", "layers", "breakdown")


@dataclass(frozen=True, slots=True)
class AllocationListView(ListingView):
    """``hidden`` is left to the words: what is not shown is not lost, it is told by ``of``."""

    of: int = 0  # rows there are, in sight of the filter or not
    left_out: str = ""  # what is said of rows that a key hides; "": the list knows no such
    words: str = ""  # the filter
    layer: str | None = None  # the only one the list is about
    foot: str = ""


class AllocationList(Listing):
    """``at``: its place in LISTS."""

    view: AllocationListView

    def __init__(self, at: int, view: AllocationListView, **options: Any) -> None:
        super().__init__(view, **options)
        self.at = at

    def scroll_rows(self, by: int) -> None:
        super().scroll_rows(by)
        self.post_message(self.Selected(self, self.selected))

    def heading(self) -> Line:
        view, look = self.view, self.look
        shown = len(view.rows)
        line: Line = [(view.title, look["title"]), (f"  {shown}" + f" of {view.of}" * (view.of > shown), look["dim"])]
        if view.left_out:
            line += [(f", {view.left_out} (", look["dim"]), ("f", look["key"]), (")", look["dim"])]
        if view.layer is not None:
            line += [("  in ", look["dim"]), (text.fit(text.clean(view.layer), 24).rstrip(), look["focus"])]
        if view.words:
            line += [("  / ", look["key"]), (text.fit(text.clean(view.words), 20).rstrip(), look["bright"])]
        return line

    def heading_right(self, width: int) -> Line:
        """Return the lists and their keys, in full where there is room."""
        look = self.look
        for names in (LISTS, ("",) * len(LISTS)):
            line: Line = []
            for at, name in enumerate(names):
                here = at == self.at
                words = f" {name}" if name else ""
                line += [(f" {at + 1}", look["selected" if here else "key"])]
                line += [(f"{words} ", look["selected" if here else "dim"])]
            if line_width(line) + line_width(self.heading()) + 8 <= width:
                return line
        return line

    def footing(self) -> Line:
        return [(text.clean(self.view.foot), self.look["dim"])] if self.view.foot else []
