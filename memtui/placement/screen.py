"""The screen of a placement profile: the matrix of ops and configurations, timings, plans and curves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from memtui.core.errors import UserError
from memtui.core.units import duration_ns, percent, size
from memtui.placement import presenter as present
from memtui.placement.graph import Configuration
from memtui.placement.presenter import Loaded
from memtui.placement.slowdown import cells
from memtui.placement.store import ProfileFile
from memtui.session.file_format import sqlite_temporary_files
from memtui.tui.base_app import TerminalApp
from memtui.tui.screens.layout import LARGE_COLUMNS
from memtui.tui.screens.list_screen import ListScreen
from memtui.widgets import text
from memtui.widgets.label import TextLine
from memtui.widgets.placement_curve import PlacementCurve
from memtui.widgets.placement_matrix import PlacementMatrix
from memtui.widgets.placement_scatter import PlacementScatter
from memtui.widgets.placement_timeline import PlacementTimeline
from memtui.widgets.row_panel import CursorPanel, RowPanel
from memtui.widgets.table import Column, Listing, ListingView, Row
from memtui.widgets.views.placement import HERE_FAST, HERE_SLOW, CurveView, MatrixView, ScatterView, TimelineView

REFRESH_S, LISTEN_S = 1.0, 0.2
DETAIL_LINES = 2  # lines about what is under the cursor
NAMES = ("matrix", "timings", "plan", "curve")
# Takes the seconds to wait at most; returns a sentence on how far the measuring is, and its role.
Poll = Callable[[float], tuple[str, str]]
_SAMPLES = (Column("mode", 16), Column("run", 10, right=True), Column("time", 14, right=True))


class _Read(Message):
    """The file was read, or reading it failed."""

    def __init__(self, loaded: Loaded | None, error: str = "") -> None:
        super().__init__()
        self.loaded, self.error = loaded, error


class _Progress(Message):
    """How far the measuring is."""

    def __init__(self, sentence: str, role: str) -> None:
        super().__init__()
        self.sentence, self.role = sentence, role


class PlacementScreen(ListScreen):
    """One panel at a time has the screen; the matrix is the first."""

    HELP = "placement"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"panel({n - 1})", name) for n, name in enumerate(NAMES, 1)),
        Binding("tab", "next_panel(1)", "next panel"),
        Binding("shift+tab", "next_panel(-1)", "previous panel"),
        Binding("right", "sideways(1)", "right"),
        Binding("left", "sideways(-1)", "left"),
        Binding("m", "other('mode')", "another way of timing"),
        Binding("s", "other('slow')", "another slow pool"),
        Binding("n", "other('stored')", "another plan or curve"),
        Binding("enter", "samples", "samples of the cell"),
        Binding("c", "app.next_theme", "other colours"),
        Binding("q,escape", "leave", "leave"),
    ]

    def __init__(self, file: ProfileFile, poll: Poll | None = None) -> None:
        super().__init__()
        self._file, self._poll = file, poll
        self._loaded: Loaded | None = None
        self._panel = 0
        self._picked = {"mode": 0, "pair": 0, "slow": 0, "plan": 0, "curve": 0}
        self._sampling = False
        reading = "reading the profile"
        self.matrix = PlacementMatrix(MatrixView((), "", "", 0, 0, reading))
        self.scatter = PlacementScatter(ScatterView("", "", (), (), reading))
        self.timeline = PlacementTimeline(TimelineView("", (), (), (), (), 0, reading))
        self.curve = PlacementCurve(CurveView("", (), None, reading))
        self.samples = Listing(ListingView("samples", _SAMPLES), id="samples")
        self.head, self.tabs = TextLine("title", id="header"), TextLine("dim")
        self.progress = TextLine("live")
        self._progress = ("", "")  # sentence and role, from the process that measures
        self.details = [TextLine("text") for _ in range(DETAIL_LINES)]
        self.foot = TextLine("dim", id="footer")

    @property
    def panels(self) -> tuple[CursorPanel, ...]:
        return self.matrix, self.scatter, self.timeline, self.curve

    @property
    def parts(self) -> Sequence[Widget]:
        return self.head, self.tabs, self.progress, *self.panels, self.samples, *self.details, self.foot

    @property
    def active(self) -> RowPanel | CursorPanel:
        return self.samples if self._sampling else self.panels[self._panel]

    def follow(self) -> None:
        """Read the file, and again whenever it changes: a profile may still be in the making."""
        seen: object = None
        while not self.ended.is_set():
            now = _signature(self._file)
            if now != seen:
                try:
                    self.post_message(_Read(Loaded.of(self._file)))
                    seen = now
                except UserError as error:
                    self.post_message(_Read(None, str(error)))
            self._wait(time.monotonic() + REFRESH_S)

    def _wait(self, until_s: float) -> None:
        """Show what the process that measures reports meanwhile."""
        while (left_s := until_s - time.monotonic()) > 0 and not self.ended.is_set():
            if self._poll is None:
                self.ended.wait(left_s)
            else:
                self.post_message(_Progress(*self._poll(min(left_s, LISTEN_S))))

    def on__progress(self, message: _Progress) -> None:
        if self._progress != (message.sentence, message.role):
            self._progress = message.sentence, message.role
            self._show_progress()

    def on__read(self, message: _Read) -> None:
        self._loaded = message.loaded or self._loaded
        if message.error:
            self.head.show(f" {message.error}", "warning")
        else:
            self.fill()

    def _show_progress(self) -> None:
        """Show how far an unfinished profile is; hide the line where the profile is complete."""
        sentence, role = self._progress
        if not sentence and self._loaded is not None:
            sentence, role = present.unfinished(self._loaded), "dim"
        self.progress.show(f" {sentence}", role)
        if self.progress.display != bool(sentence and not self.notice.display):
            self.progress.display = not self.progress.display
            self.share_rows(self.app.size.height)

    def share_rows(self, height: int) -> None:
        for panel in (*self.panels, self.samples):
            panel.styles.height = max(3, height - 3 - DETAIL_LINES - self.progress.display)

    def fill(self) -> None:
        self._show_progress()
        for panel in (*self.panels, self.samples):
            panel.display = panel is self.active and not self.notice.display
            panel.choose(panel is self.active)
        loaded = self._loaded
        if loaded is not None:
            name = " memtui place   "
            self.head.show(name + present.head(loaded, self.app.size.width - len(name) - 1))
            self._fill_from(loaded)
        self._show_text()

    def _fill_from(self, loaded: Loaded) -> None:
        picked = self._picked
        if loaded.slow_pools:
            slow = loaded.slow_pools[picked["slow"] % len(loaded.slow_pools)]
            first = present.first_mode(loaded)
            modes = [first, *(mode for mode in loaded.modes if mode != first)]
            self.matrix.show(present.matrix(loaded, slow, modes[picked["mode"] % len(modes)]))
        else:
            self.matrix.show(MatrixView((), "", "", 0, 0, "the profile has one pool only"))
        self.scatter.show(present.scatter(loaded, picked["pair"]))
        self.timeline.show(present.timeline(loaded, picked["plan"]))
        self.curve.show(present.curve(loaded, picked["curve"]))

    def _show_text(self) -> None:
        """Show the tabs of the panels, details of what is under the cursor, and the keys."""
        tabs = (f"[{n} {name}]" if n - 1 == self._panel else f" {n} {name} " for n, name in enumerate(NAMES, 1))
        self.tabs.show(f" {' '.join(tabs)}")
        lines = [*self._detail_lines(), *[""] * DETAIL_LINES]
        for widget, line in zip(self.details, lines, strict=False):
            widget.show(f" {line}")
        self.foot.show(f" {self._keys()}")

    def _detail_lines(self) -> list[str]:
        return [*(self._of_cell, self._of_pair, self._of_tensor, self._of_point)[self._panel]()]

    def _of_cell(self) -> Iterator[str]:
        selected, loaded = self.matrix.selected, self._loaded
        if selected is None or loaded is None:
            return
        row, cell = selected
        slower = ("", "")
        if cell.ratio is not None:
            all_fast = f"all in {loaded.profile.fast.name}"
            slower = f", {cell.ratio:.2f} times as long as {all_fast}", f", {cell.ratio:.2f} x {all_fast}"
        yield self._cut(f"{row.op}  {cell.label}", *(f": {duration_ns(cell.time_ns)}{suffix}" for suffix in slower))
        configuration = self._configuration()
        parts = {}
        for mode in loaded.modes:
            samples = loaded.profile.times.get((row.op, configuration, mode)) if configuration is not None else None
            if samples is not None and samples.time_ns:
                low, high = min(samples.time_ns), max(samples.time_ns)
                parts[mode] = f"{mode} {len(samples.time_ns)}: {duration_ns(low)} to {duration_ns(high)}"
        shown = parts.get(self.matrix.view.mode, "not measured")
        yield self._cut(row.kind, f" · {' · '.join(parts.values()) or shown}", f" · {shown}")

    def _configuration(self) -> Configuration | None:
        """Return the configuration of the cell under the cursor."""
        selected, loaded = self.matrix.selected, self._loaded
        if selected is None or loaded is None:
            return None
        row, cell = selected
        op = loaded.profile.graph.ops[loaded.profile.graph.index[row.op]]
        choices = cells(loaded.profile, op, self.matrix.view.slow, self.matrix.view.mode)
        return next((each.configuration for each in choices if str(each.configuration) == cell.label), None)

    def _of_pair(self) -> Iterator[str]:
        view, point = self.scatter.view, self.scatter.selected
        yield self._fitting(*view.verdict or ("",))
        if point is not None:
            ratio = f", ratio {point.y_ns / point.x_ns:.2f}" if point.x_ns else ""
            times = f"{view.across} {duration_ns(point.x_ns)}, {view.up} {duration_ns(point.y_ns)}{ratio}"
            yield self._cut(point.label, f": {times}")

    def _of_tensor(self) -> Iterator[str]:
        view, row = self.timeline.view, self.timeline.selected
        yield self._fitting(*view.sentences or ("",))
        if row is not None:
            op = min(self.timeline.op, len(view.ops) - 1)
            where = {HERE_FAST: "in fast memory", HERE_SLOW: "in slow memory"}.get(row.where[op], "not alive")
            total = f"{size(view.fast_bytes[op])} fast in all"
            what = f"{row.name}, {size(row.size_bytes)}: {where}"
            short = f"{what} in op {op}"
            yield self._fitting(f"{what} while op {op} {view.ops[op]} runs, {total}", f"{short}, {total}", short)

    def _of_point(self) -> Iterator[str]:
        point = self.curve.selected
        if point is not None:
            gap = "" if point.gap is None else f", at most {percent(point.gap)} from the optimum"
            yield f"{size(point.limit_bytes)} of fast memory: plan {duration_ns(point.plan_ns)}{gap}"
            first = "breaks the limit, or was not measured" if point.touch_ns is None else duration_ns(point.touch_ns)
            yield f"first touch {first}"

    def _fitting(self, *sentences: str) -> str:
        """Return the first sentence that fits the width, or else the last."""
        room = self.app.size.width - 2
        return next((sentence for sentence in sentences if text.width(text.clean(sentence)) <= room), sentences[-1])

    def _cut(self, name: str, *ends: str) -> str:
        """Return a name, cut in its middle where needed, and the first of these ends that fits, or else the last."""
        room = self.app.size.width - 2
        name = text.clean(name)
        end = next((end for end in ends if text.width(name + end) <= room), ends[-1])
        return text.fit(name, min(text.width(name), max(8, room - text.width(end)))) + end

    def _keys(self) -> str:
        narrow = self.app.size.width < LARGE_COLUMNS
        own: list[tuple[str, int]] = []
        loaded = self._loaded
        if self._sampling:
            own = [("↑ ↓ samples", 2), ("Esc back to the matrix", 1)]
        elif loaded is not None:
            own = (self._matrix_keys, self._pair_keys, self._plan_keys, self._curve_keys)[self._panel](loaded, narrow)
        panels = [] if self._sampling else [("1-4 panel" if narrow else "1-4 Tab panel", 2)]
        keys = [*panels, *own, ("c colours", 5), ("? help", 1), ("q leave", 1)]
        return text.fitting_ranked(keys, self.app.size.width - 2)

    def _matrix_keys(self, loaded: Loaded, narrow: bool) -> list[tuple[str, int]]:
        keys = [("arrows a cell", 3), ("Enter samples" if narrow else "Enter its samples", 2)]
        keys += [("m timing", 2)] if len(loaded.modes) > 1 else []
        keys += [("s pool" if narrow else "s slow pool", 2)] if len(loaded.slow_pools) > 1 else []
        return keys if self.matrix.view.rows else []

    def _pair_keys(self, loaded: Loaded, narrow: bool) -> list[tuple[str, int]]:
        keys = [("m other timings", 2)] if len(loaded.pairs) > 1 else []
        return [("↑ ↓ a pair", 3), *keys] if self.scatter.view.points else keys

    def _plan_keys(self, loaded: Loaded, narrow: bool) -> list[tuple[str, int]]:
        keys = [("n next plan", 2)] if len(loaded.plans) > 1 else []
        return [("arrows a tensor and an op", 3), *keys] if self.timeline.view.rows else keys

    def _curve_keys(self, loaded: Loaded, narrow: bool) -> list[tuple[str, int]]:
        keys = [("n next curve", 2)] if len(loaded.curves) > 1 else []
        return [("← → a limit", 3), *keys] if self.curve.view.points else keys

    # Keys

    def action_panel(self, index: int) -> None:
        self._panel, self._sampling = index % len(self.panels), False
        self.fill()

    def action_next_panel(self, by: int) -> None:
        self.action_panel(self._panel + by)

    def action_move(self, by: int) -> None:
        self.active.move(by)
        self._show_text()

    def action_sideways(self, by: int) -> None:
        if isinstance(self.active, CursorPanel):
            self.active.sideways(by)
            self._show_text()

    def action_other(self, what: str) -> None:
        """Show the next item of the active panel: way of timing, slow pool, plan or curve."""
        key = {("mode", 1): "pair", ("stored", 2): "plan", ("stored", 3): "curve"}.get((what, self._panel), what)
        if key in self._picked:
            self._picked[key] += 1
            self.fill()

    def action_samples(self) -> None:
        configuration, selected, loaded = self._configuration(), self.matrix.selected, self._loaded
        if self._panel or configuration is None or selected is None or loaded is None:
            return
        times = present.times(loaded, selected[0].op, configuration)
        rows = tuple(Row(n, (mode, str(run), duration_ns(ns))) for n, (mode, run, ns) in enumerate(times))
        self.samples.show(ListingView(f"{selected[0].op} {selected[1].label}", _SAMPLES, rows, "it was not measured"))
        self._sampling = True
        self.fill()

    def action_leave(self) -> None:
        if self._sampling:
            self.action_panel(self._panel)
        else:
            self.app.exit()


def _signature(file: ProfileFile) -> tuple[tuple[int, int], ...]:
    """Return times and sizes of the file and of SQLite's log files, which change when the profile does."""
    stamps = []
    for path in (file.path, *sqlite_temporary_files(file.path)):
        try:
            status = path.stat()
            stamps.append((status.st_mtime_ns, status.st_size))
        except OSError:
            stamps.append((0, 0))
    return tuple(stamps)


class PlacementApp(TerminalApp[None]):
    """Shows one profile."""

    def __init__(
        self,
        file: ProfileFile,
        poll: Poll | None = None,
        *,
        color: str = "256",
        ascii_only: bool = False,
        theme_name: str = "dark",
    ) -> None:
        super().__init__(color=color, ascii_only=ascii_only, theme_name=theme_name)
        self._parts = file, poll

    def get_default_screen(self) -> PlacementScreen:
        return PlacementScreen(*self._parts)
