"""A session as OpenMetrics: the figures of all its windows with their times, for Prometheus to take in.

``promtool tsdb create-blocks-from openmetrics`` makes blocks of a Prometheus server of it. Names and units follow
https://prometheus.io/docs/specs/om/open_metrics_spec: base units, and ``_total`` at counters, which rise from the
start of the session. What was not measured has no sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtui.core.errors import UserError
from memtui.reports.source import ReportSource
from memtui.session.sample_arrays import SampleArrays

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

FILE = "openmetrics.txt"
Point = tuple[tuple[str, ...], int, float]
"""Values of the family's own labels, when it was measured (CLOCK_MONOTONIC), the value."""
Points = Callable[[ReportSource, int], Iterable[Point]]


class Family(NamedTuple):
    """A metric family: its name and unit, whether it is a counter, a sentence about it, its labels and its points.

    ``points``: of a session, those that were measured at or after a time, without an order. ``raw``: the same of a
    counter that may begin anywhere, so that what was before that time has not to be read.
    """

    name: str
    unit: str
    help: str
    points: Points
    labels: tuple[str, ...] = ()
    counter: bool = False
    raw: Points | None = None


def openmetrics(reader: ReportSource) -> Iterator[tuple[str, Callable[[BinaryIO], Any]]]:
    """Yield the one file. Raises UserError where prometheus-client is not installed, or nothing was recorded."""
    if reader.imported() is not None:
        raise UserError(f"{reader.short_title}: was imported, and has no windows; take --to csv")
    registry = _Session(reader)
    try:
        from prometheus_client.openmetrics.exposition import generate_latest
    except ImportError:
        raise UserError(
            "this form needs prometheus-client, which is not installed: pip install 'memtui[metrics]', or take --to csv"
        ) from None
    yield FILE, lambda file: file.write(generate_latest(registry))


class _Session:
    """A session in the shape of a registry of prometheus-client."""

    def __init__(self, reader: ReportSource) -> None:
        self._reader = reader

    def collect(self) -> Iterator[Metric]:
        """Yield each family that has a point."""
        common = {"session": self._reader.short_title, "host": self._reader.hello.host.hostname}
        offset_ns = self._reader.hello.clock.wall_offset_ns
        for family in FAMILIES:
            metric = empty_metric(family, tuple(common))
            # Samples of one series stand together, in the order of time.
            for labels, t_ns, value in sorted(family.points(self._reader, 0), key=lambda point: point[:2]):
                metric.add_metric((*common.values(), *labels), value, timestamp=(t_ns + offset_ns) / 1e9)
            if metric.samples:
                yield metric


