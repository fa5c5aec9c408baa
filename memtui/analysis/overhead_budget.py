"""The interval at which the cost of sampling stays below a share of the time. Pure: the sampler reports every window.

The time that the target loses (``memtui.recording.sampler.slowdown_estimate``) stays below the share, and the CPU time
of sampler and recorder below ``OWN_CPU`` times the share of a CPU (``memtui.analysis.target_loss``). The expected cost
of the next window is the upper median of the last few windows, so a single expensive window changes nothing; the first
window is not an example, because it includes the costs of starting. Time spent above the share is a debt, and a part of
the debt is added to the next interval: the interval rises at once with the cost, the sum since the start comes back
below the share, and the interval falls again over several windows. Time that was not spent is not saved up: a rest is
not a reason for a burst.
"""

from __future__ import annotations

import math
from collections import deque

from memtui.analysis.target_loss import OWN_CPU, budget_cost
from memtui.core.units import duration

MILLION, PER_CENT_PPM = 1_000_000, 10_000
_SET, _NO_BUDGET, _FROM_HERE = "the budget is ", "none", " from here on"
RECENT = 5  # windows whose cost is an example for the next
REPAID = 0.25  # part of the debt that the next interval pays
AIM = 0.9  # of the share is what intervals are set for: costs vary, and a program is not to lose more meanwhile
SELDOM_NS = 60_000_000_000  # windows further apart are not a live picture: the user is asked what to do
# The second window comes within this time, or within this multiple of the first window's cost.
PROBE_NS, PROBE_COSTS = 5_000_000_000, 20


class Budget:
    """A share of the time, in parts per million, and the interval that keeps it."""

    def __init__(self, ppm: int, longest_ns: int, now_ns: int, cpu_ns: int) -> None:
        """Set the bound of the interval, and the CPU time used until ``now_ns``, which is not a cost."""
        self._share, self._longest_ns = ppm / MILLION, longest_ns
        self._now_ns, self._cpu_ns = now_ns, cpu_ns
        self._costs: deque[tuple[int, bool]] = deque(maxlen=RECENT)  # and whether it is memtui's own CPU time
        self.last_ns = 0  # what the last window cost
        self._debt_ns = 0.0
        self._warned = False
        self._begun = 0  # windows so far

    def record(self, now_ns: int, lost_ns: int, cpu_ns: int, *, parts: int = 1) -> None:
        """Take a window into account.

        Args:
            now_ns: this moment.
            lost_ns: the time that the target lost by the window.
            cpu_ns: all CPU time used until now.
            parts: of the window, each of which costs about as much as a window that is not cut.
        """
        own_ns = cpu_ns - self._cpu_ns
        cost_ns = round(budget_cost(max(lost_ns, 0), own_ns, None))
        earned_ns = self._share * max(now_ns - self._now_ns, 0)
        if self._begun == 1:
            self._costs.clear()
        self._begun += 1
        self._costs.append((cost_ns // parts, cost_ns > lost_ns))
        self.last_ns = cost_ns
        most_ns = self._share * self._longest_ns  # what one interval can pay: the rest is bygone
        self._debt_ns = min(max(self._debt_ns + cost_ns - earned_ns, 0.0), most_ns)
        self._now_ns, self._cpu_ns = now_ns, cpu_ns

    def set_share(self, ppm: int) -> None:
        """Keep another share from here on; the debt of the old share is forgotten."""
        self._share, self._debt_ns, self._warned = ppm / MILLION, 0.0, False

    @property
    def share(self) -> float:
        return self._share

    @property
    def typical_ns(self) -> int:
        """What a window costs, as far as known; 0 before the first one."""
        return self._cost_ns

    @property
    def needed_ns(self) -> int:
        """The interval that keeps the share for good, as far as the costs are known; 0 before the first window."""
        return round(self._cost_ns / self._share)

    def warning(self) -> str:
        """Return a message, once, when a window costs more than the share of a minute, or of the longest interval."""
        if self._warned or self.needed_ns <= min(SELDOM_NS, self._longest_ns):
            return ""
        if self.needed_ns <= SELDOM_NS and self._begun == 1 and self._probe_ns < self._longest_ns:
            return ""  # the second window is the better example, and comes soon
        self._warned = True
        cost_ns, is_own = self._typical
        share, cost, needed = f"{self._share * 100:g} %", duration(cost_ns / 1e9), seconds(self.needed_ns)
        if self.needed_ns > self._longest_ns:
            return (
                f"the budget of {share} cannot be met: a window costs {cost}, for which an interval of {needed} would "
                f"do; the longest there can be is {seconds(self._longest_ns)}"
            )
        what = f"one window costs this program {cost}, so a budget of {share}"
        if is_own:
            own, own_share = duration(OWN_CPU * cost_ns / 1e9), f"{OWN_CPU * self._share * 100:g} %"
            what = f"memtui takes {own} of CPU time for a window, so {own_share} of a CPU (a budget of {share})"
        return (
            f"{what} allows one in {needed}: i or --max-overhead for more and dearer ones, "
            "--pages sampled for a part of the memory at a time"
        )

    def interval_ns(self, requested_ns: int) -> int:
        """Return the next interval: never shorter than the requested interval."""
        wanted_ns = (self._cost_ns + REPAID * self._debt_ns) / (AIM * self._share)
        if self._begun == 1:
            wanted_ns = min(wanted_ns, self._probe_ns)
        return max(requested_ns, min(_rounded_up(wanted_ns), self._longest_ns))

    @property
    def _probe_ns(self) -> int:
        return max(PROBE_NS, PROBE_COSTS * self._cost_ns)

    @property
    def _cost_ns(self) -> int:
        return self._typical[0]

    @property
    def _typical(self) -> tuple[int, bool]:
        return sorted(self._costs)[len(self._costs) // 2] if self._costs else (0, False)


def allowed(ppm: int | None) -> float | None:
    """Return the share of a session's budget; None without a budget, and for an invalid value in a damaged session."""
    return ppm / MILLION if ppm is not None and ppm > 0 else None


def budget_event(ppm: int | None) -> str:
    """Return the text of the event of another budget; None: without one."""
    return f"{_SET}{_NO_BUDGET if ppm is None else f'{ppm / PER_CENT_PPM:g} %'}{_FROM_HERE}"


def budget_of_event(text: str) -> int | None:
    """Undo ``budget_event``: parts per million, 0 for no budget; None: the text is of another event."""
    if not text.startswith(_SET) or not text.endswith(_FROM_HERE):
        return None
    share = text.removeprefix(_SET).removesuffix(_FROM_HERE)
    try:
        return 0 if share == _NO_BUDGET else round(float(share.removesuffix(" %")) * PER_CENT_PPM)
    except (ValueError, OverflowError):  # of another program
        return None


def seconds(interval_ns: float) -> str:
    """Return an interval as ``--interval`` takes it: ``7.5 s``, two digits, rounded up."""
    return f"{_rounded_up(interval_ns) / 1e9:g} s"


def _rounded_up(value: float) -> int:
    """Round up to two digits: an interval that is easy to read, and that stays the same while costs hardly change."""
    whole = max(math.ceil(value), 1)
    step = 10 ** max(len(str(whole)) - 2, 0)
    return -(-whole // step) * step
