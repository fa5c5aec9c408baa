"""Every op of a profile in every configuration, with its times in each way of timing: as rows, and as a table of text.

The notebook of nGraph's profiler prints this table: for each node and configuration, the mean of simultaneous and of
single runs, and the spread of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median, stdev
from typing import Any

from memtui.core.json_fields import to_json
from memtui.core.units import duration_ns, percent
from memtui.placement.configurations import pair_configurations
from memtui.placement.graph import Configuration, Op
from memtui.placement.profile import Profile
from memtui.placement.timing_agreement import Comparison, modes_of

FAR, BELOW = "*", "~"


@dataclass(frozen=True, slots=True)
class ModeTimes:
    """Times of one op in one configuration, in one way of timing.

    Attributes:
        samples: number of them.
        median_ns: their median, on which plans rest.
        mean_ns: their mean, which ways of timing are compared by.
        least_ns: the shortest.
        spread: standard deviation by mean; None for a single sample, or where the mean is zero on the clock.
    """

    samples: int
    median_ns: float
    mean_ns: float
    least_ns: float
    spread: float | None


@dataclass(frozen=True, slots=True)
class TimedConfiguration:
    """One op in one configuration.

    Attributes:
        index: of the op in the step.
        op: the op.
        configuration: the pools of its tensors.
        times: its times by way of timing, without those in which it was not measured.
    """

    index: int
    op: Op
    configuration: Configuration
    times: Mapping[str, ModeTimes]

    def to_dict(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "op": self.op.name,
            "kind": self.op.kind,
            "configuration": self.configuration.to_dict(),
            "times": to_json(self.times),
        }


def timed_configurations(profile: Profile) -> Iterator[TimedConfiguration]:
    """Yield every op of the step in every configuration, measured or not."""
    modes = modes_of(profile)
    for op, configuration in pair_configurations(profile.graph, [pool.name for pool in profile.pools]):
        samples = {mode: profile.times.get((op.name, configuration, mode)) for mode in modes}
        times = {mode: _times(each.time_ns) for mode, each in samples.items() if each is not None and each.time_ns}
        yield TimedConfiguration(profile.graph.index[op.name], op, configuration, times)


def _times(times_ns: tuple[float, ...]) -> ModeTimes:
    mean = fmean(times_ns)
    spread = stdev(times_ns) / mean if len(times_ns) > 1 and mean > 0 else None
    return ModeTimes(len(times_ns), median(times_ns), mean, min(times_ns), spread)


def table_lines(profile: Profile, comparison: Comparison) -> Iterator[str]:
    """Yield the means of two ways of timing, for every op in every configuration."""
    first, second = comparison.first, comparison.second
    marks = {(p.op, p.configuration): FAR if p.outlier else "" if p.judged else BELOW for p in comparison.pairs}
    every = list(timed_configurations(profile))
    yield f"{len(profile.graph.ops)} ops in {len(every)} configurations: means, and standard deviation by mean"
    yield f"{FAR} far from the others; {BELOW} below the noise floor, not judged"
    yield ""
    yield f"{first:>14}{second:>14}  {'ratio':>7}  {'spread of both':>16}  configuration"
    for op, rows in groupby(every, key=lambda row: row.op):
        yield f"{profile.graph.index[op.name]} {op.name} ({op.kind})"
        for row in rows:
            a, b = row.times.get(first), row.times.get(second)
            ratio = "n/a" if a is None or b is None or not b.mean_ns else f"{a.mean_ns / b.mean_ns:.2f}"
            means = "".join(f"{'n/a' if each is None else duration_ns(each.mean_ns):>14}" for each in (a, b))
            spreads = "".join(f"{percent(None if each is None else each.spread):>8}" for each in (a, b))
            mark = marks.get((op.name, row.configuration), "")
            yield f"{means}  {ratio:>7}{mark:1} {spreads}  {row.configuration}"
