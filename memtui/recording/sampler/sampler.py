"""The sampler: probes on a clock, messages into a pipe.

The sampler opens no file of the user's, never writes to the pipe while the target is paused, and its death, however it
comes, resumes the target.
"""

from __future__ import annotations

import gc
import os
import select
import time
from collections.abc import Iterable
from dataclasses import replace

from memtui.analysis.overhead_budget import budget_event, seconds
from memtui.core import capabilities
from memtui.core.block_sample import BlockSample
from memtui.core.options import DEFAULT_MAX_PAUSE_NS
from memtui.core.procfs import read_stat
from memtui.core.readings import Power
from memtui.core.samples import End
from memtui.probes.memory_limits import MemoryLimits
from memtui.probes.oom_kills import KernelLog, OomKills
from memtui.probes.pages.accessed_bit_cost import measure_set_cost
from memtui.probes.pages.select_tracker import choose
from memtui.probes.power.probe import PowerProbe
from memtui.probes.process_exit import how_it_ended
from memtui.probes.process_owner import check_owner
from memtui.probes.window_reader import PageReader
from memtui.recording.sampler.burst_schedule import BurstSchedule
from memtui.recording.sampler.commands import SamplerConfig, SamplerState
from memtui.recording.sampler.hello import hello
from memtui.recording.sampler.message_queue import MessageQueue
from memtui.recording.sampler.pause_warnings import PauseWarnings
from memtui.recording.sampler.scheduler import SampleClock
from memtui.recording.sampler.slowdown_estimate import SPARE_CPUS
from memtui.recording.sampler.target_lock import TargetLocks
from memtui.recording.sampler.tracked_process import gpu_part
from memtui.recording.sampler.tracked_tree import TrackedTree
from memtui.recording.sampler.tree_window import TreeWindows

NOTICE_EVERY_NS = 5_000_000_000
LAST_WINDOW_NS = 5_000_000_000  # of a last window, where a budget makes windows long
COMMAND_BYTES = 4096  # read at once of what comes after the order
HOLD_NS = 250_000_000  # windows closer together may be sent in the next pause: the target's CPUs are idle then
MOST_OVERHEAD_OF_OWN_PPM = 250_000  # that a process loses to a sampler which its user may start without a password


