"""One window of one or several processes: pause, walk, flush, clear, continue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from memtui.core.options import DEFAULT_MAX_PAUSE_NS
from memtui.core.procfs import read_stat, read_status, threads_run_on
from memtui.core.samples import Vma
from memtui.core.units import duration
from memtui.probes.memory_users import MemoryUsers
from memtui.probes.pages.tracker import (
    ClearingTooLong,
    PageTracker,
    PageWindow,
    ReadingTooLong,
    TrackerError,
    is_late,
)
from memtui.probes.pause.hold_times import HoldTimes
from memtui.probes.pause.pauser import DEADLINE_S, NotPaused, Pause, PauseError, Pauser, PauseRefused
from memtui.probes.pause.watchdog import Watchdog
from memtui.probes.proc_maps import MOST_MAPPINGS, TooManyMappings, read_maps
from memtui.probes.process_owner import NotOwn, check_owner, looks_own
from memtui.probes.protected_processes import ProtectedProcesses
from memtui.probes.seccomp import SyscallFilters
from memtui.probes.usage import MemoryTexts, read_memory_texts

FIRST_THREAD_ENDED = (
    "its first thread has ended while others run (pthread_exit in main): the kernel shows its memory under that thread"
)
NO_PAUSE = "--no-pause"
FILTERED = "it runs under a seccomp filter; --pause holds it all the same"
TOO_LONG = "holding it would take longer than --max-pause ({most})"
CLEARED_RUNNING = "its marks were cleared while it ran: holding it on would have taken longer than --max-pause ({most})"


class Filtered(PauseRefused):
    """The process runs under a seccomp filter, so a pause could end it."""


class PauseTooLong(PauseRefused):
    """A pause would be longer than ``--max-pause``."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A process to read. ``pidfd`` identifies the process, should its pid come to belong to another one.

    ``sharers`` use its memory without being threads of it: they are paused with it, where they can be.
    """

    pid: int
    pidfd: int | None
    start_ticks: int
    vmas: tuple[Vma, ...] = ()
    sharers: tuple[Subject, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """A window of a process, with the text of its mappings and its times."""

    window: PageWindow
    maps: bytes
    end_ns: int  # when its window ended
    resumed_ns: int  # when it ran again with its accessed bits cleared
    paused_ns: int
    stopped: bool = False  # by someone else
    running: str = ""  # why it was not paused; empty: it was
    longest_pause_ns: int | None = None  # of the pauses that ``paused_ns`` sums up; None: that is one pause
    memory: MemoryTexts | None = None  # during the pause; None: it was not read then


@dataclass(frozen=True, slots=True)
class Lost:
    """Why there is no reading (OSError, PauseError or TrackerError), and how long the process was paused for it."""

    error: Exception
    paused_ns: int = 0


Outcome = Reading | Lost
# A window, RSS and faults, and a function that returns the text of maps after the pause
_Taken = tuple[PageWindow, MemoryTexts | None, Callable[[], bytes]]
# An error of one process must not end the whole recording.
_RELEASE_PERCENT = 5  # of a pause at most, in which its threads are released
_SHORTEST_DEADLINE_S = 0.01  # in which the threads of most programs stop
_ERRORS = (OSError, PauseError, TrackerError, TooManyMappings)


class PageReader:
    """Reads the accessed pages of processes, each paused where it can be."""

    def __init__(
        self,
        tracker: PageTracker,
        *,
        pause: bool,
        together: bool = False,
        hold_filtered: bool = False,
        max_pause_ns: int = DEFAULT_MAX_PAUSE_NS,
        owner: int | None = None,
        in_pause: Callable[[], None] = lambda: None,
    ) -> None:
        """Start without a process.

        Args:
            tracker: reads accessed bits.
            pause: pause processes, where the tracker makes use of that.
            together: one pause over all processes, not one after the other.
            hold_filtered: also pause processes under a seccomp filter, which a pause may harm.
            max_pause_ns: a process that would be paused for longer is read while it runs.
            owner: the user whose processes may be read; None: everybody's.
            in_pause: is called first in every pause.
        """
        self._tracker, self._together, self._in_pause = tracker, together, in_pause
        self._owner = owner
        self._max_pause_ns, self._times = max_pause_ns, HoldTimes(tracker.page_ns)
        self.long = 0  # the pid of the last process whose pause would be too long
        self._hold_filtered, self._filters = hold_filtered, SyscallFilters()
        self.filtered = 0  # the pid of the last process under a seccomp filter
        self._pause = pause and tracker.pauses
        self.unwatched = ""  # why there is no watchdog that kills this process if it is stopped during a pause
        watchdog: Watchdog | None = None
        if self._pause:
            try:
                watchdog = Watchdog()
            except OSError as error:
                self.unwatched = str(error)
        self._pauser = Pauser(watchdog=watchdog, check=self._check_filter)
        self._users = MemoryUsers() if self._pause and not tracker.counts_users else None
        self._paused_sharers: set[int] = set()  # sharers of the processes of this round that were paused with them
        self._protected = ProtectedProcesses()

    @property
    def pauses(self) -> bool:
        """Whether processes are paused."""
        return self._pause

    @property
    def _longest_hold_ns(self) -> int:
        """How long a pause may last before its threads are released."""
        return self._max_pause_ns * (100 - _RELEASE_PERCENT) // 100

    def start(self, subject: Subject) -> int:
        """Clear all accessed bits before the first window; return the duration of the pause. Raises ``Lost.error``."""
        self._protected.refresh()
        if not self._pause:
            self._tracker.start(subject.pid, subject.vmas)
            return 0
        self._filters.forget(subject.pid)  # another process may have had this pid
        self._tracker.forget(subject.pid)
        self._tracker.running.discard(subject.pid)
        pause: Pause | None = None
        try:
            if self._filters.judge(subject.pid):
                self.filtered = subject.pid
            self._check_time(subject.pid, self._max_pause_ns, self._check(subject))
            deadline_s = self._deadline_s([subject.pid])
            with self._pauser.paused(subject.pid, subject.pidfd, deadline_s) as pause, self._in_time(pause.start_ns):
                self._check_late()
                self._tracker.start(subject.pid, subject.vmas)
        except (PauseRefused, ReadingTooLong, ClearingTooLong) as error:
            if not self._may_run(error):
                raise
            start_ns = time.monotonic_ns()
            if isinstance(error, ClearingTooLong):
                error.finish()
            else:
                if isinstance(error, ReadingTooLong):
                    self._tracker.running.add(subject.pid)
                self._tracker.start(subject.pid, subject.vmas)
            if pause is None:
                self._times.record(subject.pid, time.monotonic_ns() - start_ns)
                return 0
            self.long = subject.pid
        self._record_pause(subject.pid, pause)
        return pause.paused_ns or 0

    @contextmanager
    def _in_time(self, start_ns: int) -> Iterator[None]:
        """Tell the tracker during a pause, which began at a time, when it has to end."""
        self._tracker.resume_by_ns = start_ns + self._longest_hold_ns
        try:
            yield
        finally:
            self._tracker.resume_by_ns = None

    def read(self, subjects: Sequence[Subject], *, want_resident: bool, part: bool = False) -> list[Outcome]:
        """Return a window of each process, in the same order.

        ``part``: of a longer window, so it says little of how long the next one takes.
        """
        self._times.in_part = part
        try:
            self._protected.refresh()
            self._tracker.start_round(len(subjects))
            if self._users is not None:
                self._users.recheck()
            self._paused_sharers.clear()
            if self._together and self._pause and len(subjects) > 1:
                outcomes = self._read_together(subjects, want_resident)
            else:
                outcomes = [self._read_single(subject, want_resident) for subject in subjects]
            return outcomes if self._users is None else self._name_users(self._users, subjects, outcomes)
        finally:
            self._times.in_part = False

    def forget(self, pid: int) -> None:
        """Release the state of a process that ended."""
        self._tracker.forget(pid)
        self._protected.forget(pid)
        self._filters.forget(pid)
        self._times.forget(pid)
        self._tracker.running.discard(pid)
        if self._users is not None:
            self._users.forget(pid)

    def close(self) -> None:
        self._tracker.close()
        self._pauser.close()
        if self._users is not None:
            self._users.close()

    def _read_single(self, subject: Subject, want_resident: bool) -> Outcome:
        if not self._pause:
            return self._read_running(subject, want_resident, NO_PAUSE)
        if subject.sharers:
            return self._read_together([subject], want_resident)[0]
        pause: Pause | None = None
        try:
            self._check_time(subject.pid, self._max_pause_ns, self._check(subject))
            with self._pauser.paused(subject.pid, subject.pidfd, self._deadline_s([subject.pid])) as pause:
                self._in_pause()
                with self._in_time(pause.start_ns):
                    taken = self._read_paused(subject, want_resident)
        except _ERRORS as error:
            return self._without_pause(subject, want_resident, error, pause)
        return self._reading(subject.pid, taken, pause, time.monotonic_ns())

    def _read_together(self, subjects: Sequence[Subject], want_resident: bool) -> list[Outcome]:
        taken: dict[int, _Taken | Exception] = {}
        left_ns = self._max_pause_ns
        for subject in subjects:
            try:
                left_ns -= self._check_time(subject.pid, left_ns, self._check(subject))
            except _ERRORS as error:
                taken[subject.pid] = error
        wanted = {s.pid: s.pidfd for s in subjects if s.pid not in taken}
        with self._pauser.paused_together(wanted, self._deadline_s(wanted)) as pauses:
            # Pause the sharers only now: a parent in vfork cannot stop while its child is paused.
            stopped = [s for s in subjects if isinstance(pauses.get(s.pid), Pause)]
            start_ns = min((p.start_ns for p in pauses.values() if isinstance(p, Pause)), default=time.monotonic_ns())
            deadline_s = self._deadline_s(wanted, time.monotonic_ns() - start_ns)
            with self._pauser.paused_together(self._sharers_of(stopped), deadline_s) as sharers:
                self._paused_sharers |= {pid for pid, pause in sharers.items() if isinstance(pause, Pause)}
                self._in_pause()
                with self._in_time(start_ns):
                    for subject in stopped:
                        try:
                            taken[subject.pid] = self._read_paused(subject, want_resident)
                        except _ERRORS as error:
                            taken[subject.pid] = error
        taken |= {pid: why for pid, why in pauses.items() if isinstance(why, Exception)}
        resumed_ns = time.monotonic_ns()
        outcomes: list[Outcome] = []
        for subject in subjects:
            result, pause = taken[subject.pid], pauses.get(subject.pid)
            completed = pause if isinstance(pause, Pause) else None
            if isinstance(result, Exception):
                outcomes.append(self._without_pause(subject, want_resident, result, completed))
            else:
                assert completed is not None
                outcomes.append(self._reading(subject.pid, result, completed, resumed_ns))
        return outcomes

    def _name_users(self, users: MemoryUsers, subjects: Sequence[Subject], outcomes: list[Outcome]) -> list[Outcome]:
        """Say of windows that others used the memory during the pause, and who."""
        users.poll(subject.pid for subject in subjects)
        uncompared = users.uncompared(subject.pid for subject in subjects)

        def named(window: PageWindow, pid: int) -> PageWindow:
            return window.used_by(users.of(pid) - self._paused_sharers, compared=pid not in uncompared)

        return [
            replace(outcome, window=named(outcome.window, subject.pid))
            if isinstance(outcome, Reading) and not outcome.running  # that says by itself that it is approximate
            else outcome
            for subject, outcome in zip(subjects, outcomes, strict=True)
        ]

    def _sharers_of(self, subjects: Iterable[Subject]) -> dict[int, int | None]:
        """Return the pids and pidfds of the processes that use the memory of these and may be paused."""
        sharers: dict[int, int | None] = {}
        for sharer in [sharer for subject in subjects for sharer in subject.sharers]:
            with suppress(*_ERRORS):  # the tracker reports which ones ran
                self._check(sharer)
                sharers[sharer.pid] = sharer.pidfd
        return sharers

    def _check(self, subject: Subject) -> str:
        """Raise an error where there is a reason against a pause; return the /proc/PID/status that was looked at.

        That this was the process of ``subject.pidfd`` is known when it is paused: it exists until then.
        """
        if why := self._protected.objection(subject.pid, subject.start_ticks):
            raise NotPaused(why)
        stat = read_stat(subject.pid)
        if stat.ended or (stat.state == "Z" and not threads_run_on(subject.pid)):
            raise ProcessLookupError(f"process {subject.pid} ended")
        if stat.state == "Z":
            raise TrackerError(FIRST_THREAD_ENDED)
        status = read_status(subject.pid)
        self._check_owner(subject.pid, status)
        self._check_filter(subject.pid)
        return status

    def _check_owner(self, pid: int, status: str | None = None) -> None:
        """Raise PermissionError for a process that belongs, or has come to belong, to another user."""
        if self._owner is not None:
            try:
                check_owner(pid, self._owner, status=status)
            except NotOwn as error:
                raise PermissionError(str(error)) from None

    def _check_filter(self, pid: int) -> None:
        """Raise ``Filtered`` for a process under a seccomp filter, which may be new since the last check."""
        if not self._hold_filtered and self._filters.judge(pid):
            self.filtered = pid
            self._tracker.running.add(pid)
            raise Filtered(FILTERED)

    def _check_time(self, pid: int, most_ns: int, status: str) -> int:
        """Return for how long a process will be paused; ``status``: what ``_check`` returned.

        What can be done before its first pause is done here.

        Raises:
            TooManyMappings: the process is not read at all.
            PauseTooLong: the pause would be longer than ``most_ns``.
        """
        mappings = self._tracker.count_mappings(pid)
        if mappings is not None and mappings > MOST_MAPPINGS:
            raise TooManyMappings
        if not self._tracker.is_prepared(pid):
            self._times.record_walk(pid, self._tracker.prepare(pid))
            status = read_status(pid)  # preparing takes seconds, in which a process that loads its data grows
        expected_ns = self._times.expected_ns(pid, mappings, status)
        if expected_ns > most_ns:
            self.long = pid
            self._tracker.running.add(pid)
            raise PauseTooLong(TOO_LONG.format(most=duration(self._max_pause_ns / 1e9)))
        self._tracker.running.discard(pid)  # ``_check`` found no reason against a pause
        return expected_ns

    def _deadline_s(self, pids: Iterable[int], paused_ns: int = 0) -> float:
        """Return within how many seconds threads have to stop, so that there is time to read the processes.

        ``paused_ns``: for how long some of the processes are paused already.
        """
        left_ns = self._longest_hold_ns - paused_ns - sum(self._times.expected_stopped_ns(pid) for pid in pids)
        shortest_s = min(_SHORTEST_DEADLINE_S, self._longest_hold_ns / 1e9)
        return max(min(DEADLINE_S, left_ns / 1e9), shortest_s)

    def _check_late(self) -> None:
        """Raise ReadingTooLong where the threads of a paused process stopped so late that no time is left."""
        if is_late(self._tracker.resume_by_ns):
            raise ReadingTooLong

    def _record_pause(self, pid: int, pause: Pause) -> None:
        paused_ns = pause.paused_ns or 0
        self._times.record(pid, paused_ns, pause.start_ns + paused_ns - pause.stopped_ns)

    def _may_run(self, error: Exception) -> bool:
        """Whether a process that is not paused because of this error is read while it runs."""
        if isinstance(error, (Filtered, PauseTooLong, ReadingTooLong, ClearingTooLong)):
            return True
        return isinstance(error, PauseRefused) and self._tracker.reads_running

    def _read_paused(self, subject: Subject, want_resident: bool) -> _Taken:
        if self._owner is not None and not looks_own(subject.pid, self._owner):  # after an exec since ``_check``
            raise PermissionError(f"process {subject.pid} has rights that its user has not")
        self._check_late()
        # Where the tracker does not keep the table of mappings, it is read after the pause.
        window = self._tracker.window(subject.pid, subject.vmas, want_resident=want_resident)
        # Of a program that fills its memory RSS is larger after the pause.
        return window, read_memory_texts(subject.pid), window.maps or partial(read_maps, subject.pid)

    def _without_pause(self, subject: Subject, want_resident: bool, error: Exception, pause: Pause | None) -> Outcome:
        """Return the outcome for a process that could not be paused, or not be read during its pause."""
        if isinstance(error, ClearingTooLong) and pause is not None:
            self.long = subject.pid
            why = CLEARED_RUNNING.format(most=duration(self._max_pause_ns / 1e9))
            return self._finished(subject, error.finish, pause.start_ns, pause.paused_ns or 0, why)
        if isinstance(error, ReadingTooLong) and pause is not None:
            self.long = subject.pid
            self._tracker.running.add(subject.pid)
            why = TOO_LONG.format(most=duration(self._max_pause_ns / 1e9))
            return self._read_running(subject, want_resident, why, pause.paused_ns or 0)
        if self._may_run(error):
            return self._read_running(subject, want_resident, str(error))
        if isinstance(error, NotPaused):
            self._times.record_failure(subject.pid)
        paused_ns = error.paused_ns if isinstance(error, PauseError) else pause.paused_ns or 0 if pause else 0
        return Lost(error, paused_ns)

    def _read_running(self, subject: Subject, want_resident: bool, why: str, paused_ns: int = 0) -> Outcome:
        # The walk may see accesses that happen during it. Accesses after it are lost until the bits are cleared. So the
        # window ends when the walk starts, and the next window starts after the clear.
        window = partial(self._tracker.window, subject.pid, subject.vmas, want_resident=want_resident)
        return self._finished(subject, window, None, paused_ns, why)

    def _finished(
        self, subject: Subject, finish: Callable[[], PageWindow], end_ns: int | None, paused_ns: int, why: str
    ) -> Outcome:
        """Return a window that is finished while the process runs.

        ``end_ns``: when the window ended; None: it ends now.
        """
        try:
            self._check_owner(subject.pid)
            maps = read_maps(subject.pid)
            end_ns = end_ns or time.monotonic_ns()
            window = finish()
        except _ERRORS as error:
            return Lost(error, paused_ns)
        resumed_ns = time.monotonic_ns()
        gap_ns = window.clear_gap_ns  # a first window has none
        self._times.record(subject.pid, resumed_ns - end_ns if gap_ns is None else gap_ns)
        return Reading(window, maps, end_ns, resumed_ns, paused_ns, running=why)

    def _reading(self, pid: int, taken: _Taken, pause: Pause, resumed_ns: int) -> Outcome:
        window, memory, maps = taken
        paused_ns = pause.paused_ns or 0
        self._record_pause(pid, pause)
        try:
            text = maps()
        except _ERRORS as error:  # a long table is read only now, and the process may have ended
            return Lost(error, paused_ns)
        return Reading(window, text, pause.start_ns, resumed_ns, paused_ns, stopped=pause.stopped, memory=memory)
