"""Lines under the header: the results in sentences; and on a key how they are measured, and what that costs."""

from __future__ import annotations

from memtui.analysis.memory_sentences import fitting
from memtui.analysis.target_loss import OWN_CPU
from memtui.widgets import text
from memtui.widgets.panel import CachedWidget, line_width
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import HeaderView, SentencesView

_BETWEEN = "   "


class SummaryLines(CachedWidget):
    """As many of the sentences as have room."""

    view: SentencesView

    def paint(self, width: int, height: int) -> list[Line]:
        return [
            [(f" {line}", self.draw_style["text"])] for line in fitting(list(self.view.sentences), width - 2, height)
        ]


class DetailLines(CachedWidget):
    """Tracker, interval and costs, each with its name; parts are not broken where a line can hold them."""

    view: HeaderView

    def paint(self, width: int, height: int) -> list[Line]:
        draw_style = self.draw_style
        lines: list[Line] = []
        for name, value in details(self.view):
            part: Line = [(f"{name} ", draw_style["dim"]), (text.clean(value), draw_style["text"])]
            if lines and line_width(lines[-1]) + len(_BETWEEN) + line_width(part) < width:
                lines[-1] += [(_BETWEEN, draw_style["dim"]), *part]
            else:
                lines.append([(" ", draw_style["dim"]), *part])
        return lines[:height]


def detail_rows(width: int) -> int:
    """Return how many lines the details take on a screen of a width, whatever the figures are."""
    return 2 if width >= 200 else 3 if width >= 100 else 4 if width >= 80 else 5


def details(view: HeaderView) -> list[tuple[str, str]]:
    """Return how the working set is measured and what that costs, as (name, value)."""
    interval = [
        f"{name} {seconds:.2f} s"
        for name, seconds in (("asked", view.requested_s), ("budgeted", view.budgeted_s), ("true", view.true_s))
        if seconds is not None
    ]
    budget = "none"
    if view.budget is not None:
        spent = "" if view.spent is None else f", {view.spent / view.budget:.0%} used lately".replace("%", " %")
        budget = f"{view.budget * 100:g} % (recording {OWN_CPU * view.budget * 100:g} %){spent}"
    stopped = "n/a" if view.paused_s is None else f"{text.duration(view.paused_s):>7} a window"
    if view.paused_s is not None and view.others:
        stopped += " in all"  # processes are stopped one after another
    return [
        ("tracker", view.tracker or "n/a"),
        ("flush", view.flush or "n/a"),
        ("rearm", view.rearm or "n/a"),
        ("interval", ", ".join(interval) or "n/a"),
        ("stopped", stopped),
        ("self", f"{text.percent(view.own_cpu):>6} of one core" if view.own_cpu is not None else "n/a"),
        ("budget", budget),
        ("given back", "n/a" if view.given_back_bytes is None else f"up to {text.size(view.given_back_bytes)}"),
    ]
