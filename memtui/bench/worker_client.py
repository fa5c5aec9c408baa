"""The sweep's side of the worker process."""

from __future__ import annotations

import sys

from memtui.bench.configuration import Configuration
from memtui.bench.messages import MeasureRequest, PowerSettled, Ready, Reply, reply_of
from memtui.bench.plan import BenchPlan
from memtui.core.json_fields import from_json
from memtui.core.processes import JsonLineProcess


class WorkerProcess(JsonLineProcess):
    """One worker on one device.

    Attributes:
        device: description by the worker: versions, name and UUID of the device.
    """

    def __init__(self, device: str, threads: int) -> None:
        """Start the worker and wait until it is ready. Raises WorkerEnded.

        Args:
            device: ``cpu`` or ``cuda:N``.
            threads: threads of the worker; 0: one less than the number of CPUs.
        """
        argv = ["-P", "-m", "memtui.bench.torch.worker", "--device", device, "--threads", str(threads)]
        super().__init__([sys.executable, *argv])
        self.device = from_json(Ready, self.ready)

    def measure(self, configuration: Configuration, plan: BenchPlan) -> None:
        """Request a measurement; ``receive`` returns its result. Raises WorkerEnded."""
        self.send_message(MeasureRequest(configuration.text, plan))

    def settled(self) -> None:
        """Notify the worker that the power has settled. Raises WorkerEnded."""
        self.send_message(PowerSettled())

    def receive(self, seconds: float) -> Reply | None:
        """Return the next answer; None when none came within ``seconds``. Raises WorkerEnded."""
        document = self.receive_message(seconds)
        return None if document is None else reply_of(document)
