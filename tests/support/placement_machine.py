"""A clock of the test's own, for steps whose times are known."""

from __future__ import annotations

from memtui.placement.torch.clock import Clock

SEED = 3


class ManualClock(Clock):
    """Time stands still, but for waits."""

    def __init__(self) -> None:
        self.ns = 0.0

    def now_ns(self) -> int:
        return round(self.ns)

    def wait(self, ns: float) -> None:
        self.ns += ns

    rest = wait
