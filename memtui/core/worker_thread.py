"""A thread that does what it is given. It takes some microseconds to ask, where an executor takes dozens."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class WorkerThread:
    """Does one call after the other; a daemon, which a call that never ends keeps from nothing.

    Attributes:
        native_id: the kernel's number of the thread.
    """

    def __init__(self, name: str, first: Callable[[], object] = lambda: None) -> None:
        """``first`` is called in the thread before anything else."""
        self._calls: queue.SimpleQueue[tuple[Callable[[], object], queue.SimpleQueue[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, args=(first,), name=name, daemon=True)
        self._thread.start()
        assert self._thread.native_id is not None
        self.native_id = self._thread.native_id

    def _serve(self, first: Callable[[], object]) -> None:
        first()
        while call := self._calls.get():
            function, answer = call
            try:
                answer.put((function(), None))
            except BaseException as error:
                answer.put((None, error))
            del call, function, answer

    def submit(self, function: Callable[[], object]) -> queue.SimpleQueue[Any]:
        """Have it called; the queue gets (what it returned, what it raised)."""
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calls.put((function, answer))
        return answer

    def end(self) -> None:
        """End after the call in progress."""
        self._calls.put(None)

    def join(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()
