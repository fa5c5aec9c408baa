"""The view of the first line: program, state, cursor time, and how the program is measured."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from memtui.analysis.released_memory import released_bytes
from memtui.core.fast_numpy import median
from memtui.core.options import tracker_label
from memtui.core.samples import NOT_CLEARED, Process, Status
from memtui.core.text import program_name
from memtui.session.budget_log import BudgetLog
from memtui.session.packed_column import Column
from memtui.session.process_reader import ProcessSample
from memtui.session.session import Session
from memtui.tui.presenters.overhead import OwnCost, lost_share, pause_warning, with_budget
from memtui.tui.presenters.playhead import Playhead
from memtui.tui.presenters.window_rows import WindowRows
from memtui.widgets.views.memory import HeaderView, State, Tick

SILENCE_NS = 500_000_000  # without a window: something may have happened
TRUE_WINDOWS = 20  # the true interval is the median of these
PAUSED_WINDOWS = 10  # likewise the pause


class Header:
    """Creates the view of the first line."""

    def __init__(self, reader: Session, rows: WindowRows) -> None:
        self._reader, self._rows = reader, rows
        self._own_cost, self._budgets = OwnCost(), BudgetLog(reader)

    def view(self, head: Playhead, processes: list[Process], ticks: tuple[Tick, ...]) -> HeaderView:
        """Return the header at the cursor; ``processes``: those in sight, ``ticks``: those on the timeline."""
        index, hello = head.index, self._reader.hello
        target = hello.target
        pids = pids_alive(processes, self._rows.of_window(index) if index >= 0 and len(processes) > 1 else [])
        command = next((p.command for p in reversed(processes) if p.pid == target.pid), target.command)
        view = HeaderView(
            command=program_name(command),
            pid=target.pid,
            others=len(pids - {target.pid}),
            state=head.state,
            live_session=head.recording,
            position_s=(head.cursor_ns - head.origin_ns) / 1e9,
            duration_s=(self._end_ns(head) - head.origin_ns) / 1e9,
            speed=head.speed,
            ended="" if head.recording else self._how_it_ended(),
            tracker=tracker_label(hello.tracker),
            flush=hello.flush,
            rearm=hello.rearm,
            requested_s=hello.options.interval_ns / 1e9,
            origin_ns=head.origin_ns,
            ticks=ticks,
        )
        return view if index < 0 else self._measured(view, head, index)

    def _end_ns(self, head: Playhead) -> int:
        """Return when the last window ended; of a session that is shown at its end, when the recording did.

        Without a window nothing says when the recording began.
        """
        end = self._reader.end if head.state is State.ENDED and len(self._reader.samples) else None
        return max(head.latest_ns, end.t_ns) if end is not None else head.latest_ns

    def _how_it_ended(self) -> str:
        end = self._reader.end
        if end is None:
            return "recorder gone, all it wrote is here"
        # The sentences below the header have the cause.
        return end.description.partition(":")[0] if end.of_target else end.description

    def _measured(self, view: HeaderView, head: Playhead, index: int) -> HeaderView:
        """Return the view with the figures of the window at the cursor."""
        samples = self._reader.samples
        paused = samples.paused_ns[max(0, index - PAUSED_WINDOWS + 1) : index + 1]
        paused = paused[np.isfinite(paused)]
        true = samples.end_ns[max(0, index - _same_before(samples.asked_ns, index)) : index + 1]
        view = replace(
            view,
            notice=self._why_silent(head),
            requested_s=float(samples.asked_ns[index]) / 1e9,
            true_s=median(np.diff(true)) / 1e9 if len(true) > 1 else None,
            paused_s=median(paused) / 1e9 if len(paused) else None,
            own_cpu=self._own_cost.cores(samples, index, live=head.state is State.LIVE),
            given_back_bytes=released_bytes(self._rows.with_previous(index)).get(int(samples.sample[index])),
            lost=lost_share(samples, index, self._reader.end),
        )
        budget = self._budgets.at(int(samples.end_ns[index]))
        if budget.share is not None:
            return with_budget(view, samples, index, budget.share, budget.since_ns)
        return replace(view, warnings=pause_warning(samples, index, recording=head.recording))

    def _why_silent(self, head: Playhead) -> str:
        """Return why no window arrives, of a live recording that has been silent for a while; empty otherwise."""
        newest_ns = int(self._reader.samples.end_ns[-1])
        if head.state is not State.LIVE or time.monotonic_ns() - newest_ns <= SILENCE_NS:
            return ""
        since = self._reader.events(newest_ns, 1 << 62)
        gaps = (event.text for event in reversed(since) if event.kind == "gap")
        gap = next((text for text in gaps if NOT_CLEARED not in text), "")  # a process that is new delays no window
        what, colon, more = gap.partition(": ")
        if what.startswith("pid "):
            what += colon + more.partition(": ")[0]
        return what  # the event without its explanation: there is little room


def pids_alive(processes: list[Process], rows: list[ProcessSample]) -> set[int]:
    """Return the pids of the tree in the window of ``rows``, without processes that had ended before."""
    pids = {p.key: p.pid for p in processes}
    alive = {pids[row["process"]] for row in rows if row["process"] in pids and row["status"] != Status.GONE}
    return alive or set(pids.values())  # before the first window: no process has ended yet


def _same_before(requested_ns: Column[np.int64] | np.ndarray, index: int) -> int:
    """Return how many windows in a row up to ``index`` have its requested interval, of the last ``TRUE_WINDOWS``."""
    others = np.flatnonzero(requested_ns[max(0, index - TRUE_WINDOWS + 1) : index + 1] != requested_ns[index])
    return min(index + 1, TRUE_WINDOWS) - (int(others[-1]) + 1 if len(others) else 0)
