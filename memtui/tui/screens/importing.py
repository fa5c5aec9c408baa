"""The screen of a file of another tool while it is read: what it tells of so far, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from memtui.core.processes import BackgroundTask
from memtui.formats.reading import FileSummary, ReadingProgress
from memtui.tui.base_app import TerminalApp
from memtui.tui.screens.parts_screen import FollowingScreen
from memtui.widgets import text
from memtui.widgets.label import TextLine
from memtui.widgets.reading_chart import ReadingChart

REFRESH_S = 0.5
_WAIT_S = 0.1  # for a message; the thread ends within that time


class _Received(Message):
    """What the reading process sent last, and whether it has ended."""

    def __init__(self, progress: ReadingProgress | None, over: bool) -> None:
        super().__init__()
        self.progress, self.over = progress, over


class ImportScreen(FollowingScreen):
    """Shows a task that sends ``ReadingProgress`` until it is over, or the user leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "end the import"),
        Binding("c", "app.next_theme", "other colours"),
    ]

    def __init__(self, task: BackgroundTask[ReadingProgress], name: str) -> None:
        super().__init__()
        self._reading, self._name_of_file = task, name
        self._progress: ReadingProgress | None = None
        self._start_s = self._stage_start_s = time.monotonic()
        self.head, self.bar, self.figures = TextLine("title", id="header"), TextLine("live"), TextLine("text")
        self.chart = ReadingChart(())
        self.foot = TextLine("dim", id="footer")

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.bar, self.figures, self.chart, self.foot

    def on_mount(self) -> None:
        self.set_interval(REFRESH_S, self.fill)

    def share_rows(self, height: int) -> None:
        self.chart.styles.height = max(3, height - 4)

    def follow(self) -> None:
        while not self.ended.is_set() and not (self._reading.over or self._reading.finished):
            messages = self._reading.receive_messages(_WAIT_S)
            if steps := [message for message in messages if isinstance(message, ReadingProgress)]:
                self.post_message(_Received(steps[-1], False))
        self.post_message(_Received(None, True))

    def on__received(self, message: _Received) -> None:
        if message.progress is not None:
            if self._progress is not None and self._progress.doing != message.progress.doing:
                self._stage_start_s = time.monotonic()
            self._progress = message.progress
        self.fill()
        if message.over:
            self.app.exit()

    def fill(self) -> None:
        progress, width = self._progress, self.app.size.width
        summary = None if progress is None else progress.summary
        parts = [(f" memtui import  {text.clean(self._name_of_file)}", 1)]
        if progress is not None and progress.total_bytes:
            parts.append((f"   {text.size(progress.total_bytes)}", 2))
        if summary is not None:
            parts.append((f"   {summary.format}", 3))
        self.head.show(text.fitting_ranked(parts, width, ""))
        now_s = time.monotonic()
        self.bar.show(f" {_bar(progress, now_s - self._start_s, now_s - self._stage_start_s, width - 2)}")
        self.figures.show(f" {_figures(summary)}")
        if summary is not None and summary.usage_bytes != self.chart.view:
            self.chart.show(summary.usage_bytes)
        self.foot.show(" q Esc end the import: nothing is written")

    def action_leave(self) -> None:
        self.app.exit()


class ImportApp(TerminalApp[None]):
    """App of that screen; leaving it does not end the task, the caller does."""

    def __init__(self, task: BackgroundTask[ReadingProgress], name: str, **how: Any) -> None:
        super().__init__(**how)
        self._reading, self._name_of_file = task, name

    def get_default_screen(self) -> ImportScreen:
        return ImportScreen(self._reading, self._name_of_file)


def _bar(progress: ReadingProgress | None, passed_s: float, stage_s: float, width: int) -> str:
    """Return what is done, a bar and the time left of it; without a share, the time since the start."""
    if progress is None:
        return "starting ..."
    share = progress.share
    if share is None or not 0 < share < 1:
        so_far = f", {text.size(progress.read_bytes)} so far" if not progress.total_bytes else ""
        return f"{progress.doing}{so_far} ({text.span(round(passed_s))})"
    label = f" {100 * share:.0f} %, {text.span(round(stage_s * (1 - share) / share))} left of {progress.doing}"
    return f"{text.progress_bar(round(1000 * share), 1000, max(8, width - text.width(label)))}{label}"


def _figures(summary: FileSummary | None) -> str:
    if summary is None:
        return ""
    peak = "" if summary.peak_bytes is None else f" · peak so far {text.size(summary.peak_bytes)}"
    return f"{summary.allocations:,} allocations and {summary.frees:,} frees so far{peak}"
