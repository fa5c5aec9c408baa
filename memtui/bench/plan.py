"""How a configuration is measured, and the words between the sweep and the worker."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

MS = 1_000_000
BLOCK_NS = 20 * MS  # of load between two looks at the clock: a call may be shorter than it takes to look
CPU_BLOCK_NS = 5 * MS  # short, because neighbours come and go: some blocks lie between them
CALIBRATION_NS = 100 * MS
FIRST_CALLS = 10  # before anything counts: libraries choose their algorithms, memory is mapped
FIRST_NS = 2000 * MS  # no more of them then, however few they were
SETTLING_NS = 500 * MS  # a span of the warm-up, where nothing else is said
SPAN_PARTS = 4  # times the quiet blocks of a median make such a span on a CPU: few of them are not alike by chance
SETTLED = 0.03  # how far the times of those three may be apart, of a device without a power sensor
SETTLED_POWER = 0.01  # and their mean powers, with one


@dataclass(frozen=True)
class BenchPlan:
    """How long and how often.

    Attributes:
        windows: measured one after another under the same load, in each visit a part of them.
        seconds: each.
        warm_up_s: at most so long until the load has settled; then the row says that it has not.
        tail_ns: the load goes on for so long after a window: until an energy counter has made its next step.
        phase_ns: up to so long, by chance, is between two windows: they must not keep step with a sensor.
        power: the one who asks says when the power has settled.
        seed: of random numbers.
        patience: up to so many times the windows, where too few of their blocks on a CPU are quiet, or vary.
        visits: so often a configuration is measured, others in between: a shared machine drifts over minutes.
        medians: that make the interval of the time; 0: as many as windows.
        settling_ns: of load in each span of the warm-up, three of which have to be alike.
    """

    windows: int = 5
    seconds: float = 2.0
    warm_up_s: float = 10.0
    tail_ns: int = 0
    phase_ns: int = 20 * MS
    power: bool = False
    seed: int = 0
    patience: int = 1
    visits: int = 1
    medians: int = 0
    settling_ns: int = SETTLING_NS

    @property
    def most_windows(self) -> int:
        return self.patience * self.windows

    @property
    def parts(self) -> int:
        """Of the quiet blocks, each of which gives a median."""
        return self.medians or self.windows

    def of_visit(self, number: int) -> BenchPlan:
        """Return what is done in one of the visits, from 0."""
        share = self.windows // self.visits + (number < self.windows % self.visits)
        return replace(self, windows=share, visits=1, medians=self.parts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class BenchWindow:
    """A stretch of load that was measured.

    Attributes:
        begin_ns: monotonic.
        end_ns: of the last call in it.
        calls: in it.
        block_ns: duration of a call, of each block of calls that one look at the clock lies between.
        yard_ns: what the yardstick took beside each block, the longer of two readings; empty without one.
        busy_ns: time the device itself worked, where it has a clock of its own.
        cpu_ns: CPU time of the worker.
        load_ns: time in calls, where something else was done between them.
    """

    begin_ns: int
    end_ns: int
    calls: int
    block_ns: tuple[float, ...]
    busy_ns: float | None = None
    cpu_ns: int = 0
    yard_ns: tuple[float, ...] = ()
    load_ns: int | None = None

    @property
    def wall_ns(self) -> int:
        """Time in calls."""
        return self.end_ns - self.begin_ns if self.load_ns is None else self.load_ns

    @property
    def call_ns(self) -> float:
        """Mean duration of a call."""
        return self.wall_ns / self.calls

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> BenchWindow:
        return cls(**{**plain, "block_ns": tuple(plain["block_ns"]), "yard_ns": tuple(plain["yard_ns"])})
