"""The result of the windows of one configuration: time, energy, and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.energy import Energy, agreement, from_counter, from_power
from memtui.analysis.robust_mean import Averages, averages, mean_interval
from memtui.bench.configuration import Configuration
from memtui.bench.plan import BenchPlan, BenchWindow
from memtui.bench.undisturbed_blocks import UndisturbedBlocks, counted

SPREAD = 0.25  # interquartile range by median: more is a noisy row (torch.utils.benchmark warns there, too)
LAUNCH_BOUND = 0.95  # of the time of a burst the host queues calls: it cannot launch them fast enough
STOLEN = 0.02  # of the CPU time, by other guests of the machine
OFF_SPEED = 0.05  # from the reference speed, where the effect on the time is not known
FAR_OFF = 0.3  # no clock varies that much: the reference was measured while another program used the core
DISTURBED = "disturbed"  # the flag of a row with too few quiet windows
MEASURED, INTEGRATED, UNAVAILABLE = "measured", "integrated", "unavailable"
DeviceState = Mapping[str, Any]  # as ``EnergySource.state`` returns it; kept as JSON


@dataclass(frozen=True)
class Series:
    """Readings of one energy source during a configuration.

    Attributes:
        t_ns: i8[n], monotonic, rising.
        energy_j: f8[n], counter; nan where the counter has no reading.
        power_w: f8[n], sensor; nan where the sensor has no reading.
        source: kind of the readings, such as ``rapl``.
        scope: scope of the readings, such as ``cpu_package``.
        reason: why there are no readings.
        limit_w: power limit that the device enforces on itself.
        idle_w: power drawn before the sweep.
    """

    t_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    energy_j: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    power_w: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    source: str = ""
    scope: str = ""
    reason: str = ""
    limit_w: float | None = None
    idle_w: float | None = None


@dataclass(frozen=True)
class Conditions:
    """Conditions around the windows.

    Attributes:
        settled: whether the load had settled after the warm-up.
        stolen: share of the CPU time that other guests of the machine took.
        flags: further flags.
        states: states of the device, one for each window.
        yard_limit_ns: longest time of the yardstick at the CPU's full speed; None without a yardstick.
        reference_ns: time of the yardstick at the reference speed of this CPU.
        launch_share: part of the time of a burst of calls in which a GPU's host queued them; None on a CPU.
    """

    settled: bool = True
    stolen: float = 0.0
    flags: tuple[str, ...] = ()
    states: tuple[DeviceState, ...] = ()
    yard_limit_ns: float | None = None
    reference_ns: float | None = None
    launch_share: float | None = None


@dataclass(frozen=True)
class Visit:
    """Result of one visit to a configuration.

    Attributes:
        windows: at least one.
        series: readings of the energy source meanwhile.
        conditions: conditions around the windows.
        walked_bytes: size of all inputs, until the first is used again.
        copies: number of sets of weights.
    """

    windows: tuple[BenchWindow, ...]
    series: Series
    conditions: Conditions
    walked_bytes: int | None = None
    copies: int | None = None


def joined(visits: Sequence[Visit]) -> Visit:
    """Join visits to one configuration, in the order of time. The CPU's full speed is that of the best visit."""
    last = visits[-1]
    if len(visits) == 1:
        return last
    each = [visit.series for visit in visits]
    conditions = [visit.conditions for visit in visits]
    return replace(
        last,
        windows=tuple(window for visit in visits for window in visit.windows),
        series=replace(
            last.series,
            t_ns=np.concatenate([s.t_ns for s in each]),
            energy_j=np.concatenate([s.energy_j for s in each]),
            power_w=np.concatenate([s.power_w for s in each]),
        ),
        conditions=Conditions(
            all(c.settled for c in conditions),
            max(c.stolen for c in conditions),
            tuple(dict.fromkeys(flag for c in conditions for flag in c.flags)),
            tuple(state for c in conditions for state in c.states),
            min((c.yard_limit_ns for c in conditions if c.yard_limit_ns is not None), default=None),
            last.conditions.reference_ns,
            max((c.launch_share for c in conditions if c.launch_share is not None), default=None),
        ),
    )


@dataclass(frozen=True)
class WindowEnergy:
    """Energy in one window, by the counter and by the sensor's integral."""

    counter: Energy
    integral: Energy


