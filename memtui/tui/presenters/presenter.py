"""From a session to a ``MemoryView``: what the memory screen shows at one cursor position.

The only part of the screen that speaks to a reader. It runs in a worker thread, owns the playhead and everything it
keeps between views, and does a bounded amount of work per view: whole-session numbers come from stored scalars, page
sets are decoded for the columns in sight only, and what does not fit the time budget is left to the next view.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from memtui.analysis.alike import like
from memtui.analysis.fast_numpy import median
from memtui.analysis.overhead_budget import allowed, seconds
from memtui.analysis.released_memory import given_back_bytes
from memtui.analysis.resident import RSS, resident
from memtui.analysis.reuse_histogram import ReuseHistogram
from memtui.analysis.target_loss import budget_cost, recent_loss
from memtui.analysis.working_set import NOTABLE_SHARE
from memtui.core.options import tracker_label
from memtui.core.page_set import PageSet
from memtui.core.program_log import log_beside
from memtui.core.samples import SAMPLED, End, Event, GpuMemory, Hello, PowerReading, Process, Status
from memtui.core.units import duration, size
from memtui.tui.presenters.address_cursor import AddressCursor
from memtui.tui.presenters.heat_map import HeatColumns
from memtui.tui.presenters.log_tail import OutputLog
from memtui.tui.presenters.markers import MarkLog, StepMarks
from memtui.tui.presenters.playhead import Playhead
from memtui.tui.presenters.power import PowerLog
from memtui.tui.presenters.process_log import ProcessLog
from memtui.tui.presenters.processes import process_rows, pss_note, tree_row
from memtui.tui.presenters.range_reuse import RangeReuse
from memtui.tui.presenters.ranges import RangeTable
from memtui.tui.presenters.reuse import ReuseLog
from memtui.tui.presenters.sentences import WordsLog
from memtui.tui.presenters.series import Series, process_sizes, range_wss
from memtui.tui.presenters.tensor_locations import NOT_TRACED, Placed, TensorPlaces, TracedProcess
from memtui.tui.presenters.tensors import TensorTable
from memtui.tui.presenters.time_budget import TimeBudget
from memtui.widgets.views.memory import (
    FooterView,
    GraphView,
    HeaderView,
    HeatView,
    MemoryView,
    ProcessesView,
    ReuseView,
    State,
    TensorsView,
    TimeAxis,
)

SILENCE_NS = 500_000_000  # without a window: something may have happened
COST_WINDOW_NS = 10_000_000_000  # own cost is averaged over this
COST_WINDOWS = 5  # but no fewer windows than these, where a budget is judged
NOTABLE_WAIT_S = 2.0  # for the next window
OVER = 1.1  # times the budget: a part of it more is chance, and paid back
TRUE_WINDOWS = 20  # the true interval is the median of these
ALIKE = "median, max: of windows of about {}"
PAUSE_WINDOWS = 10  # the time the target stands still is judged over these
PAUSE_SHARE = 0.1  # above this share watching disturbs what it watches


class SessionLike(Protocol):
    """What the screen asks of a session; ``memtui.session.reader.SessionReader`` has it."""

    path: Path
    hello: Hello
    end: End | None

    @property
    def samples(self) -> Any: ...
    @property
    def partial(self) -> bool: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def thinned_to_bytes(self) -> int | None: ...
    def stored_sample(self, first_sample: int, last_sample: int) -> int | None: ...
    def refresh(self) -> bool: ...
    def release(self) -> None: ...
    def release_if_ended(self) -> None: ...
    def processes(self) -> list[Process]: ...
    def processes_after(self, key: int) -> list[Process]: ...
    def processes_of(self, keys: Any) -> list[Process]: ...
    def processes_in(self, first_sample: int, last_sample: int) -> set[int]: ...
    def vma_rows_of(self, processes: Any) -> list[Any]: ...
    def process_samples(self, first_sample: int, last_sample: int) -> list[dict[str, Any]]: ...
    def vma_rows(self, process: int | None = None) -> list[Any]: ...
    def vma_wss(self, first_sample: int, last_sample: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
    def vma_rss(self, sample: int) -> dict[int, int]: ...
    def vma_shared(self, sample: int) -> dict[int, int]: ...
    def page_set(self, sample: int, process: int) -> PageSet | None: ...
    def processes_with_pages(self, sample: int) -> frozenset[int]: ...
    def reuse_until(self, sample: int) -> ReuseHistogram: ...
    def reuse_between(self, first_sample: int, last_sample: int) -> list[tuple[int, int, Any]]: ...
    def power(self, first_ns: int, last_ns: int) -> list[PowerReading]: ...
    def gpu_memory_at(self, t_ns: int) -> dict[int, GpuMemory]: ...
    def events(self, first_ns: int, last_ns: int) -> list[Event]: ...
    def allocation_steps(self) -> list[Any]: ...
    def imported(self) -> Any: ...
    def tensor_places(self, after: int) -> list[tuple[int, int, int]]: ...
    def tensor_map(self, number: int) -> Any: ...
    def step_trace(self, step: Any) -> Any: ...
    def training(self, first_ns: int = 0, last_ns: int = ...) -> list[Any]: ...
    def training_progress(self, row: Any) -> Any: ...
    def learning(self, first_ns: int = 0, last_ns: int = ...) -> list[Any]: ...
    def trainings(self) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Room:
    """Sizes the picture is made for, in cells."""

    heat_columns: int = 0
    heat_rows: int = 0


class Presenter:
    """Builds views of one session. ``playhead`` and the settings below are what keys change."""

    def __init__(self, reader: SessionLike, *, follow: bool) -> None:
        self.reader = reader
        self.playhead = Playhead(recording=reader.alive, follow=follow)
        if not follow:
            self.playhead.span_ns = None  # a replay opens on the whole picture
        self.ranges = RangeTable()
        self._log = ProcessLog()
        self.room = Room()
        self.processes_shown = False  # the list of them costs a question to the session
        self.tensors_shown = self.by_kind = False  # likewise: the table of tensors, rows of the heat map by their kind
        self.shown = False  # whether any view was made
        self._begun = False  # whether one was tried
        self.complete = True  # False: the last view lacks parts that the next one will have
        self.heat = HeatColumns()
        self.places = TensorPlaces()
        self.tensors = TensorTable(self.places, self.heat.page_set, self.ranges.rows_at)
        self.output = OutputLog(log_beside(reader.path))
        self._zoomed: list[tuple[int | None, bool]] = []  # time in sight before each zoom; whether memory was zoomed
        self._power = PowerLog()
        self._marks, self._step_marks = MarkLog(), StepMarks()
        self._reuse, self._words = ReuseLog(), WordsLog()
        self._range_reuse = RangeReuse()
        self._focus: int | None = None  # key of a range
        self._line: Series | None = None  # of the range that is looked at
        self._sizes: Series | None = None  # of the process that is
        self._rows: tuple[int, list[dict[str, Any]]] = -1, []  # of the window at the cursor, and of the one before
        self._own: list[tuple[float, float]] = []
        self._own_from = time.monotonic() + 3.0  # opening a session is no part of watching it
        if reader.partial:
            self._grow(reader.alive)
        else:
            self.refresh()
        if not follow:
            self.playhead.to_end()
            self.playhead.follow = False

    def refresh(self) -> bool:
        """Look for new data; True when there is some."""
        reader, partial = self.reader, self.reader.partial
        new = reader.refresh()
        if partial:  # what counts samples by their places begins anew
            self._marks = MarkLog()
            self.heat.forget()
            self._reuse.forget()
            self._range_reuse.forget()
        alive = reader.alive
        if not alive and reader.end is None:
            # It may have written its last words and gone between the two questions.
            new = reader.refresh() or new
        self._grow(alive)
        return new

    def _grow(self, alive: bool) -> None:
        samples = self.reader.samples
        if len(samples.sample):
            self.playhead.grow(int(samples.start_ns[0]), samples.end_ns, recording=alive)
        else:
            self.playhead.recording = alive

    def to_mark(self, by: int) -> None:
        """Stop at the next (1) or previous (-1) mark, if there is one."""
        head = self.playhead
        self._marks.update(self.reader, head.latest_ns)
        t_ns = self._marks.near(head.cursor_ns, head.ends, by)
        if t_ns is not None:
            head.seek(t_ns)

    # What is looked at

    def focus_range(self, key: int | None) -> None:
        """Look at one range: its line in the graph, the cursor of the heat map on it. None: at all of them again."""
        row = self.ranges.row(key) if key is not None else None
        self._focus = self.heat.keep = self.ranges.kept = key if row is not None else None
        if row is not None:
            self.heat.look_at(row.id, row.process, row.start, row.end)
        absent = 0.0 if self.reader.hello.wss.ok else np.nan
        self._line = Series(range_wss(row.id), (absent,)) if row is not None else None

    def focus_process(self, pid: int | None) -> None:
        """Show the memory of one process only; None: of all again."""
        self.focus_range(None)
        self.ranges.pid = pid
        self.heat.zooms.clear()
        if pid is None:
            self._reuse, self._sizes = ReuseLog(), None
            return
        keys = frozenset(p.key for p in self.reader.processes() if p.pid == pid)
        self._reuse = ReuseLog(keys, f"of pid {pid}")
        self._sizes = Series(process_sizes(keys), (np.nan, np.nan))

    def look_at_tensor(self, key: Any) -> None:
        """Put the cursor of the heat map on a row of the table of tensors."""
        if found := self.tensors.address_of(key):
            self.heat.place = AddressCursor(*found)

    def point(self, row: int, t_ns: float) -> None:
        """Put the cursor of the heat map on a row of it, and all panels at a time."""
        self.heat.point(row)
        if self.playhead.cursor_ns != t_ns:
            self.playhead.seek(t_ns)

    def show_list(self, name: str) -> None:
        """Work out "processes" or "tensors" from now on; any other name: neither."""
        self.processes_shown, self.tensors_shown = name == "processes", name == "tensors"

    def toggle_kinds(self) -> None:
        """Cut the rows of the heat map by the kind of tensors, or by ranges again."""
        self.by_kind = not self.by_kind

    def zoom(self, by: int) -> None:
        """In on the cursor, in time and memory (1), or back to where that began (-1)."""
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
        allowance = TimeBudget(budget_s)
        if self._begun and self.reader.partial:
            self.refresh()
        self._begun = True
        axis, at = self.playhead.axis(), self.playhead.index
        sample = int(self.reader.samples.sample[at]) if at >= 0 else -1
        processes = self._in_sight(at)
        table = self.ranges.view(self.reader, sample, processes)
        self._power.update(self.reader, self.playhead)
        self._marks.update(self.reader, self.playhead.latest_ns)
        traced: list[TracedProcess] = []
        self.places.update(self.reader)
        if self.tensors_shown or self.by_kind:
            traced = self.places.traced(self.reader, at, processes, self.ranges.pid)
        self.heat.tensors = self._placed(at, traced) if self.by_kind else None
        heat, whole = self._heat_view(axis, allowance, processes)
        self.complete = whole and (self.ranges.surveyed or sample < 0) and not self.reader.partial
        graph = self._graph(axis, at, allowance, processes)
        reuse = self._reuse_view(sample, allowance)
        tensors = self._tensors_view(at, traced, allowance) if self.tensors_shown else TensorsView()
        self.shown = True
        return MemoryView(
            header=self._header(at, processes),
            graph=graph,
            heat=heat,
            reuse=reuse,
            power=self._power.view(self.playhead.cursor_ns),
            table=table,
            footer=self._footer(),
            processes=self._processes(at, processes),
            output=self.output.view(),
            tensors=tensors,
            words=self._words.view(self.reader, at, self._most_bytes(sample, reuse), processes),
        )

    def _in_sight(self, at: int) -> list[Process]:
        """Return the processes of the window at the cursor, and those whose ranges are held."""
        self._log.update(self.reader)
        self.ranges.all = self._log.all
        now = {row["process"] for row in self._rows_of(at)} if at >= 0 and self._log.all is None else set()
        return self._log.of(self.reader, now | self.ranges.held if now else ())

    # Parts

    def _footer(self) -> FooterView:
        path, recording = _short_path(self.reader.path), self.playhead.recording
        return FooterView(self.reader.file_bytes, path, recording, traced=bool(self.places.pids))

    def _placed(self, at: int, traced: list[TracedProcess]) -> dict[int, Placed]:
        """Where the tensors of each process lay when the window began."""
        found = {one.key: self.places.at(self.reader, one.pid, at) for one in traced}
        return {process: placed for process, placed in found.items() if placed is not None}

    def _tensors_view(self, at: int, traced: list[TracedProcess], allowance: TimeBudget) -> TensorsView:
        note = _why_no_pages(self.reader.hello, every=True) or self._why_thinned()
        if not self.places.pids:
            note = NOT_TRACED
        elif not traced:
            note = note or "no process of this window told of its tensors"
        if note:
            return TensorsView(by=self.tensors.by, note=note)
        several = len(self.places.pids) > 1
        view, whole = self.tensors.view(self.reader, at, traced[0], allowance, several=several)
        self.complete = self.complete and whole
        return view

    def _processes(self, at: int, processes: list[Process]) -> ProcessesView:
        if at < 0 or not self.processes_shown:
            return ProcessesView(only=self.ranges.pid)
        samples = self.reader.samples
        held = self.reader.gpu_memory_at(self.playhead.cursor_ns)
        wss, shared = (_known(values, at) for values in (samples.wss_bytes, samples.shared_bytes))
        rows = process_rows(self.reader, samples.sample[max(0, at - 1) : at + 1].tolist(), processes, held, wss)
        note = pss_note(self._rows_of(at))
        return ProcessesView(rows, self.ranges.pid, tree_row(rows, _whole(wss), _whole(shared)), note)

    def _header(self, at: int, processes: list[Process]) -> HeaderView:
        head, hello, samples = self.playhead, self.reader.hello, self.reader.samples
        target = hello.target
        ended = ""
        if not head.recording:
            end = self.reader.end
            ended = end.words if end is not None else "recorder gone, all it wrote is here"
        seconds = (head.latest_ns - head.origin_ns) / 1e9
        view = HeaderView(
            command=_command(next((p.command for p in reversed(processes) if p.pid == target.pid), target.command)),
            pid=target.pid,
            others=len(self._pids(at, processes) - {target.pid}),
            state=head.state,
            live_session=head.recording,
            position_s=(head.cursor_ns - head.origin_ns) / 1e9,
            duration_s=seconds,
            speed=head.speed,
            ended=ended,
            tracker=tracker_label(hello.tracker),
            flush=hello.flush,
            rearm=hello.rearm,
            asked_s=hello.options.interval_ns / 1e9,
            origin_ns=head.origin_ns,
            marks=self._marks.drawn(head.origin_ns, head.latest_ns),
        )
        if at < 0:
            return view
        newest_ns = int(samples.end_ns[-1])
        if head.state is State.LIVE and time.monotonic_ns() - newest_ns > SILENCE_NS:  # why does nothing arrive?
            since = self.reader.events(newest_ns, 1 << 62)
            view = replace(view, notice=next((_short(e.text) for e in reversed(since) if e.kind == "gap"), ""))
        paused = samples.paused_ns[max(0, at - 9) : at + 1]
        paused = paused[np.isfinite(paused)]
        true = samples.end_ns[max(0, at - _same_before(samples.asked_ns, at)) : at + 1]
        view = replace(
            view,
            asked_s=float(samples.asked_ns[at]) / 1e9,
            true_s=median(np.diff(true)) / 1e9 if len(true) > 1 else None,
            paused_s=median(paused) / 1e9 if len(paused) else None,
            own_cpu=self._own_cost(at),
            given_back_bytes=self._given_back(at),
        )
        view = replace(view, lost=self._lost(at))
        if share := allowed(hello.options.max_overhead_ppm):
            return self._with_budget(view, at, share)
        return replace(view, warnings=self._pause_warning(at))

    def _pids(self, at: int, processes: list[Process]) -> set[int]:
        """Pids of the tree in the window at the cursor: those that had ended before are no part of it."""
        pids = {p.key: p.pid for p in processes}
        if at < 0 or len(pids) < 2:
            return set(pids.values())
        rows = self._rows_of(at)
        # Written before its first window was: nobody has ended yet.
        return {pids[r["process"]] for r in rows if r["process"] in pids and r["status"] != Status.GONE} or set(
            pids.values()
        )

    def _pause_warning(self, at: int) -> tuple[str, ...]:
        """Return what to do about a target that stands still too long, in words for much and for little room."""
        samples, first = self.reader.samples, max(0, at - PAUSE_WINDOWS)
        wall = float(samples.end_ns[at] - samples.end_ns[first])
        share = float(np.nansum(samples.paused_ns[first + 1 : at + 1])) / wall if wall > 0 else 0.0
        if share <= PAUSE_SHARE:
            return ()
        stopped = f"stopped {share * 100:.0f} %"
        if not self.playhead.recording:
            return f"target {stopped} of the time", stopped
        return (
            f"target {stopped} of the time: a longer interval disturbs less (i)",
            f"{stopped}: raise interval (i)",
        )

    def _cpu_ns(self, first: int, at: int) -> float:
        """CPU time of sampler and recorder between two samples."""
        samples = self.reader.samples
        return sum(float(c[at]) - float(c[first]) for c in (samples.sampler_cpu_ns, samples.recorder_cpu_ns))

    def _lost(self, at: int) -> float | None:
        """Return the share of its time that the target loses by being watched, over the last windows."""
        samples = self.reader.samples
        first = self._costs_from(at)
        next_ns = float(samples.next_ns[at])
        if np.isnan(next_ns):
            next_ns = float(samples.asked_ns[at])
        return recent_loss(samples.lost_ns[first : at + 1], samples.end_ns[first : at + 1], next_ns)

    def _costs_from(self, at: int) -> int:
        """Return the first of the windows over which costs are averaged."""
        end_ns = self.reader.samples.end_ns
        return max(0, min(int(np.searchsorted(end_ns, end_ns[at] - COST_WINDOW_NS)), at - COST_WINDOWS))

    def _with_budget(self, view: HeaderView, at: int, most: float) -> HeaderView:
        """Return what a budget makes of the interval, and what was spent of it over the last windows."""
        samples = self.reader.samples
        budgeted_s = float(samples.budgeted_ns[at]) / 1e9
        view = replace(view, budget=most, budgeted_s=budgeted_s if np.isfinite(budgeted_s) else None)
        if view.state is State.LIVE and not view.notice and np.isfinite(samples.next_ns[at]):
            wait_s = (float(samples.end_ns[at] + samples.next_ns[at]) - time.monotonic_ns()) / 1e9
            if wait_s > NOTABLE_WAIT_S:  # the clock of this machine: it is live
                view = replace(view, wait_s=round(wait_s))
        first = self._costs_from(at)
        if first >= at:
            return view
        lost_ns, cpu_ns = samples.lost_ns[first + 1 : at + 1], self._cpu_ns(first, at)
        known = not np.isnan(lost_ns).any()
        cost = budget_cost(
            float(lost_ns.sum()) if known else None, cpu_ns, float(np.nansum(samples.paused_ns[first + 1 : at + 1]))
        )
        spent = cost / float(samples.end_ns[at] - samples.end_ns[first])
        true_s = float(samples.end_ns[at] - samples.end_ns[at - 1]) / 1e9  # of the window that the budgeted one is of
        view = replace(view, spent=spent, true_s=true_s)
        needed_ns = cost / (at - first) / most
        if spent <= OVER * most or needed_ns <= OVER * samples.next_ns[at]:
            return view  # it is, or the next interval is long enough to pay for it
        meets = seconds(needed_ns)
        return replace(view, warnings=(f"over the budget: an interval of {meets} would meet it", f"needs {meets}"))

    def _own_cost(self, at: int) -> float | None:
        """Cores taken by sampler and recorder over the last seconds, and by this viewer while it watches live."""
        samples = self.reader.samples
        first = int(np.searchsorted(samples.end_ns, samples.end_ns[at] - COST_WINDOW_NS))
        if first >= at:
            return None
        wall = float(samples.end_ns[at] - samples.end_ns[first])
        cost = self._cpu_ns(first, at) / wall if wall > 0 else None
        now = time.monotonic(), time.process_time()
        if cost is not None and self.playhead.state is State.LIVE and now[0] >= self._own_from:
            self._own = [*(p for p in self._own if now[0] - p[0] <= COST_WINDOW_NS / 1e9), now]
            elapsed = now[0] - self._own[0][0]
            if elapsed > 2:
                cost += (now[1] - self._own[0][1]) / elapsed
        return cost

    def _graph(self, axis: TimeAxis, at: int, allowance: TimeBudget, processes: list[Process]) -> GraphView:
        samples, hello = self.reader.samples, self.reader.hello
        # Whole extra windows at both ends, so that the picture begins and ends full.
        first = max(0, int(np.searchsorted(samples.end_ns, axis.start_ns)) - 1)
        last = min(len(samples.sample), int(np.searchsorted(samples.end_ns, axis.end_ns, side="right")) + 1)
        held = resident(samples, processes)
        wss, rss, name = samples.wss_bytes[first:last].astype(float), held.bytes[first:last].astype(float), held.name
        wss_now, rss_now = _known(samples.wss_bytes, at), _known(held.bytes, at)
        focus = line = focus_now = None
        here = at - first if first <= at < last else -1
        if self._sizes is not None:
            (wss, rss), whole = self._sizes.view(self.reader, first, last, at, allowance)
            self.complete = self.complete and whole
            wss_now, rss_now, name = _known(wss, here), _known(rss, here), RSS
        if self._line is not None and self._focus is not None and (row := self.ranges.row(self._focus)):
            (line,), whole = self._line.view(self.reader, first, last, at, allowance)
            self.complete = self.complete and whole
            focus, focus_now = self.ranges.name(row), _known(line, here)
        inside = samples.end_ns[first:last] <= axis.end_ns
        known, alike_s = wss[inside & np.isfinite(wss)], None
        if here >= 0:
            alike = inside & like(samples.intervals_ns(slice(first, last)), here, exact=not samples.has_budget)
            known = wss[np.isfinite(wss) & alike]
            if (alike != inside).any():
                alike_s = median((samples.end_ns - samples.start_ns)[first:last][alike]) / 1e9
        note = "" if hello.wss.ok else (hello.wss.reason + (f": {hello.wss.remedy}" if hello.wss.remedy else ""))
        if not note and at >= 0 and not len(known):
            note = samples.reason[at] if samples.status[at] != "ok" else ""
        return GraphView(
            axis=axis,
            begin_ns=samples.start_ns[first:last].astype(float),
            end_ns=samples.end_ns[first:last].astype(float),
            wss_bytes=wss,
            rss_bytes=rss,
            now_bytes=wss_now,
            median_bytes=median(known) if len(known) else None,
            max_bytes=float(known.max()) if len(known) else None,
            rss_now_bytes=rss_now,
            resident=name,
            note=note,
            caveats=self._caveats(at, note) if at >= 0 else (),
            caption=(*self._caption(at), *([] if alike_s is None else [ALIKE.format(duration(alike_s))]))
            if at >= 0
            else (),
            whose="" if self.ranges.pid is None else f"of pid {self.ranges.pid}",
            focus=focus or "",
            focus_bytes=line,
            focus_now_bytes=focus_now,
            marks=(*self._marks.between(axis.start_ns, axis.end_ns), *self._step_marks.between(self.reader, axis)),
        )

    def _caveats(self, at: int, note: str) -> tuple[str, ...]:
        """Return what makes the working set of one window less than exact."""
        samples = self.reader.samples
        status, reason, unknown = samples.status[at], samples.reason[at], samples.unknown_bytes[at]
        parts = [f"disturbed: {samples.disturbed[at]}"] if samples.disturbed[at] else []
        if unknown > NOTABLE_SHARE * samples.wss_bytes[at]:  # nan is not
            parts.append(f"WSS {size(float(samples.wss_bytes[at]))} ({size(float(unknown))} unknown)")
        low, high = samples.wss_low_bytes[at], samples.wss_high_bytes[at]
        if np.isfinite(low):
            parts.append(f"estimated, 95 % interval {size(float(low))} to {size(float(high))}")
        if status != Status.OK and not note:  # the note says it in a better place
            parts.append(f"{status}: {reason}" if reason else str(status))
        return tuple(parts)

    def _caption(self, at: int) -> tuple[str, ...]:
        """Return what else is known of one window."""
        samples = self.reader.samples
        before = int(samples.end_ns[at - 1]) if at else 0
        parts = [f"{mark.kind}: {mark.text}" for mark in self._marks.within(before, int(samples.end_ns[at]))]
        if gaps := int(samples.gaps[at]):
            parts.append(f"{gaps} gap" + "s" * (gaps > 1))
        if samples.faulted_in_bytes[at] > 0:
            parts.append(f"first mapped {size(float(samples.faulted_in_bytes[at]))}")
        if self._sizes is None and (note := pss_note(self._rows_of(at))):
            parts.append(note)
        if np.isnan(samples.shared_bytes[at]) and not np.isnan(samples.wss_bytes[at]):
            parts.append("shared pages count for each process")
        return tuple(parts)

    def _given_back(self, at: int) -> int | None:
        """Return what was touched and given back within one window at most, of the processes that it is known of."""
        sample = int(self.reader.samples.sample[at])
        return given_back_bytes(self._rows_of_two(sample)).get(sample)

    def _rows_of(self, at: int) -> list[dict[str, Any]]:
        """Return the scalars of each process in one window."""
        sample = int(self.reader.samples.sample[at])
        return [row for row in self._rows_of_two(sample) if row["sample"] == sample]

    def _rows_of_two(self, sample: int) -> list[dict[str, Any]]:
        """Those of a window and of the one before it, asked for once while the cursor stands there."""
        if self._rows[0] != sample:
            self._rows = sample, self.reader.process_samples(sample - 1, sample)
        return self._rows[1]

    def _heat_view(self, axis: TimeAxis, allowance: TimeBudget, processes: list[Process]) -> tuple[HeatView, bool]:
        hello = self.reader.hello
        if self.room.heat_columns < 1 or self.room.heat_rows < 1:
            return HeatView(axis, np.empty((0, 0), np.float32)), True
        if why := _why_no_pages(hello):
            return HeatView(axis, np.empty((0, 0), np.float32), note=why), True
        at = self.playhead.index
        sample = int(self.reader.samples.sample[at]) if at >= 0 else -1
        view, complete = self.heat.view(
            self.reader,
            axis,
            self.ranges.heat_ranges(processes, sample),
            self.room.heat_columns,
            self.room.heat_rows,
            allowance,
            self.ranges.touched,
            self.ranges.mapped,
            live=self.playhead.recording and self.playhead.follow,
        )
        if hello.options.samples_pages:
            view = replace(view, caption="estimated: other blocks of 2 MiB in each window")
        if why := self._why_thinned():
            view = replace(view, caption=why)
        return replace(view, focus=self._focus), complete

    def _why_thinned(self) -> str:
        """Why there is no picture of the moment under the cursor, where its pages had to make room."""
        limit, at = self.reader.thinned_to_bytes, self.playhead.index
        if limit is None or at < 0 or not np.isfinite(self.reader.samples.stored_bytes[at]):
            return ""
        sample = int(self.reader.samples.sample[at])
        if self.reader.stored_sample(sample, sample) is not None:
            return ""
        return f"no pages of this moment: thinned to keep the file below {size(limit)}"

    def _reuse_view(self, sample: int, allowance: TimeBudget) -> ReuseView:
        if why := _why_no_pages(self.reader.hello, every=True):
            return ReuseView(note=why)
        row = self.ranges.row(self._focus) if self._focus is not None and sample >= 0 else None
        if row is not None:
            view, whole = self._range_reuse.view(self.reader, row, sample, allowance, self.ranges.short_label(row))
        else:
            view, whole = self._reuse.view(self.reader, sample, allowance)
        self.complete = self.complete and whole
        return view

    def _most_bytes(self, sample: int, shown: ReuseView) -> tuple[float, float] | None:
        """Between which 95 % of the returning touches of all processes come back; not known while one is looked at."""
        if self.ranges.pid is not None or shown.note:
            return None
        return self._reuse.view(self.reader, sample, TimeBudget(0.0))[0].most_bytes


def _why_no_pages(hello: Hello, *, every: bool = False) -> str:
    """Empty when the session has page sets; ``every``: of all pages in each window."""
    if every and hello.options.samples_pages:
        return SAMPLED
    if not hello.wss.ok:
        return f"no pages are tracked: {hello.wss.reason}"
    if not hello.pages.ok:
        return f"no pages are tracked: {hello.pages.reason}" + (f" ({hello.pages.remedy})" * bool(hello.pages.remedy))
    return ""


def _same_before(asked_ns: np.ndarray, at: int) -> int:
    """How many windows up to ``at`` were asked for with its interval in a row, of the last few."""
    others = np.flatnonzero(asked_ns[max(0, at - TRUE_WINDOWS + 1) : at + 1] != asked_ns[at])
    return min(at + 1, TRUE_WINDOWS) - (int(others[-1]) + 1 if len(others) else 0)


def _known(values: np.ndarray, at: int) -> float | None:
    return float(values[at]) if at >= 0 and np.isfinite(values[at]) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _short(text: str) -> str:
    """Return what happened, without what it means: there is little room where it stands."""
    return text.partition(": ")[0]


def _command(command: str) -> str:
    """Return what a person calls the program: of ``/usr/bin/python3 -u /a/train.py --x`` that is ``train.py``."""
    words = command.split()
    if not words:
        return "?"
    name = os.path.basename(words[0])
    if name.startswith("python"):
        for number, word in enumerate(words[1:], 1):
            if word == "-m" and number + 1 < len(words):
                return words[number + 1]
            if word == "-c":
                return f"{name} -c"
            if not word.startswith("-"):
                return os.path.basename(word)
    return name


def _short_path(path: Path) -> str:
    text, home = str(path), os.path.expanduser("~")
    return "~" + text[len(home) :] if home != "/" and text.startswith(home + "/") else text
