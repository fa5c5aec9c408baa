"""When the sampler samples: at the interval that was requested, or at what a budget makes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from memtui.analysis.overhead_budget import Budget
from memtui.core.accessed_bits import SetCost
from memtui.core.options import INTERVAL_NS
from memtui.core.samples import Options, ProcessWindow
from memtui.recording.sampler.commands import SamplerState
from memtui.recording.sampler.slowdown_estimate import Before, Machine, TargetLoss, estimate

POWER_EVERY_NS = 500_000_000
POWER_SELDOM_NS = 1_000_000_000  # where windows are far apart: ten readings in each, down to this


class SampleClock:
    """The clock of one observation. ``start`` is called when what costs begins."""

    def __init__(self, options: Options, state: SamplerState, set_cost: SetCost | None, *, clears: bool) -> None:
        """Begin.

        Args:
            options: of the observation.
            state: what is requested while it runs.
            set_cost: see ``Machine``.
            clears: the tracker clears accessed bits.
        """
        self._options, self._state, self._clears = options, state, clears
        self._machine = Machine(len(os.sched_getaffinity(0)), set_cost)
        self._budget: Budget | None = None
        self._cpu_before_ns = 0
        self._before: dict[int, Before] = {}  # each process at the end of its last window

    def start(self) -> None:
        """Forget what was spent until now: it is not a cost of watching."""
        self._cpu_before_ns = self._cpu_ns()
        self.set_budget(self._options.max_overhead_ppm)

    @property
    def budgeted_ns(self) -> int | None:
        """What the budget makes of the interval that is requested; None without a budget."""
        return None if self._budget is None else self._budget.interval_ns(self._state.interval_ns)

    @property
    def interval_ns(self) -> int:
        """The next interval."""
        return self.budgeted_ns or self._state.interval_ns

    @property
    def power_every_ns(self) -> int:
        """How often power and the memory of the tree are read: between windows, too, which may be a minute long."""
        return min(max(POWER_EVERY_NS, self.interval_ns // 10), POWER_SELDOM_NS)

    @property
    def budget(self) -> Budget | None:
        """The budget as it stands; None without one."""
        return self._budget

    def add_windows(
        self,
        windows: Sequence[ProcessWindow],
        paused_ns: int,
        busy_cpus: float,
        cleared: Sequence[ProcessWindow] | None = None,
        *,
        parts: int = 1,
    ) -> TargetLoss:
        """Add a window of the tree, for which processes were paused for ``paused_ns``; return what the tree lost.

        ``cleared``: all ``parts`` of windows that were cut, in whose place accessed bits were cleared.
        """
        cpu_ns = self._cpu_ns()
        loss = estimate(
            windows if cleared is None else cleared,
            self._before,
            self._machine,
            paused_ns=paused_ns,
            own_cpu_ns=cpu_ns - self._cpu_before_ns - paused_ns,
            busy_cpus=busy_cpus,
            clears=self._clears,
        )
        self._cpu_before_ns = cpu_ns
        self._before = {w.process: Before(w.minor_faults, w.rss_bytes) for w in windows}
        if self._budget is not None:
            self._budget.record(time.monotonic_ns(), loss.measured_ns, cpu_ns, parts=parts)
        return loss

    def warning(self) -> str:
        """Return once, as a line for the user, that the budget and the cost of a window do not fit each other."""
        return "" if self._budget is None else self._budget.warning()

    def set_budget(self, ppm: int | None) -> None:
        """Keep this budget from here on, in parts per million of the time; None: without one."""
        if ppm is None:
            self._budget = None
        elif self._budget is not None:
            self._budget.set_share(ppm)
        else:
            longest_ns = min(self._options.duration_ns or INTERVAL_NS[1], INTERVAL_NS[1])
            self._budget = Budget(ppm, longest_ns, time.monotonic_ns(), self._cpu_ns())

    def _cpu_ns(self) -> int:
        """Return the CPU time of sampler and recorder, of the recorder as far as it was reported."""
        return time.process_time_ns() + self._state.recorder_cpu_ns
