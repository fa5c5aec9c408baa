"""Lines of several sessions on one pair of axes, as a widget draws them."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.analysis.lines import Line


@dataclass(frozen=True, slots=True, eq=False)
class OverlayView:
    """Lines of several sessions on one pair of axes.

    Attributes:
        title: what the values are.
        lines: one for each session, in their order; empty where it has none.
        unit: of the values: "bytes", "%" or "" (plain numbers).
        across: what the other axis counts: "iterations", "s", "%" of the allocations and frees of one iteration,
            "share" (percent of the session), or "bytes" of memory.
    """

    title: str
    lines: tuple[Line, ...]
    unit: str
    across: str