class Sampler:
    """Observes one process tree until the tree ends, the time is up or a command says stop."""

    def __init__(
        self,
        order: SamplerConfig,
        outbox: MessageQueue,
        commands_fd: int,
        stop_fd: int,
        owner: int | None,
        log: KernelLog,
    ) -> None:
        """Choose a tracker and prepare everything, so that no pause waits for it.

        Args:
            order: what to observe, and how.
            outbox: takes the messages.
            commands_fd: where the commands after the order come from.
            stop_fd: anything to read here means stop.
            owner: a user whose processes are watched, and no others; their overhead is limited then. None: all users.
            log: of the kernel, opened with rights that this process has given up since.

        Raises:
            NotOwn: the target is another user's.
            ProcessLookupError: the target ended.
            TargetLocked: another memtui watches it.
            NoTracker: the tracker that was requested does not work here.
        """
        if owner is not None:
            check_owner(order.pid, owner)
            order = replace(order, max_pause_ns=min(order.max_pause_ns, DEFAULT_MAX_PAUSE_NS))
        self._state = SamplerState(
            order.options.interval_ns,
            order.options.max_overhead_ppm,
            most_overhead_ppm=None if owner is None else MOST_OVERHEAD_OF_OWN_PPM,
        )
        order = replace(order, options=replace(order.options, max_overhead_ppm=self._state.max_overhead_ppm))
        self._order, self._options = order, order.options
        self._outbox, self._commands_fd, self._stop_fd = outbox, commands_fd, stop_fd
        self._paused_since_ns: int | None = None
        self._power_due_ns = self._notice_due_ns = 0
        self._target_fd = os.pidfd_open(order.pid)
        if read_stat(order.pid).start_ticks != order.start_ticks:
            raise ProcessLookupError(f"process {order.pid} ended")
        self._oom_kills = OomKills(order.pid, log)
        self._limits = MemoryLimits(order.pid)
        locks = TargetLocks()
        locks.acquire(order.pid)  # two samplers would clear each other's accessed bits
        self._tracker, self._rejected = choose(
            self._options.tracker,
            self._options.flush,
            self._options.rearm,
            paused=self._options.pause,
            sample=BlockSample(int.from_bytes(os.urandom(8)) >> 1) if self._options.samples_pages else None,
        )
        if os.geteuid() == 0:
            capabilities.keep(capabilities.sampler_needs(self._tracker.name))
        set_cost = measure_set_cost() if self._tracker.clears else None
        self._clock = SampleClock(order.options, self._state, set_cost, clears=self._tracker.clears)
        self._tracker.set_interval(self._options.interval_ns)
        self._reader = PageReader(
            self._tracker,
            pause=self._options.pause,
            together=self._options.together,
            hold_filtered=order.hold_filtered,
            max_pause_ns=order.max_pause_ns,
            owner=owner,
            in_pause=outbox.pump,
        )
        self._bursts = BurstSchedule()
        # Parts of a window are of use where single pages are seen exactly.
        self._cuts = self._tracker.pages.ok and self._reader.pauses and not self._options.samples_pages
        self._warnings = PauseWarnings(order, outbox, self._reader)
        self._tree = TrackedTree(order, owner, outbox, self._reader, self._warnings, locks)
        self._windows = TreeWindows(
            self._tree,
            self._reader,
            self._clock,
            outbox,
            self._warnings,
            max_overhead_ppm=order.options.max_overhead_ppm,
            together=order.options.together,
        )

    def run(self) -> None:
        """Send Hello, then windows, then End. Raises RecorderGone."""
        # Its counters begin here, so that the first reading has a power.
        power = PowerProbe(chassis=self._options.chassis_power)
        self._outbox.put(hello(self._order, self._options, self._tracker, self._rejected))
        began_ns = time.monotonic_ns()
        until_ns = began_ns + self._options.duration_ns if self._options.duration_ns else None
        self._warnings.start()
        try:
            self._check_notice()
            self._tree.refresh()
            self._tree.follow()
            self._tree.take_gaps()  # what was there before the first window
            self._windows.start()
            # Nothing below allocates cycles; a collection in the middle of a pause would lengthen it.
            gc.collect()
            gc.freeze()
            self._clock.start()
            end: End | None = None
            while end is None:
                end = self._round(power, until_ns)
            if not end.of_target and self._should_take_last_window():
                self._windows.take_last(self._options.interval_ns)
            self._put_end(end)
        except ProcessLookupError as error:
            self._tree.check_observed(error)
            self._put_end(self._target_ended())
        finally:
            power.close()
            self._reader.close()
            self._windows.close()

    def _round(self, power: PowerProbe, until_ns: int | None) -> End | None:
        """Wait for what is due next, and do it; return why the recording ends, if it does."""
        bursts = self._bursts
        now_ns = time.monotonic_ns()
        if now_ns >= self._power_due_ns:
            readings = power.read(now_ns)
            gpu = gpu_part(self._tree.processes.values(), power.holders)
            limits, windows = self._limits.poll(now_ns), self._windows
            self._outbox.put(Power(readings, *gpu, limits, windows.memory_use(), windows.numa_use()))
            self._power_due_ns = now_ns + self._clock.power_every_ns
            self._warn(self._oom_kills.new(self._tree.processes))
            if self._paused_since_ns is None:
                self._tree.follow_between()
        window_due_ns = due_ns = max(self._window_due_ns(now_ns), bursts.end_ns)
        ending = until_ns is not None and due_ns >= until_ns
        due_ns = min(due_ns, until_ns) if until_ns else due_ns
        if bursts.cut_ns is not None:
            due_ns = min(due_ns, max(bursts.cut_ns, now_ns))
        end = self._wait(min(due_ns, self._power_due_ns))
        if end is not None:
            return end
        if self._apply_requests() or time.monotonic_ns() < due_ns:
            return None
        if bursts.cut_ns is not None and due_ns < window_due_ns:
            self._windows.cut()
            bursts.cut(time.monotonic_ns(), window_due_ns)
            return None
        if ending:
            return End(time.monotonic_ns(), "duration")
        if self._paused_since_ns is None:
            self._windows.take(self._options.interval_ns)
            self._tree.follow()
            self._check_notice()
            self._begin_window(until_ns)
        return None

    def _begin_window(self, until_ns: int | None) -> None:
        """Decide whether the window that has begun will be cut into parts."""
        now_ns, budget = time.monotonic_ns(), self._clock.budget
        due_ns = self._window_due_ns(now_ns)
        may = self._cuts and budget is not None and (until_ns is None or due_ns < until_ns)
        costs = (budget.last_ns, budget.typical_ns, budget.share) if budget is not None else (0, 0, None)
        self._bursts.start(now_ns, due_ns, costs[0], costs[1], costs[2] if may else None, probes=self._windows.probes)

    def _window_due_ns(self, now_ns: int) -> int:
        """Return when the next window ends; while sampling is paused, when power is read next."""
        if self._paused_since_ns is not None:
            return self._power_due_ns
        tried_ns = min((tracked.tried_ns for tracked in self._tree.processes.values()), default=now_ns)
        return max(tried_ns + self._clock.interval_ns, now_ns)

    def _should_take_last_window(self) -> bool:
        """Whether the time since the last window is at least half of one: a sliver would look like a collapse.

        Where a budget makes windows longer than was asked for, they differ, and some seconds are enough.
        """
        if self._paused_since_ns is not None:
            return False
        if not self._windows.sample:
            return True
        start_ns = min((t.start_ns for t in self._tree.processes.values()), default=time.monotonic_ns())
        least_ns = max(self._options.interval_ns, min(self._clock.interval_ns, 2 * LAST_WINDOW_NS)) // 2
        return time.monotonic_ns() - start_ns >= least_ns

    def _apply_requests(self) -> bool:
        """Do what was requested meanwhile; return whether anything was."""
        state, applied = self._state, False
        if state.interval_ns != self._options.interval_ns:
            self._options = replace(self._options, interval_ns=state.interval_ns)
            if self._paused_since_ns is None:
                self._tracker.set_interval(state.interval_ns)
            text = f"the interval is {state.interval_ns / 1e9:g} s from here on"
            if (budgeted_ns := self._clock.budgeted_ns or 0) > state.interval_ns:
                text += f"; the budget makes {seconds(budgeted_ns)} of it (i, then 5% or none, for another budget)"
            self._outbox.put_event("interval", text)
            applied = True
        if state.max_overhead_ppm != self._options.max_overhead_ppm:
            self._options = replace(self._options, max_overhead_ppm=state.max_overhead_ppm)
            self._clock.set_budget(state.max_overhead_ppm)
            self._outbox.put_event("interval", budget_event(state.max_overhead_ppm))
            applied = True
        if state.paused != (self._paused_since_ns is not None):
            if state.paused:
                self._pause()
            else:
                self._resume()
            applied = True
        return applied

    def _pause(self) -> None:
        """Stop sampling the target from here on."""
        self._paused_since_ns = time.monotonic_ns()
        self._bursts.cancel()
        self._tracker.set_interval(None)
        text = "sampling is paused (x goes on): the target is left alone, and what it touches is not seen"
        self._outbox.put_event("gap", text)

    def _resume(self) -> None:
        """Go on with sampling after ``_pause``."""
        now_ns = time.monotonic_ns()
        assert self._paused_since_ns is not None
        self._tracker.set_interval(self._options.interval_ns)
        # The window over the pause is as long as that: it clears the accessed bits and is not a sample.
        self._windows.take(self._options.interval_ns, keep=False)
        self._outbox.put_event("gap", f"sampling goes on after {(now_ns - self._paused_since_ns) / 1e9:.1f} s")
        self._paused_since_ns = None
        self._tree.follow()
        self._tree.take_gaps()

    def _wait(self, until_ns: int) -> End | None:
        """Sleep until a time, or a command, and send queued messages; return why the recording ends, if it does."""
        outbox = self._outbox
        soon = self._paused_since_ns is None and until_ns - time.monotonic_ns() <= HOLD_NS
        cpus = len(os.sched_getaffinity(0))
        outbox.holds = soon and self._reader.pauses and cpus > 1 and cpus - self._tree.busy_cpus < SPARE_CPUS
        while True:
            left_ns = until_ns - time.monotonic_ns()
            writers = [outbox.fd] if outbox.waiting_bytes and not outbox.holds else []
            readers = [self._commands_fd, self._stop_fd, self._target_fd]
            ready, _, _ = select.select(readers, writers, [], max(left_ns, 0) / 1e9)
            if not outbox.holds:
                outbox.pump()
            received = self._commands_fd in ready
            if received:
                self._state.receive(os.read(self._commands_fd, COMMAND_BYTES))
            if self._state.stop or self._stop_fd in ready:
                return End(time.monotonic_ns(), "stopped")
            if self._target_fd in ready:
                return self._target_ended()
            if left_ns <= 0 or received:
                return None

    def _put_end(self, end: End) -> None:
        self._outbox.put(replace(end, sampler_cpu_ns=time.process_time_ns()))

    def _target_ended(self) -> End:
        ended_ns = time.monotonic_ns()
        how = how_it_ended(self._order.pid, self._target_fd)
        how, others = self._oom_kills.explained(how, self._tree.processes)
        self._warn(others)
        return End(ended_ns, "target exited", how)

    def _warn(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._outbox.put_event("warning", text)

    def _check_notice(self) -> None:
        """Report now and then what has changed about the reliability of the numbers."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._notice_due_ns:
            self._notice_due_ns = now_ns + NOTICE_EVERY_NS
            if notice := self._tracker.notice():
                self._outbox.put_event("warning", notice)
