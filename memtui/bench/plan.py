"""The plan of a measurement, and a measured window."""

from __future__ import annotations

from dataclasses import dataclass, replace

MS = 1_000_000
BLOCK_NS = 20 * MS  # of load between two readings of the clock: a call may be shorter than a reading takes
CPU_BLOCK_NS = 5 * MS  # short, because neighbours come and go: some blocks are undisturbed
CALIBRATION_NS = 100 * MS
FIRST_CALLS = 10  # that do not count: libraries choose their algorithms, memory is mapped
FIRST_NS = 2000 * MS  # no further first calls after this time
# Bursts of calls, which show whether the host starts them fast enough: the end of the last one must not weigh.
BURST_NS, LONG_BURST_NS = 1.5 * MS, 20 * MS
FEW_IN_BURST, MOST_IN_BURST, BURSTS = 30, 200, 5
SETTLING_NS = 500 * MS  # the default length of a span of the warm-up
SPAN_PARTS = 4  # times the quiet blocks of a median make a span on a CPU: fewer blocks would differ by chance
SETTLED = 0.03  # largest difference between the times of three spans, for a device without a power sensor
SETTLED_POWER = 0.01  # largest difference between their mean powers, with a sensor


@dataclass(frozen=True)
class BenchPlan:
    """Length and number of the windows of a measurement.

    Attributes:
        windows: number of windows, measured one after another under the same load, in each visit a part of them.
        seconds: length of a window.
        warm_up_s: longest warm-up; if the load has not settled by then, the row is flagged.
        tail_ns: time for which the load goes on after a window: until an energy counter has made its next step.
        phase_ns: longest random pause between two windows, so that windows do not keep step with a sensor.
        power: the sweep reports when the power has settled.
        seed: of random numbers.
        patience: factor on the number of windows, where too few of their blocks on a CPU are quiet, or vary.
        visits: number of visits to a configuration, others in between: a shared machine drifts over minutes.
        medians: number of medians in the interval of the time; 0: as many as windows.
        settling_ns: length of each span of the warm-up, three of which have to be alike.
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
        """Number of parts of the quiet blocks, each of which gives a median."""
        return self.medians or self.windows

    def of_visit(self, number: int) -> BenchPlan:
        """Return the plan of one visit, from 0."""
        share = self.windows // self.visits + (number < self.windows % self.visits)
        return replace(self, windows=share, visits=1, medians=self.parts)


@dataclass(frozen=True)
class BenchWindow:
    """A measured stretch of load.

    Attributes:
        start_ns: monotonic start.
        end_ns: end of the last call in the window.
        calls: number of calls in the window.
        block_ns: mean duration of a call in each block; a block is the calls between two readings of the clock.
        yard_ns: time of the yardstick around each block, the longer of two readings; empty without a yardstick.
        busy_ns: duration by the device's own clock, where it has one.
        cpu_ns: CPU time of the worker.
        load_ns: time in calls, where other work was done between them.
    """

    start_ns: int
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
        return self.end_ns - self.start_ns if self.load_ns is None else self.load_ns

    @property
    def call_ns(self) -> float:
        """Mean duration of a call."""
        return self.wall_ns / self.calls
