"""The budget of a recording at any moment: the one that it began with, and those that were set while it ran."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple, Protocol

from memtui.analysis.overhead_budget import allowed, budget_of_event
from memtui.core.samples import Event, Hello


class Source(Protocol):
    """What has a budget: a session."""

    @property
    def hello(self) -> Hello: ...
    def events(self, first_ns: int, last_ns: int) -> list[Event]: ...


class RecordingBudget(NamedTuple):
    """A budget: the share of the time, None: without one; and since when it holds."""

    share: float | None
    since_ns: int = 0


class BudgetLog:
    """The budgets of a session, of which a growing one is read on. The methods raise SessionError."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._budgets = [RecordingBudget(allowed(source.hello.options.max_overhead_ppm))]
        self._next_ns = 0  # events before this moment were read

    def at(self, t_ns: int) -> RecordingBudget:
        """Return the budget that holds at a moment (CLOCK_MONOTONIC)."""
        self._read()
        return self._budgets[bisect_right(self._budgets, t_ns, key=lambda budget: budget.since_ns) - 1]

    def all(self) -> list[RecordingBudget]:
        """Return every budget in the order in which they held."""
        self._read()
        return list(self._budgets)

    def mean_share(self, start_ns: int, end_ns: int) -> float | None:
        """Return the share that the budgets allow in a span of time; None where there was none in a part of it."""
        budgets = self.all()
        if len(budgets) == 1:
            return budgets[0].share
        ends_ns = [budget.since_ns for budget in budgets[1:]] + [end_ns]
        allowed_ns = 0.0
        for budget, until_ns in zip(budgets, ends_ns, strict=True):
            length_ns = min(until_ns, end_ns) - max(budget.since_ns, start_ns)
            if length_ns <= 0:
                continue
            if budget.share is None:
                return None
            allowed_ns += budget.share * length_ns
        return allowed_ns / (end_ns - start_ns)

    def _read(self) -> None:
        for event in self._source.events(self._next_ns, 1 << 62):
            self._next_ns = event.t_ns + 1
            if event.kind == "interval" and (changed := budget_of_event(event.text)) is not None:
                self._budgets.append(RecordingBudget(allowed(changed), event.t_ns))
