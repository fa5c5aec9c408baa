"""The costs of a recording, to the target and of memtui itself: the figures of the header about one window."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memtui.analysis.overhead_budget import seconds
from memtui.analysis.target_loss import OVER, budget_cost, last_part, lost_in_all, recent_loss
from memtui.widgets.views.memory import HeaderView, State

if TYPE_CHECKING:
    from memtui.core.samples import End
    from memtui.session.sample_arrays import SampleArrays

COST_WINDOW_NS = 10_000_000_000  # own cost is averaged over this
COST_WINDOWS = 5  # but no fewer windows than these, where a budget is judged
NOTABLE_WAIT_S = 2.0  # for the next window
PAUSE_WINDOWS = 10  # over which the paused time of the target is judged
PAUSE_SHARE = 0.1  # above this share the recording disturbs the target
OPENING_S = 3.0  # of opening a session, which does not count as a cost
SHORTEST_S = 2.0  # over which the CPU time of the viewer is judged


def pause_warning(samples: SampleArrays, index: int, *, recording: bool) -> tuple[str, ...]:
    """Return a warning about a target that is paused too long, in a long and a short form; empty otherwise."""
    first = max(0, index - PAUSE_WINDOWS)
    wall_ns = float(samples.end_ns[index] - samples.end_ns[first])
    share = float(np.nansum(samples.paused_ns[first + 1 : index + 1])) / wall_ns if wall_ns > 0 else 0.0
    if share <= PAUSE_SHARE:
        return ()
    stopped = f"stopped {share * 100:.0f} %"
    if not recording:
        return f"target {stopped} of the time", stopped
    return (
        f"target {stopped} of the time: a longer interval disturbs less (i)",
        f"{stopped}: raise interval (i)",
    )


def lost_share(samples: SampleArrays, index: int, end: End | None = None) -> float | None:
    """Return the share of its time that the target loses to the recording, over the last windows up to one.

    ``end``: of a session that has ended. At its last window it is the share of all of its time, as in a report.
    """
    if end is not None and index == len(samples) - 1:
        return lost_in_all(samples, last_part(samples, end))
    first = _first_judged(samples, index)
    next_ns = float(samples.next_ns[index])
    if np.isnan(next_ns):
        next_ns = float(samples.asked_ns[index])
    return recent_loss(samples.lost_ns[first : index + 1], samples.end_ns[first : index + 1], next_ns)


def with_budget(view: HeaderView, samples: SampleArrays, index: int, budget: float, since_ns: int = 0) -> HeaderView:
    """Return the view with the interval that a budget (a share of the time) allows, and what is spent of it.

    ``since_ns``: from when on it holds.
    """
    budgeted_s = float(samples.budgeted_ns[index]) / 1e9
    view = replace(view, budget=budget, budgeted_s=budgeted_s if np.isfinite(budgeted_s) else None)
    next_ns = float(samples.next_ns[index])
    if view.state is State.LIVE and next_ns > NOTABLE_WAIT_S * 1e9:  # it has this machine's clock, which goes on
        now_ns = time.monotonic_ns()
        wait_s = (float(samples.end_ns[index]) + next_ns - now_ns) / 1e9
        wait = round(wait_s) if wait_s > NOTABLE_WAIT_S and not view.notice else None
        view = replace(view, wait_s=wait, position_s=(now_ns - view.origin_ns) / 1e9)
    first = max(_first_judged(samples, index), int(np.searchsorted(samples.end_ns, since_ns)))
    if first >= index:
        return view
    cost_ns = _cost_ns(samples, first, index)
    span_ns = float(samples.end_ns[index] - samples.end_ns[first])
    # As in what the header says of the loss, the time until the next window pays for the last one.
    pays_ns = next_ns if view.state is State.LIVE and next_ns > 0 else 0.0
    true_s = float(samples.end_ns[index] - samples.end_ns[index - 1]) / 1e9  # of the window that the budgeted one is of
    view = replace(view, spent=cost_ns / (span_ns + pays_ns), true_s=true_s)
    needed_ns = cost_ns / (index - first) / budget
    if cost_ns <= OVER * budget * span_ns or needed_ns <= OVER * samples.next_ns[index]:
        return view  # the budget is met, or the next interval is long enough to meet it
    meets = seconds(needed_ns)
    long, short = f"over the budget: an interval of {meets} would meet it", f"over budget: needs {meets}"
    return replace(view, warnings=(long, short))


class OwnCost:
    """Cores used by sampler and recorder lately, and by this viewer on a live recording."""

    def __init__(self) -> None:
        self._readings: list[tuple[float, float]] = []  # (time, CPU time of this process), in seconds
        self._from_s = time.monotonic() + OPENING_S

    def cores(self, samples: SampleArrays, index: int, *, live: bool) -> float | None:
        """Return the cores over the last seconds before the end of a window, or over that window where it is longer.

        None in the first window.
        """
        if index < 1:
            return None
        first = min(int(np.searchsorted(samples.end_ns, samples.end_ns[index] - COST_WINDOW_NS)), index - 1)
        wall_ns = float(samples.end_ns[index] - samples.end_ns[first])
        if wall_ns <= 0:
            return None
        cores = recording_cpu_ns(samples, first, index) / wall_ns
        return cores + self._viewer() if live else cores

    def _viewer(self) -> float:
        now = time.monotonic(), time.process_time()
        if now[0] < self._from_s:
            return 0.0
        self._readings = [*(r for r in self._readings if now[0] - r[0] <= COST_WINDOW_NS / 1e9), now]
        elapsed_s = now[0] - self._readings[0][0]
        return (now[1] - self._readings[0][1]) / elapsed_s if elapsed_s > SHORTEST_S else 0.0


def recording_cpu_ns(samples: SampleArrays, first: int, last: int) -> float:
    """Return the CPU time of sampler and recorder between the ends of two windows."""
    return sum(float(cpu[last]) - float(cpu[first]) for cpu in (samples.sampler_cpu_ns, samples.recorder_cpu_ns))


def _cost_ns(samples: SampleArrays, first: int, last: int) -> float:
    """Return the cost that a budget bounds, of the windows after ``first``."""
    lost_ns, paused_ns = samples.lost_ns[first + 1 : last + 1], samples.paused_ns[first + 1 : last + 1]
    lost = None if np.isnan(lost_ns).any() else float(lost_ns.sum())
    return budget_cost(lost, recording_cpu_ns(samples, first, last), float(np.nansum(paused_ns)))


def _first_judged(samples: SampleArrays, index: int) -> int:
    """Return the first of the windows over which a budget is judged."""
    end_ns = samples.end_ns
    return max(0, min(int(np.searchsorted(end_ns, end_ns[index] - COST_WINDOW_NS)), index - COST_WINDOWS))
