"""Reads one window of all tracked processes and sends it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from memtui.core.readings import MemoryUse, NumaUse
from memtui.core.samples import ProcessWindow, Status, VmaTable, Window, tree_paused_ns
from memtui.core.units import span
from memtui.probes.disturbance import DisturbanceProbe
from memtui.probes.lazy_free import LazyFree
from memtui.probes.memory_use import MemoryUseProbe
from memtui.probes.numa import NumaProbe
from memtui.probes.pages.shared_frames import TouchedFrames
from memtui.probes.pages.tracker import PageWindow
from memtui.probes.pss import PssProbe
from memtui.probes.shared_pages import shared_pages
from memtui.probes.usage import Usage
from memtui.probes.window_reader import Outcome, PageReader, Reading
from memtui.recording.sampler.message_queue import MessageQueue
from memtui.recording.sampler.pause_warnings import PauseWarnings
from memtui.recording.sampler.scheduler import SampleClock
from memtui.recording.sampler.shared_doubts import shared_doubts
from memtui.recording.sampler.tracked_process import TrackedProcess, why_lost
from memtui.recording.sampler.tracked_tree import TrackedTree
from memtui.recording.sampler.window_parts import Whole, WindowParts

SECOND_NS = 1_000_000_000
NOTABLE_NS = 50_000_000  # after an exec, until it is noticed
RESIDENT_EVERY_NS = SECOND_NS


class TreeWindows:
    """The windows of one recording. ``sample`` is the number of the next one; ``probes``: those of the last one."""

    def __init__(
        self,
        tree: TrackedTree,
        reader: PageReader,
        clock: SampleClock,
        outbox: MessageQueue,
        warnings: PauseWarnings,
        *,
        max_overhead_ppm: int | None,
        together: bool,
    ) -> None:
        """Begin.

        Args:
            tree: whose windows.
            reader: reads the pages.
            clock: records the cost of windows.
            outbox: takes windows and events.
            warnings: about pauses.
            max_overhead_ppm: the budget of all that watching costs, if there is one.
            together: all processes are paused at once.
        """
        self.sample = 0
        self.probes = 0
        self._tree, self._reader, self._clock, self._outbox, self._warnings = tree, reader, clock, outbox, warnings
        self._together = together
        self._pss = PssProbe(max_overhead_ppm)
        self._memory_use = MemoryUseProbe(self._pss)
        self._numa, self._numa_use = NumaProbe(), list[NumaUse]()
        self._disturbance, self._lazy_free = DisturbanceProbe(), LazyFree()
        self._resident_due_ns = 0
        self._parts, self._cuts = WindowParts(), 0  # cuts of the window in progress

    def start(self) -> None:
        """Count disturbances of the target from here on."""
        self._disturbance.read(tuple(self._tree.processes))

    def memory_use(self) -> tuple[MemoryUse, ...]:
        """Return the resident memory of the tree, where it is due."""
        return self._memory_use.poll(self._tree.processes, self._tree.not_tracked)

    def numa_use(self) -> tuple[NumaUse, ...]:
        """Return on which nodes the pages of the last windows lie, what was not returned yet."""
        uses, self._numa_use = tuple(self._numa_use), []
        return uses

    def close(self) -> None:
        """Release what reads disturbances."""
        self._disturbance.close()

    def cut(self) -> None:
        """End a part of the window in progress: its pages are read and their accessed bits cleared, and it goes on."""
        tracked = tuple(self._tree.processes.values())
        subjects = [self._tree.subject(process) for process in tracked]
        outcomes = self._reader.read(subjects, want_resident=False, part=True)
        self._cuts += 1
        self._warnings.update()
        self._outbox.pump()
        for process, outcome in zip(tracked, outcomes, strict=True):
            self._parts.add(process.process.pid, outcome)

    def take_last(self, interval_ns: int) -> None:
        """Read the last window as ``take`` does, and the PSS of its end, too."""
        self._pss.expire()
        self.take(interval_ns)

    def take(self, interval_ns: int, *, keep: bool = True) -> None:
        """Read one window and send it; without ``keep`` it only clears the accessed bits.

        Raises RecorderGone, and ProcessLookupError when the root of the tree ended; its window was sent then.

        Args:
            interval_ns: that was requested.
            keep: the window is a sample.
        """
        want_resident = time.monotonic_ns() >= self._resident_due_ns
        if want_resident:
            self._resident_due_ns = time.monotonic_ns() + RESIDENT_EVERY_NS
        tracked = tuple(self._tree.processes.values())
        pids = tuple(process.process.pid for process in tracked)
        last = self._reader.read([self._tree.subject(process) for process in tracked], want_resident=want_resident)
        wholes = [self._parts.complete(pid, outcome) for pid, outcome in zip(pids, last, strict=True)]
        self._parts.forget_others(pids)
        outcomes = [whole.outcome for whole in wholes]
        self._warnings.update()
        self._outbox.pump()  # what did not fit into the pipe, or everything if nothing was paused
        if keep:
            self._pss.poll(pids)
        shared, excess_bytes = shared_pages(outcomes)
        wholes = self._with_doubts(pids, wholes)
        each = [self._window_of(*parts) for parts in zip(tracked, wholes, shared, strict=True)]
        windows = [window for window in each if window is not None]
        self._numa.forget_others(pids)
        self._lazy_free.forget_others(pids)
        for pid, window in zip(pids, each, strict=True):
            if window is not None:
                self._numa_use += self._numa.read(pid, window.process, window.pages)
        self.probes = sum(bool(window.part_lengths_ns) for window in windows)
        cleared = [part for pair in zip(each, wholes, strict=True) for part in _cleared(*pair)]
        budgeted_ns = self._clock.budgeted_ns
        paused_ns = tree_paused_ns(windows, together=self._together) or 0
        parts, self._cuts = 1 + self._cuts, 0
        loss = self._clock.add_windows(windows, paused_ns, self._tree.busy_cpus, cleared, parts=parts)
        if why := self._clock.warning():
            self._outbox.put_event("warning", why)
        if not windows:
            raise ProcessLookupError("every process of the tree ended")
        root_ended: ProcessLookupError | None = None
        try:
            self._tree.refresh()
        except ProcessLookupError as error:
            root_ended = error
        disturbed, gaps = self._disturbance.read(pids), self._tree.take_gaps()
        if keep:
            self._outbox.put(
                Window(
                    self.sample,
                    min(w.start_ns for w in windows),
                    max(w.end_ns for w in windows),
                    interval_ns,
                    time.process_time_ns(),
                    tuple(map(_with_all_resident, windows) if disturbed else windows),
                    gaps,
                    disturbed,
                    excess_bytes if len(windows) == sum(frames is not None for frames in shared) else None,
                    budgeted_ns,
                    self._clock.budgeted_ns,
                    loss.lost_ns,
                    loss.set_again_ns,
                )
            )
            self.sample += 1
        if root_ended is not None:
            raise root_ended

    def _with_doubts(self, pids: Sequence[int], wholes: Sequence[Whole]) -> list[Whole]:
        """Return the readings, which say where pages may have been touched that they cannot know of."""
        windows = {
            pid: whole.outcome.window
            for pid, whole in zip(pids, wholes, strict=True)
            if isinstance(whole.outcome, Reading) and whole.outcome.window.pages is not None
        }
        shared_bytes = {
            pid: size_bytes for pid in windows if (size_bytes := self._pss.of(pid).shared_bytes) is not None
        }
        doubts = shared_doubts(windows, shared_bytes)
        doubtful = []
        for pid, whole in zip(pids, wholes, strict=True):
            outcome = whole.outcome
            if isinstance(outcome, Reading) and outcome.window.pages is not None:
                window = outcome.window.doubted(self._lazy_free.doubt(pid, outcome.window.pages))
                whole = whole._replace(outcome=replace(outcome, window=window.doubted(doubts.get(pid, ""))))
            doubtful.append(whole)
        return doubtful

    def _window_of(self, tracked: TrackedProcess, whole: Whole, shared: TouchedFrames | None) -> ProcessWindow | None:
        """Return the window of one process; None when the process ended."""
        outcome = whole.outcome
        pid, start_ns = tracked.process.pid, tracked.start_ns
        pages: PageWindow | None = None
        status, reason, end_ns = Status.OK, "", time.monotonic_ns()
        if isinstance(outcome, Reading):
            pages, end_ns = outcome.window, outcome.end_ns
            tracked.start_ns = tracked.tried_ns = outcome.resumed_ns
            tracked.update_maps(outcome.maps)
            if outcome.stopped != tracked.stopped:
                tracked.stopped = outcome.stopped
                state = "was stopped (SIGSTOP or ^Z)" if outcome.stopped else "goes on"
                self._outbox.put_event("stopped", f"pid {pid} {state}")
        else:
            if isinstance(outcome.error, ProcessLookupError):
                self._tree.forget(pid)
                return None
            status, reason = why_lost(outcome)
        if pages is None:
            # The accessed bits were not cleared, so the next window goes back to the same start.
            tracked.tried_ns = time.monotonic_ns()
            if reason != tracked.trouble:
                self._outbox.put_event("gap", f"pid {pid}: window lost: {reason}")
        elif pages.generation != tracked.mapping:
            tracked.mapping, tracked.since_ns = pages.generation, end_ns
            self._send_exec(tracked, end_ns - start_ns)
        tracked.trouble = reason
        try:
            usage = self._usage_of(pid, outcome)
        except ProcessLookupError:
            self._tree.forget(pid)
            return None
        tracked.update_cpu(usage.cpu_ns)
        if tracked.table_due:
            self._outbox.put(VmaTable(tracked.process.key, self.sample, tracked.vmas))
            tracked.table_due = False
        rollup = self._pss.of(pid).for_rss(usage.rss_bytes)
        window = tracked.window(outcome, usage, start_ns, end_ns, (status, reason), shared, rollup)
        if not whole.lengths_ns or window.pages is None:
            return window
        return replace(window, parts=whole.accessed, part_lengths_ns=whole.lengths_ns)

    def _usage_of(self, pid: int, outcome: Outcome) -> Usage:
        """Return the usage at the end of a window, of its pause where it was read then. Raises ProcessLookupError."""
        usage = self._tree.usage.read(pid)
        return usage.during(outcome.memory) if isinstance(outcome, Reading) and outcome.memory else usage

    def _send_exec(self, tracked: TrackedProcess, window_ns: int) -> None:
        """Send the new description of a process after its exec, in a window of this length."""
        before = tracked.process.command
        self._tree.renew(tracked)
        process = tracked.process
        if process.command == before and not self.sample:
            return  # a program that memtui starts has its name before it takes the place of what starts it
        since = f" (since {span(window_ns / 1e9)} at most)" if window_ns > NOTABLE_NS else ""
        self._outbox.put_event("exec", f"pid {process.pid}{since} is now {process.command}")


def _cleared(window: ProcessWindow | None, whole: Whole) -> list[ProcessWindow]:
    """Return in parts what was accessed in a window: the accessed bits of each part were set again."""
    if window is None or not whole.accessed:
        return [] if window is None else [window]
    *parts, last = whole.accessed
    key, start_ns, end_ns = window.process, window.start_ns, window.end_ns
    return [*(ProcessWindow(key, start_ns, end_ns, pages=pages) for pages in parts), replace(window, pages=last)]


def _with_all_resident(window: ProcessWindow) -> ProcessWindow:
    """Return the window; an estimate's interval then ends at all resident memory: others may have cleared any bit."""
    if window.wss_high_bytes is None or window.rss_bytes is None:
        return window
    return replace(window, wss_high_bytes=max(window.wss_high_bytes, window.rss_bytes))
