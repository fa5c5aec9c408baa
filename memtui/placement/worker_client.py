"""The process that measures, seen from the one who asks it; without torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memtui.core.errors import BAD_INPUT, FAILURE, UserError
from memtui.core.processes import JsonLineProcess, WorkerEnded
from memtui.placement.graph import Configuration, Graph
from memtui.placement.plan import PlacementPlan

BUSY = "the CPU is being measured by {who}: wait for its end"
_LISTEN_S = 0.5
_STARTING_S = 600.0  # an emulated machine takes minutes to import PyTorch
_SILENT_S = 600.0  # beyond what was asked for: it hangs
_USERS = ("NoStep", "NoMemory", "UserError")  # what somebody else than memtui can put right


class PlacementProcess(JsonLineProcess):
    """One process, with one captured step. All it does raises UserError when it cannot, or when the process is gone."""

    def __init__(self, threads: int) -> None:
        """Start it and wait until it is ready.

        Args:
            threads: of its ops; 0: one less than there are CPUs.
        """
        try:
            words = [sys.executable, "-P", "-m", "memtui.placement.torch.worker", "--threads", str(threads)]
            super().__init__(words, _STARTING_S)
        except WorkerEnded as error:
            hint = "; pip install 'memtui[place]'" if "No module named" in str(error) else ""
            raise UserError(f"nothing can be measured: {error}{hint}", FAILURE) from None
        self.tick: Callable[[], object] = lambda: None

    def capture(self, model: str, batch: int, seed: int) -> dict[str, Any]:
        """``graph``, its ``fingerprint``, and names of ops whose results are ``copied`` to their place."""
        found = self._ask("capture", model=model, batch=batch, seed=seed)
        return found | {"graph": Graph.from_plain(found["graph"])}

    def pools(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Make pools for the captured step, the fast one first; name, emulated and note of each."""
        return list(self._ask("pools", names=list(names))["pools"])

    def bandwidths(self) -> list[dict[str, float | None]]:
        """Of each pool, as ``bandwidth.Bandwidth`` has them."""
        return list(self._ask("bandwidths")["bandwidths"])

    def isolated(self, op: str, configurations: Sequence[Configuration], seconds: float) -> list[list[float]]:
        """Return the times in ns of an op by itself, for each configuration."""
        plain = [configuration.to_plain() for configuration in configurations]
        return list(self._ask("isolated", op=op, configurations=plain, seconds=seconds)["times_ns"])

    def in_graph(self, placements: Sequence[Mapping[str, str]], seconds: float) -> list[list[list[float]]]:
        """Return the times in ns in runs of the step: for each placement, for each run, for each op."""
        return list(self._ask("in_graph", placements=[dict(p) for p in placements], seconds=seconds)["runs_ns"])

    def run(self, plans: Sequence[PlacementPlan], repeats: int) -> dict[str, Any]:
        """Execute plans, as ``execution.execute`` tells it."""
        return self._ask("run", plans=[plan.to_plain() for plan in plans], repeats=repeats)

    def _ask(self, what: str, **more: Any) -> dict[str, Any]:
        try:
            self.say({"do": what, **more})
            begin = time.monotonic()
            while (found := self.hear(_LISTEN_S)) is None:
                self.tick()
                if time.monotonic() - begin > _SILENT_S:
                    raise WorkerEnded(f"it said nothing for {_SILENT_S:.0f} s")
        except WorkerEnded as error:
            raise UserError(f"what measures is gone: {error}", FAILURE) from None
        if found.pop("at") == "failed":
            raise UserError(str(found["text"]), BAD_INPUT if found["kind"] in _USERS else FAILURE)
        return found
