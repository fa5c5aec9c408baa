"""The processes of the target's tree that are tracked: who is born, who ended, and who is left out."""

from __future__ import annotations

import os
import time

from memtui.core.procfs import TICKS_PER_S, read_stat
from memtui.core.samples import NOT_CLEARED, Process, Vma
from memtui.probes.address_space import Sharers, owner_of
from memtui.probes.pages.tracker import TrackerError
from memtui.probes.pause.pauser import PauseError
from memtui.probes.proc_maps import TooManyMappings, parse_maps, read_maps
from memtui.probes.process_owner import NotOwn, check_owner
from memtui.probes.process_tree import ProcessTree
from memtui.probes.usage import UsageProbe
from memtui.probes.window_reader import PageReader, Subject
from memtui.recording.sampler.commands import SamplerConfig
from memtui.recording.sampler.message_queue import MessageQueue
from memtui.recording.sampler.pause_warnings import PauseWarnings
from memtui.recording.sampler.target_lock import TargetLocked, TargetLocks
from memtui.recording.sampler.tracked_process import TrackedProcess

TREE_EVERY_NS = 250_000_000  # at least; otherwise at every window, as long as a refresh costs 2 % of a CPU
TREE_REST = 49  # a refresh of the tree is followed by this many times its duration without one
BETWEEN_REST = 100  # the same inside a window, together with what it takes to start tracking
LEAST_AGE_S = 1.0  # of what is tracked from inside a window on: most helpers are gone by then


