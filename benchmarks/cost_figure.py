"""The figure of ``benchmarks.cost``, drawn with what draws the figures of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memtui.core.page_sizes import PAGE_BYTES
from memtui.reports.figures.axes import Axes, Scale, footnote, octave_scale
from memtui.reports.figures.svg import COLUMN_PT, SMALL_PT, Drawing, wrap

if TYPE_CHECKING:
    from benchmarks.cost import Cost

_LEFT, _TOP, _HEIGHT, _GAP, _RIGHT = 38.0, 16.0, 110.0, 42.0, 46.0
_LINES = (
    ("clear", "clear_ns", "rss", ""),
    ("walk", "walk_ns", "wss", ""),
    ("flush", "flush_ns", "mark", ""),
    ("re-arm 1 %", "rearm_ns", "bound", ""),
)


def draw(costs: Sequence[Cost], floor_ns: float, about: str) -> Drawing:
    """A panel for each kind of page: ns a resident page against size, both logarithmic."""
    kinds = sorted({cost.page_bytes for cost in costs})
    notes = [line for text in (_WORDS, about) for line in wrap(text, COLUMN_PT - 8, SMALL_PT, 4)]
    bottom = _TOP + len(kinds) * (_HEIGHT + _GAP) - _GAP
    height = bottom + 24 + len(notes) * (SMALL_PT + 1.2) + 3
    drawing = Drawing(COLUMN_PT, height, "Cost of a window against size", f"{_WORDS} {about}")
    for row, page_bytes in enumerate(kinds):
        found = sorted((cost for cost in costs if cost.page_bytes == page_bytes), key=lambda cost: cost.gib)
        _panel(drawing, _TOP + row * (_HEIGHT + _GAP), found, floor_ns)
    footnote(drawing, notes, bottom + 22)
    return drawing


_WORDS = (
    "Time of each part of a window for each resident page. All pages touched; re-arm: by working set, one hundredth "
    "touched in one piece. Floor: 8 bytes of page table a page, read as a stream."
)


def _panel(drawing: Drawing, top: float, costs: Sequence[Cost], floor_ns: float) -> None:
    values = [getattr(cost, name) for _, name, _, _ in _LINES for cost in costs] + [floor_ns]
    sizes = [cost.gib * 2**30 for cost in costs]
    across = octave_scale(min(sizes), max(sizes))
    axes = Axes(drawing, _LEFT, top, COLUMN_PT - _LEFT - _RIGHT, _HEIGHT, across, decades(min(values), max(values)))
    kind = "4 KiB pages" if costs[0].page_bytes == PAGE_BYTES else "2 MiB pages"
    drawing.text(_LEFT, top - 5, kind)
    axes.grid()
    ends = []
    for label, name, role, dash in _LINES:
        drawing.polyline(
            [(axes.x(s), axes.y(getattr(c, name))) for s, c in zip(sizes, costs, strict=True)], role, 1.0, dash
        )
        ends.append((axes.y(getattr(costs[-1], name)), label, role))
    drawing.line(axes.left, axes.y(floor_ns), axes.left + axes.width, axes.y(floor_ns), "dim", 0.8, "2 1.5")
    ends.append((axes.y(floor_ns), "floor", "dim"))
    axes.edges()
    axes.label_up("ns a page")
    axes.label_across("resident memory")
    free = 0.0
    for y, label, role in sorted(ends):  # one below the other, where lines end close to each other
        free = max(free, y + 2)
        drawing.text(axes.left + axes.width + 3, free, label, size=SMALL_PT + 0.5, fill=role)
        free += SMALL_PT + 1.5


def decades(low: float, high: float) -> Scale:
    """A logarithmic scale of ns with a tick at each power of ten."""
    first = last = 0
    while 10.0**first > low:
        first -= 1
    while 10.0 ** (first + 1) <= low:
        first += 1
    while 10.0**last < high:
        last += 1
    last = max(last, first + 1)
    ticks = tuple((10.0**power, f"{10.0**power:g}") for power in range(first, last + 1))
    return Scale(10.0**first, 10.0**last, ticks, "ns", log=True)
