"""The worker of ``memtui bench``, started once for several sweeps: importing torch takes longer than measuring does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memtui.bench import sweep
from memtui.bench.configuration import Configuration
from memtui.bench.messages import Done, Failed, Reply
from memtui.bench.plan import BenchPlan
from memtui.bench.worker_client import WorkerProcess

_idle: dict[tuple[str, int], list[WorkerProcess]] = {}


class SharedWorker(WorkerProcess):
    """A worker that is kept for the next sweep when one is done with it, unless it has ended or still measures."""

    def __init__(self, device: str, threads: int) -> None:
        idle = _idle.setdefault((device, threads), [])
        while idle:
            vars(self).update(vars(idle.pop()))
            if self._process.poll() is None:
                return
        super().__init__(device, threads)
        self._key, self._measures = (device, threads), False

    def measure(self, configuration: Configuration, plan: BenchPlan) -> None:
        self._measures = True
        super().measure(configuration, plan)

    def receive(self, seconds: float) -> Reply | None:
        reply = super().receive(seconds)
        if isinstance(reply, Done | Failed):
            self._measures = False
        return reply

    def close(self) -> None:
        if not hasattr(self, "_key") or self._measures or self._process.poll() is not None:
            super().close()
        else:
            _idle[self._key].append(self)


@pytest.fixture
def shared_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all sweeps of a module use one worker, which is started at the first."""
    monkeypatch.setattr(sweep, "WorkerProcess", SharedWorker)


@pytest.fixture(scope="module", autouse=True)
def no_worker_is_left() -> Iterator[None]:
    yield
    for workers in _idle.values():
        while workers:
            WorkerProcess.close(workers.pop())
