"""A thread that runs submitted calls. Submitting takes some microseconds; with an executor it takes dozens."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class WorkerThread:
    """Runs one call after the other. The thread is a daemon: a call that never ends does not prevent an exit.

    Attributes:
        native_id: the kernel's number of the thread.
    """

    def __init__(self, name: str, first: Callable[[], object] = lambda: None) -> None:
        """``first`` is called first in the thread."""
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
        """Have the thread call a function; the returned queue gets (result, error)."""
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calls.put((function, answer))
        return answer

    def end(self) -> None:
        """End the thread after the submitted calls."""
        self._calls.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()