@dataclass(frozen=True)
class BenchRow:
    """One configuration, measured or failed. Names and units are those of the table ``measurement``."""

    configuration: Configuration
    plan: BenchPlan
    status: str = "ok"
    reason: str = ""
    call_ns: float | None = None
    iqr_ns: float | None = None
    mean_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    energy_status: str = UNAVAILABLE
    energy_reason: str = ""
    energy_source: str = ""
    energy_scope: str = ""
    energy_j: float | None = None
    energy_low_j: float | None = None
    energy_high_j: float | None = None
    above_idle_j: float | None = None
    power_w: float | None = None
    power_3s_w: float | None = None
    power_median_w: float | None = None
    power_verdict: str = ""
    estimate_j: float | None = None
    estimate_model: str = ""
    walked_bytes: int | None = None
    copies: int | None = None
    quiet: float | None = None
    yard_limit_ns: float | None = None
    measured_ns: float | None = None
    speed: float | None = None
    follows: float | None = None
    reference_ns: float | None = None
    flags: tuple[str, ...] = ()
    reference: bool = False
    windows: tuple[BenchWindow, ...] = ()
    energies: tuple[WindowEnergy, ...] = ()
    states: tuple[DeviceState, ...] = ()

    @property
    def median_ns(self) -> float | None:
        """Median over all blocks, disturbed ones included."""
        return float(np.median(np.concatenate([w.block_ns for w in self.windows]))) if self.windows else None

    @property
    def tflops(self) -> float | None:
        """10^12 operations a second."""
        return self.configuration.flops / self.call_ns / 1e3 if self.call_ns else None

    @property
    def gb_per_s(self) -> float | None:
        """10^9 bytes a second, by the least bytes that have to be moved."""
        moved = self.configuration.moved_bytes
        return moved / self.call_ns if self.call_ns and moved is not None else None

    @property
    def half_width(self) -> float | None:
        """Half of the 95 % interval of the time, by the time."""
        if self.call_ns is None or self.low_ns is None or self.high_ns is None:
            return None
        return (self.high_ns - self.low_ns) / 2 / self.call_ns

    def columns(self) -> dict[str, Any]:
        """Return values by column of ``measurement`` that storing and printing share."""
        apart = ("configuration", "plan", "flags", "reference", "windows", "energies", "states")
        return {
            "windows": self.plan.windows,
            "seconds": self.plan.seconds,
            "flops": self.configuration.flops,
            "moved_bytes": self.configuration.moved_bytes,
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart},
        }


def failed(configuration: Configuration, plan: BenchPlan, why: str, text: str) -> BenchRow:
    """Return the row of a failed configuration, with the reason."""
    flag = why.replace(" ", "_")
    return BenchRow(configuration, plan, "failed", f"{why}: {text}" if text else why, energy_reason=why, flags=(flag,))


def evaluate(
    configuration: Configuration,
    plan: BenchPlan,
    visit: Visit,
    *,
    assumed_w: float | None = None,
) -> BenchRow:
    """Return the row of a measured configuration.

    Args:
        configuration: the measured configuration.
        plan: its plan.
        visit: the result of the visit; of several visits, ``joined``.
        assumed_w: the user's own figure for an estimate; it affects no other column.
    """
    windows, series, conditions = visit.windows, visit.series, visit.conditions
    blocks = counted(windows, plan.parts, conditions.yard_limit_ns, conditions.reference_ns)
    low, median, high = np.percentile(np.concatenate(blocks.parts), (25, 50, 75)).tolist()
    interval = blocks.interval
    energies = tuple(_energy(w, series) for w in windows)
    energy = _call_energy(windows, energies, series)
    sensor = _sensor(windows, series)
    flags = (
        *conditions.flags,
        *_time_flags(windows, conditions, (high - low) / median, blocks),
        *_energy_flags(energies, sensor),
    )
    return BenchRow(
        configuration,
        plan,
        call_ns=median,
        iqr_ns=high - low,
        mean_ns=float(np.mean([w.call_ns for w in windows])),
        low_ns=interval[1] if interval else None,
        high_ns=interval[2] if interval else None,
        energy_source=series.source,
        energy_scope=series.scope,
        power_3s_w=sensor.mean_3s if sensor else None,
        power_median_w=sensor.median if sensor else None,
        power_verdict=sensor.verdict if sensor else "",
        estimate_j=None if assumed_w is None else assumed_w * median / 1e9,
        estimate_model="" if assumed_w is None else f"assumed {assumed_w:g} W x time",
        walked_bytes=visit.walked_bytes,
        copies=visit.copies,
        quiet=blocks.quiet,
        yard_limit_ns=conditions.yard_limit_ns,
        measured_ns=median if blocks.measured_ns is None else blocks.measured_ns,
        speed=blocks.speed,
        follows=blocks.follows,
        reference_ns=conditions.reference_ns,
        flags=tuple(dict.fromkeys(flags)),
        windows=windows,
        energies=energies,
        states=conditions.states,
        energy_status=energy.status,
        energy_reason=energy.reason,
        energy_j=energy.mean_j,
        energy_low_j=energy.low_j,
        energy_high_j=energy.high_j,
        above_idle_j=energy.above_idle_j,
        power_w=energy.power_w,
    )


