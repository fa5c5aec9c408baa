"""When the sampler samples: at the interval that was asked for, or at what a budget makes of it."""

from __future__ import annotations

import time

from memtui.budget import Budget
from memtui.choices import INTERVAL_NS
from memtui.orders import Wishes
from memtui.samples import Options

POWER_EVERY_NS = 500_000_000
POWER_SELDOM_NS = 5_000_000_000  # within a budget, where windows are far apart: ten readings in each, down to this


class Pace:
    """Of one observation. ``begin`` is called when what costs begins."""

    def __init__(self, options: Options, wishes: Wishes) -> None:
        self._options, self._wishes = options, wishes
        self._budget: Budget | None = None

    def begin(self) -> None:
        """What was spent until now is no cost of watching."""
        if (ppm := self._options.max_overhead_ppm) is not None:
            longest_ns = min(self._options.duration_ns or INTERVAL_NS[1], INTERVAL_NS[1])
            self._budget = Budget(ppm, longest_ns, time.monotonic_ns(), self._cpu_ns())

    @property
    def has_budget(self) -> bool:
        return self._budget is not None

    @property
    def budgeted_ns(self) -> int | None:
        """What the budget makes of the interval that is asked for; None without one."""
        return None if self._budget is None else self._budget.interval_ns(self._wishes.interval_ns)

    @property
    def interval_ns(self) -> int:
        """The next interval."""
        return self.budgeted_ns or self._wishes.interval_ns

    @property
    def power_every_ns(self) -> int:
        """How often power is read: this is what goes on between windows, so it is what a budget cannot stretch."""
        if self._budget is None:
            return POWER_EVERY_NS
        return min(max(POWER_EVERY_NS, self.interval_ns // 10), POWER_SELDOM_NS)

    def note(self, held_ns: int) -> str:
        """A window was read, for which processes were held so long; once a line for the user, when that is too much."""
        if self._budget is None:
            return ""
        self._budget.note(time.monotonic_ns(), held_ns, self._cpu_ns())
        return self._budget.unmet()

    def _cpu_ns(self) -> int:
        """CPU time of sampler and recorder, the latter's as far as it was told."""
        return time.process_time_ns() + self._wishes.recorder_cpu_ns
