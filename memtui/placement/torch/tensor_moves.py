"""Moves of tensors: at once, or by another thread while an op runs. Imports torch.

Plans are executed with a ``Mover``, and the times of moves are measured with one: so a profile predicts the cost in
plans.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

import torch

from memtui.placement.torch.clock import Clock


@dataclass(frozen=True, slots=True)
class Copy:
    """One move with its memory; ``wait_ns`` is what emulated memory adds."""

    target: torch.Tensor
    source: torch.Tensor
    wait_ns: float = 0.0


class Mover:
    """Executes moves. The first move during an op starts a thread; ``close`` ends the thread."""

    def __init__(self, clock: Clock, wait_for_device: Callable[[], object]) -> None:
        """``wait_for_device``: function that returns when the device has finished its work."""
        self._clock, self._wait_for_device = clock, wait_for_device
        self._requests: SimpleQueue[Sequence[Copy] | None] = SimpleQueue()
        self._results: SimpleQueue[float | BaseException] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def now(self, copies: Sequence[Copy]) -> float:
        """Move, and return the time of that (ns)."""
        start_ns = self._clock.now_ns()
        for copy in copies:
            _move(copy, self._clock.wait)
        self._wait_for_device()
        return self._clock.now_ns() - start_ns

    def during(self, copies: Sequence[Copy], work: Callable[[], object]) -> tuple[float, float]:
        """Move while other work is done.

        Returns:
            Nanoseconds until both were finished, and until the copies were finished.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="mover", daemon=True)
            self._thread.start()
        start_ns = self._clock.now_ns()
        self._requests.put(copies)
        try:
            work()
        finally:
            result = self._results.get()
        end_ns = self._clock.now_ns()
        if isinstance(result, BaseException):
            raise result
        return end_ns - start_ns, result - start_ns

    @property
    def moving(self) -> bool:
        """Whether copies of ``during`` are still running; for the work that is done meanwhile."""
        return self._results.empty()

    def close(self) -> None:
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (copies := self._requests.get()) is not None:
            try:
                for copy in copies:
                    _move(copy, self._clock.rest)
                self._results.put(self._clock.now_ns())
            except BaseException as error:  # the waiting thread raises it
                self._results.put(error)


def _move(copy: Copy, wait: Callable[[float], None]) -> None:
    copy.target.copy_(copy.source, non_blocking=True)
    if copy.wait_ns:
        wait(copy.wait_ns)
