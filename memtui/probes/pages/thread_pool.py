"""A pool of threads for system calls during a pause: the kernel works by address, and the target's CPUs are idle."""

from __future__ import annotations

import ctypes
import os
import queue
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar, cast

from memtui.core.worker_thread import WorkerThread

MAX_THREADS = 4  # with more, threads that clear pages would wait for one another's locks
_END_S = 1.0

Result = TypeVar("Result")

_libc = ctypes.CDLL(None)


class Future(Generic[Result]):
    """The result of a call that another thread runs."""

    def __init__(self, answer: queue.SimpleQueue[tuple[object, BaseException | None]]) -> None:
        self._answer = answer
        self._got: tuple[object, BaseException | None] | None = None

    def wait(self) -> None:
        """Wait until the call has ended, with a result or an error."""
        if self._got is None:
            self._got = self._answer.get()

    def result(self) -> Result:
        """Return what the call returned. Raises what it raised."""
        self.wait()
        assert self._got is not None
        value, error = self._got
        if error is not None:
            raise error
        return cast(Result, value)


class ThreadPool:
    """As many threads as this process has CPUs, four at most; the caller is one. They start when first needed."""

    def __init__(self, count: int | None = None) -> None:
        """``count``: of threads, in place of the number of CPUs."""
        self.count = count or min(MAX_THREADS, len(os.sched_getaffinity(0)))
        self._others: list[WorkerThread] = []  # the caller is one, too

    def avoid_current_cpu(self) -> None:
        """Keep the other threads away from the CPU that the caller is on now.

        A thread that is woken on the caller's CPU starts only when the caller waits, and does not run in parallel.
        """
        allowed = os.sched_getaffinity(0)
        elsewhere = allowed - {_libc.sched_getcpu()} or allowed
        for other in self._others:
            with suppress(OSError):
                os.sched_setaffinity(other.native_id, elsewhere)

    def together(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run all calls in parallel, the first of them in this thread, and return their results.

        Raises what one of them raises, but not before all have ended.
        """
        if len(calls) < 2:
            return [call() for call in calls]
        others = [self._submit(call, number) for number, call in enumerate(calls[1:])]
        try:
            first = calls[0]()
        finally:
            for other in others:
                other.wait()
        return [first, *(other.result() for other in others)]

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Run the call in the last of the other threads while this one continues. A pool of one starts one for that."""
        return self._submit(call, -1)

    def _submit(self, call: Callable[[], Result], number: int) -> Future[Result]:
        wanted = max(self.count - 1, 1)
        while len(self._others) < wanted:
            self._others.append(WorkerThread("memtui-hand"))
        return Future(self._others[number % wanted].submit(call))

    def close(self) -> None:
        """End the threads."""
        for other in self._others:
            other.end()
        for other in self._others:
            other.join(_END_S)
        self._others.clear()