def empty_metric(family: Family, labels: tuple[str, ...]) -> CounterMetricFamily | GaugeMetricFamily:
    """Return a metric without samples, with some labels before the family's own."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if family.counter else GaugeMetricFamily
    return kind(f"memtui_{family.name}", family.help, labels=(*labels, *family.labels), unit=family.unit)


def _of_windows(values: Callable[[SampleArrays], NDArray[Any]]) -> Points:
    """Return what yields a value of the whole tree at the end of each window that has it; nan: not measured."""

    def points(reader: ReportSource, since_ns: int) -> Iterator[Point]:
        first = int(reader.samples.end_ns.searchsorted(since_ns))
        ends_ns = reader.samples.end_ns[first:].tolist()
        for end_ns, value in zip(ends_ns, values(reader.samples)[first:].tolist(), strict=True):
            if not math.isnan(value):
                yield (), end_ns, value

    return points


def _column(name: str, scale: float = 1.0) -> Points:
    """Return what yields a scalar of each window."""
    return _of_windows(lambda samples: np.asarray(getattr(samples, name)[:], np.float64) * scale)


def _summed(name: str) -> Points:
    """Return what yields the sum of times in the windows so far, in seconds, at those that have one."""

    def sums(samples: SampleArrays) -> NDArray[Any]:
        values = np.asarray(getattr(samples, name)[:], np.float64)
        return np.where(np.isnan(values), np.nan, np.nancumsum(values)) / 1e9

    return _of_windows(sums)


def _of_limits(field: str) -> Points:
    """Return what yields a figure of the limit of memory that left least."""

    def points(reader: ReportSource, since_ns: int) -> Iterator[Point]:
        for limit in reader.memory_limits(since_ns, 2**62):
            yield (limit.cgroup,), limit.t_ns, getattr(limit, field)

    return points


def _of_power(field: str) -> Points:
    """Return what yields a figure of each source of power."""

    def points(reader: ReportSource, since_ns: int) -> Iterator[Point]:
        for reading in reader.power(since_ns, 2**62):
            value = getattr(reading, field)
            if value is not None:
                yield (reading.device, reading.scope), reading.t_ns, value

    return points


def _energy(reader: ReportSource, since_ns: int) -> Iterator[Point]:
    """Yield the energy of each source since its first reading: the counters of hardware begin anywhere."""
    first: dict[tuple[str, ...], float] = {}
    for labels, t_ns, energy_j in _of_power("energy_j")(reader, 0):
        energy_j -= first.setdefault(labels, energy_j)
        if t_ns >= since_ns:
            yield labels, t_ns, energy_j


def _steps(reader: ReportSource, since_ns: int) -> Iterator[Point]:
    """Yield the number of training steps that each program had ended."""
    for row in reader.training(since_ns):
        for step, end_ns in enumerate(reader.training_progress(row).ends_ns.tolist(), row.first_step):
            if end_ns >= since_ns:
                yield (str(row.pid),), end_ns, step


def _step_seconds(reader: ReportSource, since_ns: int) -> Iterator[Point]:
    """Yield how long each training step took."""
    for row in reader.training(since_ns):
        ends_ns = reader.training_progress(row).ends_ns
        for end_ns, took_ns in zip(ends_ns.tolist(), np.diff(ends_ns, prepend=row.start_ns).tolist(), strict=True):
            if end_ns >= since_ns:
                yield (str(row.pid),), end_ns, took_ns / 1e9


FAMILIES = (
    Family(
        "working_set_bytes",
        "bytes",
        "Memory that all processes touched in a window; a page of several is counted once where that is known.",
        _column("wss_bytes"),
    ),
    Family(
        "resident_bytes",
        "bytes",
        "Sum of the resident memory of all processes: shared pages are counted several times.",
        _column("rss_bytes"),
    ),
    Family(
        "proportional_resident_bytes",
        "bytes",
        "Proportional set size of all processes: a shared page is divided among those that map it.",
        _column("pss_bytes"),
    ),
    Family("processes", "", "Processes at the end of a window.", _column("processes")),
    Family(
        "windows",
        "",
        "Windows so far.",
        _of_windows(lambda samples: np.arange(1, len(samples.sample) + 1)),
        counter=True,
    ),
    Family(
        "window_seconds",
        "seconds",
        "Length of a window.",
        _of_windows(lambda samples: (samples.end_ns[:] - samples.start_ns[:]) / 1e9),
    ),
    Family(
        "paused_seconds",
        "seconds",
        "Time for which processes were paused to be read.",
        _summed("paused_ns"),
        counter=True,
    ),
    Family(
        "lost_seconds", "seconds", "About how much time watching took the processes.", _summed("lost_ns"), counter=True
    ),
    Family(
        "sampler_cpu_seconds",
        "seconds",
        "CPU time of the sampler.",
        _column("sampler_cpu_ns", 1e-9),
        counter=True,
    ),
    Family(
        "recorder_cpu_seconds",
        "seconds",
        "CPU time of the recorder.",
        _column("recorder_cpu_ns", 1e-9),
        counter=True,
    ),
    Family(
        "memory_limit_bytes",
        "bytes",
        "The limit of memory that leaves least; without a cgroup, the memory of the machine.",
        _of_limits("limit_bytes"),
        ("cgroup",),
    ),
    Family("memory_used_bytes", "bytes", "What is in use under that limit.", _of_limits("used_bytes"), ("cgroup",)),
    Family(
        "memory_reclaimable_bytes",
        "bytes",
        "Part of that: page cache, which the kernel takes back before it kills.",
        _of_limits("reclaimable_bytes"),
        ("cgroup",),
    ),
    Family("memory_left_bytes", "bytes", "What is left below that limit.", _of_limits("left_bytes"), ("cgroup",)),
    Family("power_watts", "watts", "Power of a device.", _of_power("power_w"), ("device", "scope")),
    Family(
        "energy_joules",
        "joules",
        "Energy of a device since its first reading.",
        _energy,
        ("device", "scope"),
        counter=True,
        raw=_of_power("energy_j"),
    ),
    Family(
        "gpu_memory_used_bytes",
        "bytes",
        "Memory in use on a GPU, by all programs.",
        _of_power("memory_used_bytes"),
        ("device", "scope"),
    ),
    Family("training_steps", "", "Training steps that ended.", _steps, ("pid",), counter=True),
    Family("training_step_seconds", "seconds", "Length of a training step.", _step_seconds, ("pid",)),
)
