"""The worker, seen from the one who started it."""

from __future__ import annotations

import sys

from memtui.bench.configuration import Configuration
from memtui.bench.plan import BenchPlan
from memtui.core.processes import JsonLineProcess


class WorkerProcess(JsonLineProcess):
    """One worker on one device; what it says of itself has versions, name and UUID of the device."""

    def __init__(self, device: str, threads: int) -> None:
        """Start it and wait until it is ready. Raises WorkerEnded.

        Args:
            device: ``cpu`` or ``cuda:N``.
            threads: of its own; 0: one less than there are CPUs.
        """
        words = ["-P", "-m", "memtui.bench.worker", "--device", device, "--threads", str(threads)]
        super().__init__([sys.executable, *words])

    def measure(self, configuration: Configuration, plan: BenchPlan) -> None:
        """Ask for a measurement; ``hear`` what becomes of it. Raises WorkerEnded."""
        self.say({"configuration": configuration.text, "plan": plan.to_plain()})

    def settled(self) -> None:
        """Tell it that the power has settled."""
        self.say({"settled": True})