class TrackedTree:
    """Follows the tree: starts to track processes that were born and releases those that ended.

    Attributes:
        processes: by pid, what is tracked.
        observed: a process of this tree was sent.
    """

    def __init__(
        self,
        order: SamplerConfig,
        owner: int | None,
        outbox: MessageQueue,
        reader: PageReader,
        warnings: PauseWarnings,
        locks: TargetLocks,
    ) -> None:
        """Track nothing before ``follow``.

        Args:
            order: what to observe.
            owner: a user whose processes are tracked, and no others; None: those of all users.
            outbox: takes processes and events.
            reader: clears accessed bits before a first window.
            warnings: about pauses.
            locks: have locked the root of the tree already.
        """
        self.processes: dict[int, TrackedProcess] = {}
        self.observed = False
        self._owner, self._outbox, self._reader, self._warnings, self._locks = owner, outbox, reader, warnings, locks
        self._tree = ProcessTree(order.pid, children=order.options.children, command=order.command)
        self._usage = UsageProbe()
        self._new: list[Process] = []  # found by the last refresh, not tracked yet
        self._ended: list[Process] = []
        self._gaps = 0
        self._refresh_due_ns = self._between_due_ns = 0
        self._left_out: set[int] = set()  # pids that another memtui tracks, or that are not the owner's
        self._sharers = Sharers()

    @property
    def busy_cpus(self) -> float:
        """How many CPUs the tree keeps busy."""
        return sum(tracked.busy_cpus for tracked in self.processes.values())

    @property
    def usage(self) -> UsageProbe:
        """What reads the CPU time and the faults of its processes."""
        return self._usage

    def take_gaps(self) -> int:
        """Return how many processes were born or ended since the last call."""
        gaps, self._gaps = self._gaps, 0
        return gaps

    def not_tracked(self) -> list[int]:
        """Return the descendants of this moment that began after the last refresh, and have memory of their own."""
        new = [pid for pid in self._tree.pids() if pid not in self.processes and pid not in self._left_out]
        return [pid for pid in new if owner_of(pid, self.processes) is None]

    def subject(self, tracked: TrackedProcess) -> Subject:
        """Return a process as the page reader takes it."""
        return tracked.subject(self._sharers.of(tracked.process.pid))

    def renew(self, tracked: TrackedProcess) -> None:
        """Send the new description of a process after its exec, or of its new role; its mappings follow."""
        tracked.process, tracked.table_due = self._tree.new_generation(tracked.process.pid), True
        self._outbox.put(tracked.process)

    def check_observed(self, error: OSError) -> None:
        """Raise the error where the target ended before anything of it was observed: nothing was recorded then."""
        if not self.processes and not self.observed:
            raise error

    def refresh(self) -> None:
        """Find who was born and who ended, if it is time. Raises ProcessLookupError when the root is gone."""
        began_ns = time.monotonic_ns()
        if began_ns < self._refresh_due_ns:
            return
        new, ended = self._tree.refresh()
        ended_ns = time.monotonic_ns()
        self._refresh_due_ns = ended_ns + min(TREE_EVERY_NS, TREE_REST * (ended_ns - began_ns))
        self._new += new
        self._ended += ended
        self._gaps += len(new) + len(ended) + self._tree.unseen
        for pid in self._tree.become_loaders:
            if tracked := self.processes.get(pid):
                self.renew(tracked)

    def follow(self, least_age_s: float = 0.0) -> None:
        """Release processes that ended and start to track those that were born, so long ago at least.

        Raises RecorderGone, and ProcessLookupError where nothing is left and nothing was observed.
        """
        for process in self._ended:
            self.forget(process.pid)
        new = {process.pid for process in self._new}
        latest_ticks = (time.clock_gettime(time.CLOCK_BOOTTIME) - least_age_s) * TICKS_PER_S
        for process in self._tree.processes:  # also one that was taken for ended and still runs
            if process.start_ticks > latest_ticks and least_age_s:
                continue
            if process.pid not in self.processes:
                self._start_tracking(process)
            if process.pid in new:
                # After its accessed bits were cleared: who waits for this message may let it start.
                self._outbox.put(process)
                self.observed = True
                new.discard(process.pid)
        self._new, self._ended = [process for process in self._new if process.pid in new], []

    def follow_between(self) -> None:
        """Do the same inside a window that may be long, if it is time: its end has what was born in it.

        Raises RecorderGone.
        """
        began_ns = time.monotonic_ns()
        if began_ns < self._between_due_ns:
            return
        try:
            self.refresh()
            self.follow(LEAST_AGE_S)
        except ProcessLookupError:
            pass  # the root ended, and who waits for that is told
        ended_ns = time.monotonic_ns()
        self._between_due_ns = ended_ns + max(TREE_EVERY_NS, BETWEEN_REST * (ended_ns - began_ns))

    def forget(self, pid: int) -> None:
        """Release everything that was allocated for a process."""
        if tracked := self.processes.pop(pid, None):
            os.close(tracked.pidfd)
        self._left_out.discard(pid)
        self._sharers.forget(pid)
        self._usage.forget(pid)
        self._reader.forget(pid)
        self._locks.release(pid)

    def _start_tracking(self, process: Process) -> None:
        """Clear the accessed bits of a process and track it from here on, unless it has to be left out."""
        pid, paused_ns = process.pid, 0
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            self.check_observed(error)
            return
        maps = b""
        vmas: tuple[Vma, ...] = ()
        try:
            stat = read_stat(pid)
            if stat.start_ticks != process.start_ticks or stat.ended:
                raise ProcessLookupError(f"process {pid} ended")
            if shares := self._sharers.add(Subject(pid, pidfd, process.start_ticks), self.processes):
                self._report_sharer(pid, *shares)
                return
            if self._owner is not None:
                check_owner(pid, self._owner)
            self._locks.acquire(pid)
            self._left_out.discard(pid)
            maps = read_maps(pid)
            vmas = parse_maps(maps)
            paused_ns = self._reader.start(Subject(pid, pidfd, process.start_ticks, vmas))
        except ProcessLookupError as error:
            os.close(pidfd)
            self.check_observed(error)
            return
        except TargetLocked as error:
            os.close(pidfd)
            self._leave_out(pid, f"{error}; until then it is left out here")
            return
        except NotOwn as error:
            os.close(pidfd)
            self._leave_out(pid, f"{error}: it is left out (sudo memtui watches it)")
            return
        except (PauseError, TrackerError, TooManyMappings, OSError) as error:
            paused_ns = error.paused_ns if isinstance(error, PauseError) else 0
            text = f"pid {pid}: {NOT_CLEARED}: {error}"
            self._outbox.put_event("gap", text)
        self._warnings.update()
        now_ns = time.monotonic_ns()
        self.processes[pid] = TrackedProcess(process, pidfd, maps, vmas, now_ns, now_ns, now_ns, paused_ns)

    def _leave_out(self, pid: int, why: str) -> None:
        """Report once that a process is left out; every ``follow`` tries again, as the other memtui may end first."""
        if pid not in self._left_out:
            self._left_out.add(pid)
            self._outbox.put_event("warning", why)

    def _report_sharer(self, pid: int, owner: int, attempts: int) -> None:
        if attempts == 2:  # at the first attempt it may be a child of vfork before its exec
            text = f"pid {pid} uses the memory of pid {owner} (CLONE_VM): it is counted there, once"
            self._outbox.put_event("warning", text)
