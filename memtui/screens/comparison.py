"""The screen of ``memtui compare``: trainings over each other, and their figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen

from memtui.screens.arrange import too_small
from memtui.screens.terminal_app import TerminalApp
from memtui.views_comparison import LETTERS, OverlayView, Run, change_words
from memtui.widgets import text
from memtui.widgets.listing import Column, Listing, ListingView, Row
from memtui.widgets.notice import Notice, Words
from memtui.widgets.overlay_chart import OverlayChart

_COLUMNS = (
    Column("", 3),
    Column("training", 30),
    Column("accuracy", 10, right=True),
    Column("loss", 10, right=True, rank=3),
    Column("peak above start", 18, right=True),
    Column("against A", 11, right=True, rank=1),
    Column("iteration", 11, right=True, rank=2),
    Column("  in", 0, rank=4),
)
_KEYS = "x iterations or seconds · m memory of one iteration or of the training · c colours · q ends"


class ComparisonScreen(Screen[None]):
    """Loss, accuracy and memory on axes that all trainings share."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "across", "iterations or seconds"),
        Binding("m", "memory", "memory of one iteration or of the training"),
        Binding("down", "move(1)", "next row"),
        Binding("up", "move(-1)", "previous row"),
        Binding("c", "app.next_theme", "colours"),
        Binding("q,escape", "app.quit", "end"),
    ]

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self._runs = runs
        self._seconds = False
        self._one = any(len(run.step.x) for run in runs)  # one iteration, and not the whole training
        self.head = Words("title", f" compare   {len(runs)} trainings", id="header")
        self.loss, self.accuracy, self.memory = OverlayChart(), OverlayChart(), OverlayChart()
        self.figures = Listing(ListingView("trainings", _COLUMNS))
        self.foot = Words("dim", f" {_KEYS}", id="footer")
        self.notice = Notice(id="notice")
        self.upper = Horizontal(self.loss, self.accuracy, id="curves")

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.upper
        yield self.memory
        yield self.figures
        yield self.foot
        yield self.notice

    def on_mount(self) -> None:
        self.figures.choose(True)
        self.figures.show(ListingView("trainings", _COLUMNS, tuple(map(self._row, range(len(self._runs))))))
        self.on_resize()
        self._show()

    def on_resize(self) -> None:
        words = too_small(*self.app.size)
        self.notice.show(words)
        self.notice.display = bool(words)
        for part in (self.head, self.upper, self.memory, self.figures, self.foot):
            part.display = not words
        room = self.app.size.height - 2
        figures = min(len(self._runs) + 3, max(4, room // 3))
        upper = max(5, (room - figures) * 45 // 100)
        self.figures.styles.height, self.upper.styles.height = figures, upper
        self.memory.styles.height = max(5, room - figures - upper)
        for chart in (self.loss, self.accuracy):
            chart.styles.width, chart.styles.height = "1fr", upper

    def action_across(self) -> None:
        self._seconds = not self._seconds
        self._show()

    def action_memory(self) -> None:
        self._one = not self._one
        self._show()

    def action_move(self, by: int) -> None:
        self.figures.move(by)

    def _show(self) -> None:
        runs, over = self._runs, "s" if self._seconds else "iterations"
        losses = tuple(run.loss_s if self._seconds else run.loss for run in runs)
        rights = tuple(run.accuracy_s if self._seconds else run.accuracy for run in runs)
        self.loss.show(OverlayView("loss", losses, "", over))
        self.accuracy.show(OverlayView("accuracy", rights, "%", over))
        if self._one:
            view = OverlayView("memory above the start", tuple(run.step for run in runs), "bytes", "%")
        else:
            held = tuple(run.memory_s if self._seconds else run.memory for run in runs)
            view = OverlayView("memory of tensors", held, "bytes", over)
        self.memory.show(view)

    def _row(self, number: int) -> Row:
        run = self._runs[number]
        above = run.peak_above_start_bytes
        cells = (
            LETTERS[number],
            text.clean(run.title),
            f"{run.last_accuracy:.1f} %" if run.last_accuracy is not None else "n/a",
            f"{run.last_loss:.4g}" if run.last_loss is not None else "n/a",
            text.size(above) if above is not None else "n/a",
            change_words(run, self._runs[0]),
            text.duration(run.step_ms / 1e3) if run.step_ms is not None else "n/a",
            f"  {text.clean(run.segment)}" + (" alone" if run.one_segment and run.segment else ""),
        )
        return Row(str(number), cells)


class ComparisonApp(TerminalApp[None]):
    """Shows trainings that were read before."""

    def __init__(self, runs: Sequence[Run], **how: object) -> None:
        super().__init__(**how)  # type: ignore[arg-type]
        self._runs = runs

    def get_default_screen(self) -> ComparisonScreen:
        return ComparisonScreen(self._runs)