def _energy(window: BenchWindow, series: Series) -> WindowEnergy:
    if not len(series.t_ns):
        no_energy = Energy(window.start_ns, window.end_ns, None, series.reason)
        return WindowEnergy(no_energy, no_energy)
    span = window.start_ns, window.end_ns, series.limit_w
    return WindowEnergy(
        from_counter(series.t_ns, series.energy_j, *span), from_power(series.t_ns, series.power_w, *span)
    )


@dataclass(frozen=True)
class _CallEnergy:
    """Energy and power of a call, with the status and reason of ``BenchRow``; low and high are of the 95 % interval."""

    status: str = UNAVAILABLE
    reason: str = ""
    mean_j: float | None = None
    low_j: float | None = None
    high_j: float | None = None
    above_idle_j: float | None = None
    power_w: float | None = None


def _call_energy(windows: Sequence[BenchWindow], energies: Sequence[WindowEnergy], series: Series) -> _CallEnergy:
    """Return the energy by the counter where that works in every window, and by the sensor otherwise."""
    reason = ""
    for status, some in ((MEASURED, [e.counter for e in energies]), (INTEGRATED, [e.integral for e in energies])):
        watts = [e.power_w for e in some if e.power_w is not None]
        if len(watts) < len(some):
            reason = reason or next(e.reason for e in some if e.power_w is None)
            continue
        pairs = list(zip(watts, windows, strict=True))
        joules = [w * window.call_ns / 1e9 for w, window in pairs]
        above_idle_j = None
        if series.idle_w is not None:
            above_idle_j = float(np.mean([(w - series.idle_w) * window.call_ns / 1e9 for w, window in pairs]))
        interval = mean_interval(joules)
        low_j, high_j = (interval[1], interval[2]) if interval else (None, None)
        power_w = float(np.mean(watts))
        return _CallEnergy(status, reason, float(np.mean(joules)), low_j, high_j, above_idle_j, power_w)
    return _CallEnergy(reason=reason)


def _sensor(windows: Sequence[BenchWindow], series: Series) -> Averages | None:
    """Return the averages of the sensor's readings in all windows; None without readings."""
    inside = np.zeros(len(series.t_ns), bool)
    for window in windows:
        inside |= (series.t_ns >= window.start_ns) & (series.t_ns <= window.end_ns)
    return averages(series.power_w[inside])


def _energy_flags(energies: Sequence[WindowEnergy], sensor: Averages | None) -> list[str]:
    flags = []
    if sensor is not None and sensor.verdict in ("drift", "two levels", "outliers"):
        flags.append(f"power_{sensor.verdict.replace(' ', '_')}")
    verdicts = {a.verdict for e in energies if (a := agreement(e.counter, e.integral)) is not None}
    if "sensor_disagreement" in verdicts:
        flags.append("sensor_disagreement")
    return flags


def _time_flags(
    windows: Sequence[BenchWindow],
    conditions: Conditions,
    spread: float,
    blocks: UndisturbedBlocks,
) -> list[str]:
    flags = []
    if blocks.disturbed:
        flags.append(DISTURBED)
    if not conditions.settled:
        flags.append("not_settled")
    if spread > SPREAD:
        flags.append("noisy")
    if blocks.wide:
        flags.append("wide_interval")
    if blocks.speed is not None and abs(blocks.speed - 1) > (OFF_SPEED if blocks.follows is None else FAR_OFF):
        flags.append("off_speed")
    if conditions.launch_share is not None and conditions.launch_share > LAUNCH_BOUND:
        flags.append("launch_bound")
    if conditions.stolen > STOLEN and (blocks.quiet is None or blocks.disturbed):
        flags.append("stolen_time")
    return flags
