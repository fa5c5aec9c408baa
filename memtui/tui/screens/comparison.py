"""The screen of ``memtui compare``: sessions over each other, their figures, and what to know before comparing them."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget

from memtui.analysis.lines import Line
from memtui.analysis.resident import RSS
from memtui.core.errors import UserError
from memtui.core.options import LETTERS
from memtui.reports.comparison.differences import (
    Difference,
    condition_rows,
    figure_rows,
    notes,
    resident_text,
    training_rows,
    window_text,
)
from memtui.reports.comparison.model import CommonWindows, ComparedSession, RecordedMemory, change_text
from memtui.tui.base_app import TerminalApp
from memtui.tui.screens.layout import LARGE_COLUMNS
from memtui.tui.screens.parts_screen import PartsScreen
from memtui.widgets import text
from memtui.widgets.label import TextLine
from memtui.widgets.overlay_chart import OverlayChart
from memtui.widgets.table import Column, Listing, ListingView, Row
from memtui.widgets.views.comparison import OverlayView

Derive = Callable[[], CommonWindows]
TRAINING, MEMORY = "training", "memory"
NOTE_LINES = 2
COMFORTABLE_ROWS = 14  # of charts and table together
_NONE = Line(np.empty(0), np.empty(0))
_RUNS = (
    Column("", 3),
    Column("training", 30),
    Column("accuracy", 10, right=True),
    Column("loss", 10, right=True, rank=3),
    Column("peak above start", 18, right=True),
    Column("against A", 11, right=True, rank=1),
    Column("iteration", 11, right=True, rank=2),
    Column("  in", 0, rank=4),
)
_WINDOWS_CELLS = 11
_SESSIONS = (
    Column("", 3),
    Column("session", 18),
    Column("windows", _WINDOWS_CELLS, right=True, rank=2),
    Column("WSS", 11, right=True),
    Column("against A", 11, right=True),
    Column("WSS 95 %", 11, right=True, rank=5),
    Column("RSS", 11, right=True),
    Column("against A", 11, right=True, rank=3),
    Column("VM", 11, right=True, rank=7),
    Column("reuse 95 %", 12, right=True, rank=6),
    Column("knee", 11, right=True, rank=4),
    Column("  program", 0, rank=8),
)


class _Derived(Message):
    """Merging windows to one length has succeeded or failed."""

    def __init__(self, same: CommonWindows) -> None:
        super().__init__()
        self.same = same


class ComparisonScreen(PartsScreen):
    """Curves on axes that all sessions share: of their trainings, or of the memory of their programs."""

    HELP = "comparison"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "turn", "trainings or memory"),
        Binding("x", "across", "another horizontal axis"),
        Binding("m", "below", "something else in the lower chart"),
        Binding("r", "missed", "touches held, or missed"),
        Binding("i", "merged", "windows as recorded, or of one length"),
        Binding("d", "differences", "figures, or differences"),
        Binding("n", "note", "the next note"),
        Binding("down", "move(1)", "next row"),
        Binding("up", "move(-1)", "previous row"),
        Binding("pagedown", "page(1)", "next page"),
        Binding("pageup", "page(-1)", "previous page"),
        Binding("right", "sideways(1)", "the next sessions"),
        Binding("left", "sideways(-1)", "the sessions before"),
        Binding("c", "app.next_theme", "colours"),
        Binding("question_mark,f1", "help", "help"),
        Binding("escape", "lift", "back to the figures, or end"),
        Binding("q", "app.quit", "end"),
    ]

    def __init__(self, sessions: Sequence[ComparedSession], derive: Derive | None = None) -> None:
        super().__init__()
        self._sessions, self._derive = sessions, derive
        self._runs = [session.training for session in sessions]
        self._memories: list[RecordedMemory | None] = [session.memory for session in sessions]
        learns = all(run is not None and (len(run.loss.x) or len(run.step.x)) for run in self._runs)
        self._page = TRAINING if learns or not any(self._memories) else MEMORY
        self._other_axis = False  # seconds of a training, the share of a session
        self._one_iteration = any(run is not None and len(run.step.x) for run in self._runs)  # or the whole training
        self._vm = self._missed = self._merged = self._differences = False
        self._same: CommonWindows | None = None
        self._note = 0
        self._first = 1  # of the sessions beside A, where not all have room
        self.head = TextLine("title", id="header")
        self.left, self.right, self.below = OverlayChart(), OverlayChart(), OverlayChart()
        self.figures = Listing(ListingView("sessions", _SESSIONS))
        self.notes = [TextLine("warning") for _ in range(NOTE_LINES)]
        self.foot = TextLine("dim", id="footer")
        self.upper = Horizontal(self.left, self.right, id="curves")

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.upper, self.below, self.figures, *self.notes, self.foot

    def on_mount(self) -> None:
        self.figures.choose(True)
        if self._derive is not None:
            threading.Thread(target=self._derive_windows, name="same-windows", daemon=True).start()
        self.on_resize()

    def _derive_windows(self) -> None:
        assert self._derive is not None
        try:
            same = self._derive()
        except UserError as error:
            same = CommonWindows(0.0, (), {}, str(error))
        self.post_message(_Derived(same))

    def on__derived(self, message: _Derived) -> None:
        self._same = message.same
        self.on_resize()

    def share_rows(self, height: int) -> None:
        note_lines = self._note_lines()
        for line, note in zip(self.notes, note_lines, strict=True):
            line.display = line.display and bool(note)
            line.show(note)
        room = height - 2 - sum(map(bool, note_lines))
        rows = len(self._sessions) if not self._differences else len(self._rows_of_differences())
        figures = min(rows + 3, max(4, room // (2 if self._differences else 3)))
        upper = max(5 if room >= COMFORTABLE_ROWS else 4, (room - figures) * 45 // 100)
        self.figures.styles.height, self.upper.styles.height = figures, upper
        self.below.styles.height = room - figures - upper
        for chart in (self.left, self.right):
            chart.styles.width, chart.styles.height = "1fr", upper

    def _note_lines(self) -> list[str]:
        """Return the note, or a part of a long one, in at most ``NOTE_LINES`` lines, padded with empty ones."""
        pages = self._note_pages()
        lines = pages[self._note % len(pages)] if pages else []
        return [f" {line}" for line in lines] + [""] * (NOTE_LINES - len(lines))

    def _note_pages(self) -> list[list[str]]:
        """Return the lines of all notes: those that have room together, and where a note is longer its rest."""
        texts = notes(self._sessions, self._same)
        width = max(20, self.app.size.width - 2)
        room = NOTE_LINES if self.app.size.height - 2 - NOTE_LINES >= COMFORTABLE_ROWS else 1
        pages: list[list[str]] = []
        for number, note in enumerate(texts, 1):
            lead, pieces = f"{number} of {len(texts)}: " if len(texts) > 1 else "", text.clean(note).split()
            while len(lines := _wrapped(lead, pieces, width)) > room:
                page = _wrapped(lead, pieces, width - 2)[:room]
                pages.append([*page[:-1], f"{page[-1]} …"])
                pieces = pieces[max(1, sum(len(line.split()) for line in page) - len(lead.split())) :]
                lead = lead if lead.endswith("… ") else f"{lead}… "
            pages.append(lines)
        return pages

    def action_turn(self) -> None:
        if any(self._runs) and any(self._memories):
            self._page = MEMORY if self._page == TRAINING else TRAINING
            self.on_resize()

    def action_across(self) -> None:
        self._other_axis = not self._other_axis
        self.fill()

    def action_below(self) -> None:
        if self._page == TRAINING:
            self._one_iteration = not self._one_iteration
        else:
            self._vm = not self._vm
        self.fill()

    def action_missed(self) -> None:
        self._missed = not self._missed
        self.fill()

    def action_merged(self) -> None:
        if self._same is not None and not self._same.reason:
            self._merged = not self._merged
            self.on_resize()

    def action_differences(self) -> None:
        self._differences = not self._differences
        self.on_resize()

    def action_lift(self) -> None:
        if self._differences:
            self.action_differences()
        else:
            self.app.exit()

    def action_note(self) -> None:
        self._note += 1
        self.on_resize()

    def action_sideways(self, by: int) -> None:
        self._first = min(max(1, self._first + by), max(1, len(self._sessions) - 1))
        self.fill()

    def action_move(self, by: int) -> None:
        self.figures.move(by)

    def action_page(self, by: int) -> None:
        self.figures.move(by * self.figures.in_sight)

    def fill(self) -> None:
        if self._page == TRAINING:
            self._show_training()
        else:
            self._show_memory()
        self.figures.show(self._listing())
        what = "trainings" if self._page == TRAINING else "sessions"
        merged = ""
        if self._merged and self._same is not None and self._same.selected_s is not None:
            merged = f", {self._same.windows}"
        elif self._merged and self._same is not None:
            merged = f", windows merged to {text.duration(self._same.interval_s)}"
        self.head.show(f" compare   {len(self._sessions)} {what}{merged}")
        self.foot.show(f" {_fitting(self._keys(), self.app.size.width - 2)}")

    def _keys(self) -> list[str]:
        """Return the keys with their current actions, the most important first."""
        keys = []
        if self._page == TRAINING:
            keys += [f"x {'iterations' if self._other_axis else 'seconds'}"]
            keys += [f"m {'the training' if self._one_iteration else 'one iteration'}"]
        else:
            keys += [f"x {'seconds' if self._other_axis else 'share'}", f"m {'RSS' if self._vm else 'VM'}"]
            keys += [f"r {'held' if self._missed else 'missed'}"]
            if self._same is not None and not self._same.reason:
                how = "merged" if self._same.selected_s is None else "alike"
                keys.append(f"i {'as recorded' if self._merged else how}")
            elif self._derive is not None and self._same is None:
                keys.append("merging windows")
        keys.append(f"d {'figures' if self._differences else 'differences'}")
        if len(self._note_pages()) > 1:
            keys.append("n note")
        if any(self._runs) and any(self._memories):
            keys.insert(0, f"Tab {MEMORY if self._page == TRAINING else TRAINING}")
        return [*keys, "? help", "q ends", "c colours"]

    def _show_training(self) -> None:
        over = "s" if self._other_axis else "iterations"
        suffix = "_s" if self._other_axis else ""

        def lines(name: str) -> tuple[Line, ...]:
            return tuple(_NONE if run is None else getattr(run, name) for run in self._runs)

        self.left.show(OverlayView("loss", lines(f"loss{suffix}"), "", over))
        self.right.show(OverlayView("accuracy", lines(f"accuracy{suffix}"), "%", over))
        if self._one_iteration:
            self.below.show(OverlayView("memory above the start", lines("step"), "bytes", "%"))
        else:
            self.below.show(OverlayView("memory of tensors", lines(f"memory{suffix}"), "bytes", over))

    def _show_memory(self) -> None:
        of_windows = self._of_windows()
        window = window_text(of_windows)
        if self.app.size.width < LARGE_COLUMNS:
            window = window.removeprefix("windows of ")
        over = "share" if self._other_axis else "s"

        def over_time(name: str, memories: Sequence[RecordedMemory | None]) -> tuple[Line, ...]:
            lines = (_NONE if memory is None else getattr(memory, name) for memory in memories)
            return tuple(_share(line) if self._other_axis else line for line in lines)

        self.left.show(OverlayView(f"WSS, {window}", over_time("wss", of_windows), "bytes", over))
        curves = [_NONE if memory is None else memory.reuse for memory in of_windows]
        if self._missed:
            curves = [Line(curve.x, 100 - curve.y) for curve in curves]
        what = "touches missed" if self._missed else "touches held"
        self.right.show(OverlayView(f"{what}, {window}", tuple(curves), "%", "bytes"))
        name = "mapped" if self._vm else "rss"
        title = "VM" if self._vm else resident_text(self._memories)
        self.below.show(OverlayView(title, over_time(name, self._memories), "bytes", over))

    def _of_windows(self) -> Sequence[RecordedMemory | None]:
        return self._same.memories if self._merged and self._same is not None else self._memories

    def _listing(self) -> ListingView:
        if self._differences:
            return self._differences_listing()
        indices = range(len(self._sessions))
        if self._page == TRAINING:
            return ListingView("trainings", _RUNS, tuple(map(self._run_row, indices)))
        rows_by_name = {row.name: row for row in self._figure_rows()}
        kinds = resident_text(self._memories)  # as in the chart below
        resident = kinds if " or " not in kinds else "resident"
        columns = tuple(replace(column, name=resident) if column.name == RSS else column for column in _SESSIONS)
        return ListingView("sessions", columns, tuple(self._session_row(index, rows_by_name) for index in indices))

    def _differences_listing(self) -> ListingView:
        rows = self._rows_of_differences()
        shown = [0, *range(self._first, len(self._sessions))]
        columns = [Column("", 26)]
        for index in shown:
            name = f"{LETTERS[index]} {self._sessions[index].name}"
            columns.append(Column(name, 22, right=True, rank=max(1, index)))
        cells = [
            Row(row.name, (row.label, *(_changed(row.cells[index], row.changes[index]) for index in shown)))
            for row in rows
        ]
        return ListingView("differences", tuple(columns), tuple(cells))

    def _figure_rows(self) -> list[Difference]:
        """Return figures as recorded, or figures of merged windows in place of those that depend on windows."""
        merged = {row.name: row for row in figure_rows(self._of_windows())} if self._merged else {}
        return [merged.get(row.name, row) for row in figure_rows(self._memories)]

    def _rows_of_differences(self) -> list[Difference]:
        return [*training_rows(self._runs), *self._figure_rows(), *condition_rows(self._sessions)]

    def _session_row(self, index: int, rows: dict[str, Difference]) -> Row:
        session = self._sessions[index]

        def figure(name: str) -> str:
            return rows[name].cells[index] if name in rows else "n/a"

        def change(name: str) -> str:
            return rows[name].changes[index] if name in rows else ""

        memory = self._of_windows()[index]
        pss = rows.get("pss_median_bytes")  # of a process alone this is its RSS
        resident = "rss_median_bytes" if pss is None or pss.values[index] is None else pss.name
        cells = (
            LETTERS[index],
            text.clean(session.name),
            _windows(memory),
            figure("wss_median_bytes"),
            change("wss_median_bytes"),
            figure("wss_p95_bytes"),
            figure(resident),
            change(resident),
            figure("mapped_max_bytes"),
            figure("reuse_p95_bytes"),
            figure("knee_bytes"),
            f"  {text.clean(session.program)}",
        )
        return Row(str(index), cells)

    def _run_row(self, number: int) -> Row:
        run = self._runs[number]
        if run is None:
            name = text.clean(self._sessions[number].name)
            return Row(str(number), (LETTERS[number], f"{name}: no training", *["n/a"] * 3, "", "n/a", ""))
        above = run.peak_above_start_bytes
        first = self._runs[0]
        cells = (
            LETTERS[number],
            text.clean(run.title),
            f"{run.last_accuracy:.1f} %" if run.last_accuracy is not None else "n/a",
            f"{run.last_loss:.4g}" if run.last_loss is not None else "n/a",
            text.size(above) if above is not None else "n/a",
            change_text(run, first) if first is not None else "",
            text.duration(run.step_ms / 1e3) if run.step_ms is not None else "n/a",
            f"  {text.clean(run.segment)}" + (" alone" if run.one_segment and run.segment else ""),
        )
        return Row(str(number), cells)


def _wrapped(lead: str, pieces: Sequence[str], width: int) -> list[str]:
    return textwrap.wrap(lead + " ".join(pieces), width, break_long_words=False, break_on_hyphens=False)


def _windows(memory: RecordedMemory | None) -> str:
    """Return the length of the windows of a session, or the shortest and the longest, for the column of the table."""
    whole = window_text([memory]).removeprefix("windows of ")
    if memory is None or text.width(whole) <= _WINDOWS_CELLS - 2:
        return whole or "n/a"
    shortest, longest = (f"{seconds:.2g}" if seconds < 99.5 else f"{seconds:.0f}" for seconds in memory.interval_s)
    bounds = f"{shortest}-{longest}"
    return f"{bounds} s" if text.width(bounds) <= _WINDOWS_CELLS - 4 else f"{bounds}s"


def _changed(cell: str, change: str) -> str:
    return f"{cell} {change:>8}" if change else cell


def _share(line: Line) -> Line:
    """Return a line over percent of its length."""
    return Line(100 * line.x / line.x[-1], line.y) if len(line.x) and line.x[-1] else line


def _fitting(keys: Sequence[str], cells: int) -> str:
    """Join as many keys as have room; the last but one, which leaves, always stays."""
    shown = list(keys)
    while len(" · ".join(shown)) > cells and len(shown) > 2:
        shown.pop(-1 if shown[-1].startswith("c ") else -3)
    return " · ".join(shown)


class ComparisonApp(TerminalApp[None]):
    """The app of a comparison of sessions. ``derive``: merges their windows to one length, where lengths differ."""

    def __init__(self, sessions: Sequence[ComparedSession], derive: Derive | None = None, **how: object) -> None:
        super().__init__(**how)  # type: ignore[arg-type]
        self._sessions, self._derive = sessions, derive

    def get_default_screen(self) -> ComparisonScreen:
        return ComparisonScreen(self._sessions, self._derive)
