"""Create a ``MemoryView`` of a session: the contents of the memory screen at one cursor position.

The presenter is the only part of the screen that reads a session. It runs in a worker thread, owns the playhead and
all state between views, and does a bounded amount of work per view: whole-session numbers come from stored scalars,
page sets are decoded for the columns in sight only, and work beyond the time budget is left to the next view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from memtui.core.fault_latency import stored
from memtui.core.program_log import log_path
from memtui.core.samples import Process
from memtui.session.session import Session
from memtui.tui.presenters.address_cursor import AddressCursor
from memtui.tui.presenters.graph import MemoryGraph, finite_value
from memtui.tui.presenters.header import Header
from memtui.tui.presenters.heat_columns import SAMPLED_WINDOWS
from memtui.tui.presenters.heat_map import HeatColumns
from memtui.tui.presenters.log_tail import OutputLog
from memtui.tui.presenters.markers import TickLog
from memtui.tui.presenters.missing_pages import why_downsampled, why_no_pages, why_no_window
from memtui.tui.presenters.playhead import Playhead
from memtui.tui.presenters.power import PowerLog
from memtui.tui.presenters.process_log import ProcessLog
from memtui.tui.presenters.processes import GpuPart, process_rows, pss_note, tree_row
from memtui.tui.presenters.range_reuse import RangeReuse
from memtui.tui.presenters.ranges import RangeTable
from memtui.tui.presenters.reuse import ReuseLog
from memtui.tui.presenters.sentences import SentencesLog
from memtui.tui.presenters.tensor_locations import NOT_TRACED, Placed, TensorLocations, TracedProcess
from memtui.tui.presenters.tensors import TensorTable
from memtui.tui.presenters.time_budget import TimeBudget
from memtui.tui.presenters.verdicts import VerdictLog
from memtui.tui.presenters.window_rows import WindowRows
from memtui.widgets.views.memory import (
    FooterView,
    HeatView,
    MemoryView,
    ProcessesView,
    ReuseView,
    State,
    TensorsView,
    TimeAxis,
)


@dataclass(frozen=True, slots=True)
class Room:
    """Sizes of the picture, in cells."""

    heat_columns: int = 0
    heat_rows: int = 0


class Presenter:
    """Builds views of one session. Keys change ``playhead`` and the settings below."""

    def __init__(self, reader: Session, *, follow: bool) -> None:
        self.reader = reader
        self.playhead = Playhead(recording=reader.alive, follow=follow)
        if not follow:
            self.playhead.span_ns = None  # a replay opens on the whole picture
        self.ranges = RangeTable()
        self._log = ProcessLog()
        self.room = Room()
        self.processes_shown = False  # the list of processes costs a query of the session
        self.tensors_shown = self.by_kind = False  # likewise: the table of tensors, rows of the heat map by their kind
        self.shown = False  # whether a view was created
        self._begun = False  # whether creating one was tried
        self.complete = True  # False: the last view lacks parts that the next one will have
        self.heat = HeatColumns()
        self.locations = TensorLocations()
        self.tensors = TensorTable(self.locations, self.heat.page_set, self.ranges.mapped_rows)
        self.output = OutputLog(log_path(reader.path))
        self._path = _short_path(reader.path)
        self._zoomed: list[tuple[int | None, bool]] = []  # time in sight before each zoom; whether memory was zoomed
        self._power = PowerLog()
        self._ticks = TickLog()
        latencies = stored()
        self._fault_latency = latencies.of(reader.hello.host) if latencies is not None else None
        self._reuse, self._sentences, self.verdicts = self._reuse_of_all(), SentencesLog(), VerdictLog()
        self._range_reuse = RangeReuse()
        self._focus: int | None = None  # key of a range
        self._rows = WindowRows(reader)
        self._header, self._graph = Header(reader, self._rows), MemoryGraph(reader, self._rows)
        if reader.partial:
            self._grow(reader.alive)
        else:
            self.refresh()
        if not follow:
            self.playhead.to_end()
            self.playhead.follow = False

    def _reuse_of_all(self) -> ReuseLog:
        return ReuseLog(fault_latency=self._fault_latency)

    def refresh(self) -> bool:
        """Read new data. Returns whether there was any."""
        reader, partial = self.reader, self.reader.partial
        new = reader.refresh()
        if partial:  # indices of samples have changed: start again
            self._ticks = TickLog()
            self.heat.forget()
            self._reuse.forget()
            self._range_reuse.forget()
        alive = reader.alive
        if not alive and reader.end is None:
            # The recorder may have written its end and exited between the two queries.
            new = reader.refresh() or new
        self._grow(alive)
        return new

    def _grow(self, alive: bool) -> None:
        samples = self.reader.samples
        if len(samples.sample):
            self.playhead.grow(int(samples.start_ns[0]), samples.end_ns, recording=alive)
        else:
            self.playhead.recording = alive

    def to_mark(self, by: int) -> bool:
        """Pause at the next (1) or previous (-1) mark; False where there is none."""
        head = self.playhead
        self._ticks.update(self.reader, head.latest_ns)
        t_ns = self._ticks.near(head.cursor_ns, head.ends, by)
        if t_ns is not None:
            head.seek(t_ns)
        return t_ns is not None

    # The focus

    def focus_range(self, key: int | None) -> None:
        """Show one range: its line in the graph, the cursor of the heat map on it. None: all ranges again."""
        row = self.ranges.row(key) if key is not None else None
        self._focus = self.heat.keep = self.ranges.focus = key if row is not None else None
        if row is not None:
            self.heat.point_to_range(row.id, row.process, row.start, row.end)
        self._graph.focus_range(row.id if row is not None else None)

    def focus_process(self, pid: int | None) -> None:
        """Show the memory of one process only; None: of all processes again."""
        self.focus_range(None)
        self.ranges.pid = pid
        self.heat.zooms.clear()
        if pid is None:
            self._reuse = self._reuse_of_all()
            self._graph.focus_all()
            return
        keys = frozenset(p.key for p in self.reader.processes.all() if p.pid == pid)
        self._reuse = ReuseLog(keys, f"of pid {pid}")
        self._graph.focus_process(pid, keys)

    def point_to_tensor(self, key: object) -> None:
        """Put the cursor of the heat map on a row of the table of tensors."""
        if address := self.tensors.address_of(key):
            self.heat.cursor = AddressCursor(*address)

    def point(self, row: int, t_ns: float) -> None:
        """Put the cursor of the heat map on a row of cells, and all panels at a time."""
        self.heat.point(row)
        if self.playhead.cursor_ns != t_ns:
            self.playhead.seek(t_ns)

    def show_list(self, name: str) -> None:
        """Prepare the list "processes" or "tensors" from now on; any other name: neither."""
        self.processes_shown, self.tensors_shown = name == "processes", name == "tensors"

    def toggle_kinds(self) -> None:
        """Colour the rows of the heat map by the kind of tensors, or not."""
        self.by_kind = not self.by_kind

    def zoom(self, by: int) -> None:
        """Zoom in on the cursor, in time and memory (1), or back to the picture before (-1)."""
        if by > 0:
            before = self.playhead.span_ns
            closer = self.heat.zoom_in()
            self.playhead.zoom()
            self._zoomed.append((before, closer))
        elif self._zoomed:
            self.playhead.span_ns, closer = self._zoomed.pop()
            if closer and self.heat.zooms:
                self.heat.zooms.pop()

    def view(self, budget_s: float = 0.04) -> MemoryView:
        """Return the screen at the cursor. Spends about ``budget_s`` on parts that can wait; see ``complete``."""
        budget = TimeBudget(budget_s)
        if self._begun and self.reader.partial:
            self.refresh()
        self._begun = True
        head = self.playhead
        axis, index = head.axis(), head.index
        sample = int(self.reader.samples.sample[index]) if index >= 0 else -1
        processes = self._in_sight(index)
        table = self.ranges.view(self.reader, sample, processes)
        self._power.update(self.reader, self.playhead)
        self._ticks.update(self.reader, self.playhead.latest_ns)
        traced: list[TracedProcess] = []
        self.locations.update(self.reader)
        if self.tensors_shown or self.by_kind:
            traced = self.locations.traced(self.reader, index, processes, self.ranges.pid)
        self.heat.tensors = self._placed(index, traced) if self.by_kind else None
        heat, complete = self._heat_view(axis, budget, processes)
        self.complete = complete and (self.ranges.surveyed or sample < 0) and not self.reader.partial
        graph, complete = self._graph.view(axis, index, processes, self._ticks, self._focus_name(), budget)
        self.complete = self.complete and complete
        reuse = self._reuse_view(sample, budget)
        tensors = self._tensors_view(index, traced, budget) if self.tensors_shown else TensorsView()
        self.shown = True
        moving = head.state in (State.LIVE, State.PLAYING)
        if self.complete or moving:  # the picture comes first
            self.verdicts.update(self.reader, index, moving=moving)
            self.complete = not self.verdicts.due and self.complete
        all_reuse = self._all_reuse(sample, reuse)
        sentences = self._sentences.view(self.reader, index, all_reuse, processes, self.verdicts.forms)
        header = self._header.view(head, processes, self._ticks.drawn(head.origin_ns, head.latest_ns))
        return MemoryView(
            header=replace(header, traced=self._sentences.traced_fraction),
            graph=graph,
            heat=heat,
            reuse=reuse,
            power=self._power.view(self.playhead.cursor_ns),
            table=table,
            footer=self._footer(),
            processes=self._processes(index, processes),
            output=self.output.view(),
            tensors=tensors,
            sentences=sentences,
        )

    def _in_sight(self, index: int) -> list[Process]:
        """Return the processes of the window at the cursor, and those whose ranges are loaded."""
        self._log.update(self.reader)
        self.ranges.all = self._log.all
        now = {row["process"] for row in self._rows.of_window(index)} if index >= 0 and self._log.all is None else set()
        return self._log.of(self.reader, now | self.ranges.loaded_processes if now else ())

    # Parts

    def _focus_name(self) -> str | None:
        """Return the name of the chosen range; None without one, or where the range is gone."""
        row = self.ranges.row(self._focus) if self._focus is not None else None
        return self.ranges.name(row) if row is not None else None

    def _footer(self) -> FooterView:
        traced = bool(self.locations.pids)
        return FooterView(self.reader.file_bytes, self._path, self.playhead.recording, traced=traced)

    def _placed(self, index: int, traced: list[TracedProcess]) -> dict[int, Placed]:
        """Return where the tensors of each process lay at the start of the window."""
        located = {process.key: self.locations.locate(self.reader, process.pid, index) for process in traced}
        return {key: tensors for key, tensors in located.items() if tensors is not None}

    def _tensors_view(self, index: int, traced: list[TracedProcess], budget: TimeBudget) -> TensorsView:
        note = why_no_pages(self.reader.hello, every=True) or why_downsampled(self.reader, self.playhead.index)
        if not self.locations.pids:
            note = NOT_TRACED
        elif not traced:
            note = note or "no process of this window told of its tensors"
        if note:
            return TensorsView(by=self.tensors.by, note=note)
        several = len(self.locations.pids) > 1
        view, complete = self.tensors.view(self.reader, index, traced[0], budget, several=several)
        self.complete = self.complete and complete
        return view

    def _processes(self, index: int, processes: list[Process]) -> ProcessesView:
        if index < 0 or not self.processes_shown:
            return ProcessesView(only=self.ranges.pid)
        samples = self.reader.samples
        devices, at_ns = self.reader.devices, self.playhead.cursor_ns
        gpu = GpuPart(devices.gpu_memory_at(at_ns), devices.gpu_use_at(at_ns))
        wss, shared = (finite_value(values, index) for values in (samples.wss_bytes, samples.shared_bytes))
        rows = process_rows(self.reader, samples.sample[max(0, index - 1) : index + 1].tolist(), processes, gpu, wss)
        note = pss_note(self._rows.of_window(index))
        tree = tree_row(rows, _whole(wss), _whole(shared))
        return ProcessesView(rows, self.ranges.pid, tree, note, int(samples.gaps[index]))

    def _heat_view(self, axis: TimeAxis, budget: TimeBudget, processes: list[Process]) -> tuple[HeatView, bool]:
        hello = self.reader.hello
        if self.room.heat_columns < 1 or self.room.heat_rows < 1:
            return HeatView(axis, np.empty((0, 0), np.float32)), True
        if why := why_no_pages(hello) or why_no_window(self.reader):
            return HeatView(axis, np.empty((0, 0), np.float32), note=why), True
        index, samples = self.playhead.index, self.reader.samples
        sample = first = last = -1
        if index >= 0:
            edges = np.searchsorted(samples.end_ns, (axis.start_ns, axis.end_ns)).clip(max=len(samples.end_ns) - 1)
            sample, first, last = samples.sample[[index, *edges]].tolist()
        view, complete = self.heat.view(
            self.reader,
            axis,
            self.ranges.heat_ranges(processes, sample, first, last, [zoom.process for zoom in self.heat.zooms]),
            self.room.heat_columns,
            self.room.heat_rows,
            budget,
            self.ranges.touched,
            self.ranges.mapped,
            live=self.playhead.recording and self.playhead.follow,
        )
        if hello.options.samples_pages:
            view = replace(view, caption=f"estimated from {SAMPLED_WINDOWS} windows, each with other blocks of 2 MiB")
        if why := why_downsampled(self.reader, self.playhead.index):
            view = replace(view, caption=why)
        return replace(view, focus=self._focus), complete

    def _reuse_view(self, sample: int, budget: TimeBudget) -> ReuseView:
        if why := why_no_pages(self.reader.hello, every=True):
            return ReuseView(note=why)
        row = self.ranges.row(self._focus) if self._focus is not None and sample >= 0 else None
        if row is not None:
            view, complete = self._range_reuse.view(self.reader, row, sample, budget, self.ranges.short_label(row))
        else:
            view, complete = self._reuse.view(self.reader, sample, budget)
        self.complete = self.complete and complete
        return view

    def _all_reuse(self, sample: int, shown: ReuseView) -> ReuseView | None:
        """Return the distances of all processes and ranges; None while one process is chosen."""
        if self.ranges.pid is not None or shown.note:
            return None
        return self._reuse.view(self.reader, sample, TimeBudget(0.0))[0]


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _short_path(path: Path) -> str:
    """Return the path with ``~`` in place of the home directory, if the path lies below that."""
    try:
        home = Path.home()
    except RuntimeError:  # this user has none
        return str(path)
    return f"~/{path.relative_to(home)}" if home != Path("/") and home in path.parents else str(path)
