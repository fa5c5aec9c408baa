"""When a window is cut into parts, each a third of what is left of it (a burst, ``memtui.analysis.reuse_burst``). Pure.

Each part costs about as much as a window. All bursts together take at most a quarter of what a budget allows, so there
are none without a budget: who asks for windows at any price gets just these.
"""

from __future__ import annotations

from math import log

PROBE_NS = 10_000_000  # the last part
PART = 3  # of what is left, other parts are a third
SHORTEST_NS = 16 * PROBE_NS  # of a window that is cut
OF_BUDGET = 0.25
MOST_FAILED = 10
FIRST_WINDOWS = 3  # are whole: they show what a window costs


class BurstSchedule:
    """The cuts of the window in progress.

    Attributes:
        cut_ns: when the next part ends; None: none does before the window.
        end_ns: when the window ends at the earliest, so that the probe is whole; 0: at any time.
    """

    def __init__(self) -> None:
        self.cut_ns: int | None = None
        self.end_ns = 0
        self._windows = 0
        self._since_ns: int | None = None  # when the last burst ended, or the first window began
        self._cost_ns: int | None = None  # what the last burst cost beside a window; None: there was none
        self._failed = 0  # bursts without a probe, since one with some
        self._is_burst = self._is_last = False

    def start(
        self, now_ns: int, due_ns: int, cost_ns: int, typical_ns: int, share: float | None, *, probes: int = 1
    ) -> None:
        """Begin the next window.

        Args:
            now_ns: this moment.
            due_ns: when the window is to end.
            cost_ns: what the window before cost.
            typical_ns: what a window costs.
            share: of the time that watching may cost; None: there is no budget.
            probes: what the window before gave, if it was cut. After a burst without any (a process that is read while
                it runs has none) the next one waits twice as long, and so on.
        """
        if self._is_burst:
            self._failed = 0 if probes else min(self._failed + 1, MOST_FAILED)
            self._since_ns, self._cost_ns = now_ns, max(cost_ns - typical_ns, 0) << self._failed
        elif self._since_ns is None:
            self._since_ns = now_ns
        self.cancel()
        self._windows += 1
        if share is None or self._windows < FIRST_WINDOWS or due_ns - now_ns < SHORTEST_NS:
            return
        parts = round(log((due_ns - now_ns) / PROBE_NS, PART / (PART - 1)))
        cost_ns = parts * typical_ns if self._cost_ns is None else self._cost_ns
        if now_ns - self._since_ns >= cost_ns / (OF_BUDGET * share):
            self._is_burst, self.cut_ns = True, now_ns + (due_ns - now_ns) // PART

    def cancel(self) -> None:
        """Cut no further."""
        self.cut_ns, self.end_ns, self._is_burst, self._is_last = None, 0, False, False

    def cut(self, now_ns: int, due_ns: int) -> None:
        """Plan on after a cut."""
        left_ns = due_ns - now_ns
        if self._is_last:
            self.cut_ns, self.end_ns = None, now_ns + PROBE_NS
        elif left_ns >= 4 * PROBE_NS:
            self.cut_ns = now_ns + left_ns // PART
        else:
            self._is_last, self.cut_ns = True, now_ns + max(left_ns - PROBE_NS, PROBE_NS)
