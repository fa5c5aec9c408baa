"""Holds processes still for a moment, in a way that neither their shell nor their death-bed notices.

Every thread is seized and interrupted with ptrace and let go again. Unlike SIGSTOP, the parent hears nothing (a shell
with job control would report a stopped job and take the terminal), and when this program dies at any moment, the
kernel lets the target go. One that is stopped or frozen at such a moment is killed for that (``watchdog.py``).

The kernel binds tracing to the *thread* that seized, not to its process. So a thread of its own does it for each
process, and that is the way out when a target does not stop in time: threads that stand still are let go at once, and
the tracing thread ends, whereupon the kernel releases the rest, even threads that never stopped (a parent inside
``vfork`` does not stop until its child executes something; seen on Linux 6.18 and tested).
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from memtui.core.worker_thread import WorkerThread
from memtui.probes.pause.ptrace import BUSY, EXEC, NotPaused, Pause, PauseError, PauseRefused, Seizure
from memtui.probes.pause.watchdog import Watchdog

__all__ = ["DEADLINE_S", "NotPaused", "Pause", "PauseError", "PauseRefused", "Pauser"]

DEADLINE_S = 0.1
_SLACK_S = 0.04  # for the answer of a tracing thread that kept the deadline
_END_S = 0.005  # a thread that is not caught in the kernel ends in less
_REAP_EVERY_S = 0.001
_PR_SET_TIMERSLACK = 29

_libc = ctypes.CDLL(None, use_errno=True)


def _tracing_thread() -> WorkerThread:
    return WorkerThread("memtui-pause", _sleep_short)


def _sleep_short() -> None:
    """Allow sleeps of some microseconds, to each of which the kernel adds 50 by default."""
    _libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1000), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


@dataclass(slots=True)
class _Job:
    """A process, and the thread that holds it."""

    seizure: Seizure
    thread: WorkerThread
    answer: queue.SimpleQueue[Any]
    pause: Pause | None = None  # while it is held
    given_up: bool = False


class Pauser:
    """Pauses processes, each with a deadline of its own."""

    def __init__(
        self,
        deadline_s: float = DEADLINE_S,
        watchdog: Watchdog | None = None,
        check: Callable[[int], None] = lambda _pid: None,
    ) -> None:
        """Begin.

        Args:
            deadline_s: a pause is given up when not every thread stands still this long after it was asked for.
            watchdog: kills this process when it is stopped or frozen while it holds somebody.
            check: see ``Seizure``; called from the thread that holds the process.
        """
        self._deadline_s, self._watchdog, self._check = deadline_s, watchdog, check
        self._idle: list[WorkerThread] = []
        self._stuck: dict[int, WorkerThread] = {}  # threads that were given up and have not ended, by the process

    @contextmanager
    def paused(self, pid: int, pidfd: int | None = None) -> Iterator[Pause]:
        """Hold the process still over the block. ``pidfd``: do so only if the number is still that process's.

        Raises:
            NotPaused: it did not stop in time; the block is not entered and the target runs.
            PauseRefused: it may not be traced; the target runs.
            ProcessLookupError: it ended.
        """
        with self.paused_together({pid: pidfd}) as outcomes:
            outcome = outcomes[pid]
            if not isinstance(outcome, Pause):
                raise outcome
            yield outcome

    @contextmanager
    def paused_together(self, targets: Mapping[int, int | None]) -> Iterator[dict[int, Pause | Exception]]:
        """Hold several processes (pid, and pidfd or None) over one block.

        Yields for each its pause, or what ``paused`` would have raised: one that does not stop keeps none of the
        others from being held, and holds them up no longer than the deadline.
        """
        jobs: dict[int, _Job] = {}
        outcomes: dict[int, Pause | Exception] = {}
        with self._watchdog.watching() if self._watchdog else nullcontext():
            try:
                for pid, pidfd in targets.items():
                    if self._is_stuck(pid):
                        outcomes[pid] = NotPaused(EXEC)
                        continue
                    thread = self._idle.pop() if self._idle else _tracing_thread()
                    seizure = Seizure(pid, pidfd, self._deadline_s, self._check)
                    jobs[pid] = _Job(seizure, thread, thread.submit(seizure.stop))
                until = time.monotonic() + self._deadline_s + _SLACK_S
                for pid, job in jobs.items():
                    outcomes[pid] = self._outcome(job, until)
                yield outcomes
            finally:
                # Whatever happened, also a ^C in this thread: no target must stay held.
                self._let_go([job for job in jobs.values() if not job.given_up])

    def _outcome(self, job: _Job, until: float) -> Pause | Exception:
        try:
            pause, error = job.answer.get(timeout=max(until - time.monotonic(), 0))
        except queue.Empty:
            self._give_up(job)
            # Caught in the kernel by an exec; or it had no CPU until now, and has an answer.
            error = NotPaused(EXEC) if job.answer.empty() else job.answer.get()[1] or NotPaused(BUSY)
        if error is None:
            job.pause = pause
            return pause
        self._give_up(job)
        if not isinstance(error, Exception):
            raise error
        if isinstance(error, PauseError) and job.seizure.start_ns is not None:
            error.paused_ns = time.monotonic_ns() - job.seizure.start_ns
        return error

    def _let_go(self, jobs: list[_Job]) -> None:
        releases = [(job, job.thread.submit(job.seizure.release)) for job in jobs if job.pause is not None]
        for job in jobs:
            if job.pause is None:
                self._give_up(job)
        for job, answer in releases:
            assert job.pause is not None
            clean, error = answer.get()
            job.pause.paused_ns = time.monotonic_ns() - job.pause.start_ns
            if clean:
                self._idle.append(job.thread)
            else:
                self._give_up(job)
            if error is not None:
                raise error

    def _give_up(self, job: _Job) -> None:
        """End the tracing thread, and with it all tracing. One that is caught in the kernel ends when it can."""
        if job.given_up:
            return
        job.given_up = True
        job.thread.end()
        if not job.thread.join(_END_S):
            self._stuck[job.seizure.pid] = job.thread
            threading.Thread(target=_reap_until_ended, args=(job,), name="memtui-attend", daemon=True).start()

    def _is_stuck(self, pid: int) -> bool:
        self._stuck = {pid: thread for pid, thread in self._stuck.items() if not thread.join(0)}
        return pid in self._stuck

    def close(self) -> None:
        while self._idle:
            thread = self._idle.pop()
            thread.end()
            thread.join(self._deadline_s)
        if self._watchdog:
            self._watchdog.close()

    def __enter__(self) -> Pauser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reap_until_ended(job: _Job) -> None:
    """Do what the target waits for until a thread that is caught in the kernel has ended."""
    while not job.thread.join(_REAP_EVERY_S):
        job.seizure.reap()
