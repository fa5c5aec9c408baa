"""Pauses processes for a moment with ptrace, which their parents do not see and which ends when this process dies.

Every thread is seized, interrupted and released again. With SIGSTOP the parent would be notified: a shell with job
control would report a stopped job and take the terminal. With ptrace the kernel releases the target when this process
dies at any moment. If this process is stopped or frozen during a pause, a timer kills it (``watchdog.py``).

The kernel binds tracing to the *thread* that seized, not to its process. So each process has a tracing thread of its
own. When a target does not stop in time, its stopped threads are released at once and the tracing thread ends. Then
the kernel releases the rest, even threads that never stopped (a parent inside ``vfork`` does not stop until its child
executes a program; seen on Linux 6.18 and tested).
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

from memtui.core.procfs import has_ended, state_of
from memtui.core.worker_thread import WorkerThread
from memtui.probes.pause.ptrace import BUSY, EXEC, NotPaused, Pause, PauseError, PauseRefused, Seizure, refusal
from memtui.probes.pause.watchdog import Watchdog

__all__ = ["DEADLINE_S", "NotPaused", "Pause", "PauseError", "PauseRefused", "Pauser"]

DEADLINE_S = 0.1
_SLACK_S = 0.04  # for the answer of a tracing thread that kept the deadline
_END_S = 0.005  # a thread that is not blocked in the kernel ends sooner
_REAP_EVERY_S = 0.001
_PR_SET_TIMERSLACK = 29

_libc = ctypes.CDLL(None, use_errno=True)


def _tracing_thread() -> WorkerThread:
    return WorkerThread("memtui-pause", _sleep_short)


def _sleep_short() -> None:
    """Allow sleeps of some microseconds: by default the kernel adds 50 us to each."""
    _libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1000), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


@dataclass(slots=True)
class _Job:
    """A process, and the thread that traces it."""

    seizure: Seizure
    thread: WorkerThread
    answer: queue.SimpleQueue[Any]
    pause: Pause | None = None  # during a pause
    given_up: bool = False


class Pauser:
    """Pauses processes, each with a deadline of its own."""

    def __init__(
        self,
        deadline_s: float = DEADLINE_S,
        watchdog: Watchdog | None = None,
        check: Callable[[int], None] = lambda _pid: None,
    ) -> None:
        """Start without a tracing thread.

        Args:
            deadline_s: a pause is given up when a thread still runs this long after the pause was requested.
            watchdog: kills this process when it is stopped or frozen during a pause.
            check: see ``Seizure``; called from the tracing thread.
        """
        self._deadline_s, self._watchdog, self._check = deadline_s, watchdog, check
        self._idle: list[WorkerThread] = []
        self._stuck: dict[int, WorkerThread] = {}  # by pid: tracing threads that were given up and have not ended

    @contextmanager
    def paused(self, pid: int, pidfd: int | None = None, deadline_s: float | None = None) -> Iterator[Pause]:
        """Pause the process during the block.

        Args:
            pid: of the process.
            pidfd: pause only if the pid still belongs to this process.
            deadline_s: in place of the pauser's.

        Raises:
            NotPaused: the process did not stop in time; the block is not entered and the target runs.
            PauseRefused: the process may not be traced; the target runs.
            ProcessLookupError: the process ended.
        """
        with self.paused_together({pid: pidfd}, deadline_s) as outcomes:
            outcome = outcomes[pid]
            if not isinstance(outcome, Pause):
                raise outcome
            yield outcome

    @contextmanager
    def paused_together(
        self, targets: Mapping[int, int | None], deadline_s: float | None = None
    ) -> Iterator[dict[int, Pause | Exception]]:
        """Pause several processes (pid, and pidfd or None) during one block.

        Yields for each its pause, or the error that ``paused`` would have raised. A process that does not stop does not
        prevent the pause of the others, and delays it by the deadline at most.
        """
        deadline_s = self._deadline_s if deadline_s is None else deadline_s
        jobs: dict[int, _Job] = {}
        outcomes: dict[int, Pause | Exception] = {}
        with self._watchdog.watching() if self._watchdog else nullcontext():
            try:
                for pid, pidfd in targets.items():
                    if self._is_stuck(pid):
                        outcomes[pid] = NotPaused(_why_late(self._stuck[pid]))
                        continue
                    thread = self._idle.pop() if self._idle else _tracing_thread()
                    seizure = Seizure(pid, pidfd, deadline_s, self._check)
                    jobs[pid] = _Job(seizure, thread, thread.submit(seizure.stop))
                until = time.monotonic() + deadline_s + _SLACK_S
                for pid, job in jobs.items():
                    outcomes[pid] = self._outcome(job, until)
                yield outcomes
            finally:
                # Whatever happened, also a ^C in this thread: no target may stay paused.
                self._let_go(list(jobs.values()))

    def _outcome(self, job: _Job, until: float) -> Pause | Exception:
        try:
            pause, error = job.answer.get(timeout=max(until - time.monotonic(), 0))
        except queue.Empty:
            self._give_up(job)
            # A tracing thread that had no CPU until now may have an answer.
            error = NotPaused(_why_late(job.thread)) if job.answer.empty() else job.answer.get()[1] or NotPaused(BUSY)
        if error is None:
            job.pause = pause
            return pause
        self._give_up(job)
        if isinstance(error, NotPaused) and job.seizure.start_ns is None:
            # On a busy machine the deadline can pass before the first thread is tried.
            error = refusal(job.seizure.pid) or error
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
        """End the tracing thread, and with it all tracing. A thread that is blocked in the kernel ends when it can."""
        if job.given_up:
            return
        job.given_up = True
        job.thread.end()
        if not job.thread.join(_END_S):
            self._stuck[job.seizure.pid] = job.thread
            threading.Thread(target=_reap_until_ended, args=(job,), name="memtui-attend", daemon=True).start()

    def _is_stuck(self, pid: int) -> bool:
        # In Python before 3.13, a thread that another one joins seems to live until that one runs again.
        self._stuck = {
            pid: thread for pid, thread in self._stuck.items() if not thread.join(0) and not has_ended(thread.native_id)
        }
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


def _why_late(thread: WorkerThread) -> str:
    """Return why a tracing thread is late: an exec of the target blocks it in the kernel, or it waits for a CPU."""
    return BUSY if state_of(thread.native_id) == "R" else EXEC


def _reap_until_ended(job: _Job) -> None:
    """Reap ended threads of the target, for which it waits, until the blocked tracing thread has ended."""
    while not job.thread.join(_REAP_EVERY_S):
        job.seizure.reap()
