"""Client of the process that measures; does not import torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from memtui.core.errors import BAD_INPUT, FAILURE, UserError
from memtui.core.json_fields import from_json, from_json_union
from memtui.core.processes import JsonLineProcess, WorkerEnded
from memtui.placement.graph import Configuration
from memtui.placement.plan import PlacementPlan
from memtui.placement.worker_protocol import (
    Bandwidth,
    CapturedStep,
    CaptureStep,
    CreatedPool,
    CreatedPools,
    CreatePools,
    ExecutedPlan,
    ExecutedPlans,
    ExecutePlans,
    Failed,
    InGraphTimes,
    IsolatedTimes,
    MeasureBandwidths,
    MeasuredBandwidths,
    Ready,
    Request,
    TimeInGraph,
    TimeIsolated,
)

BUSY = "the CPU is being measured by {who}: wait for its end"
_LISTEN_S = 0.5
_STARTING_S = 600.0  # an emulated machine takes minutes to import PyTorch
_SILENT_S = 600.0  # without an answer: the process hangs
_USERS = ("NoStep", "NoMemory", "UserError")  # faults that the user can mend

T = TypeVar("T")


class PlacementProcess(JsonLineProcess):
    """One process with one captured step. A request raises UserError when it fails, or when the process has ended.

    Attributes:
        started: the process's message that it is ready.
        tick: function that is called while an answer is awaited.
    """

    def __init__(self, threads: int) -> None:
        """Start the process and wait until it is ready.

        Args:
            threads: number of threads of an op; 0: one less than there are CPUs.
        """
        try:
            argv = [sys.executable, "-P", "-m", "memtui.placement.torch.worker", "--threads", str(threads)]
            super().__init__(argv, _STARTING_S)
        except WorkerEnded as error:
            hint = "; pip install 'memtui[place]'" if "No module named" in str(error) else ""
            raise UserError(f"nothing can be measured: {error}{hint}", FAILURE) from None
        self.started = from_json(Ready, self.ready)
        self.tick: Callable[[], object] = lambda: None

    def capture(self, model: str, batch: int, seed: int) -> CapturedStep:
        """Capture a training step of a model."""
        return self._request(CaptureStep(model, batch, seed), CapturedStep)

    def pools(self, names: Sequence[str]) -> tuple[CreatedPool, ...]:
        """Make pools for the captured step, the fast one first."""
        return self._request(CreatePools(tuple(names)), CreatedPools).pools

    def bandwidths(self) -> tuple[Bandwidth, ...]:
        """Measure the bandwidths of each pool."""
        return self._request(MeasureBandwidths(), MeasuredBandwidths).bandwidths

    def isolated(self, op: str, configurations: Sequence[Configuration], seconds: float) -> list[list[float]]:
        """Return the times in ns of an op by itself, for each configuration."""
        return self._request(TimeIsolated(op, tuple(configurations), seconds), IsolatedTimes).times_ns

    def in_graph(self, placements: Sequence[Mapping[str, str]], seconds: float) -> list[list[list[float]]]:
        """Return the times in ns in runs of the step: for each placement, for each run, for each op."""
        return self._request(TimeInGraph(tuple(placements), seconds), InGraphTimes).runs_ns

    def run(self, plans: Sequence[PlacementPlan], repeats: int) -> tuple[ExecutedPlan, ...]:
        """Execute plans in turns."""
        return self._request(ExecutePlans(tuple(plans), repeats), ExecutedPlans).plans

    def _request(self, request: Request, kind: type[T]) -> T:
        """Send a request and return its answer, which is of a kind."""
        try:
            self.send_message(request)
            start_s = time.monotonic()
            while (message := self.receive_message(_LISTEN_S)) is None:
                self.tick()
                if time.monotonic() - start_s > _SILENT_S:
                    raise WorkerEnded(f"it said nothing for {_SILENT_S:.0f} s")
        except WorkerEnded as error:
            raise UserError(f"what measures is gone: {error}", FAILURE) from None
        kinds: tuple[type[T | Failed], ...] = (kind, Failed)
        answer = from_json_union(kinds, message)
        if isinstance(answer, Failed):
            raise UserError(answer.text, BAD_INPUT if answer.kind in _USERS else FAILURE)
        return answer
