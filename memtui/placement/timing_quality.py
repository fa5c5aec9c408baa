"""Reliability of the timings: which differences between configurations the samples prove.

An op that came out faster with a tensor in slow memory was mostly lucky: few samples, or another load. A plan that is
based on luck is fast on paper only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import fmean, median, stdev
from typing import Any

from memtui.analysis.statistics import median_interval
from memtui.core.units import percent
from memtui.placement.configurations import configurations
from memtui.placement.graph import Configuration
from memtui.placement.profile import SINGLE, Profile
from memtui.placement.timing_agreement import CONSISTENT, NEITHER, RANKING, WITHIN, Comparison, compare, modes_of

FEWEST = 6  # samples that a 95 % interval of a median needs


def all_fast(profile: Profile, op: str, slow: str) -> Configuration:
    """Return the configuration of an op with everything in fast memory."""
    graph_op = profile.graph.ops[profile.graph.index[op]]
    return next(configurations(profile.graph, graph_op, (profile.fast.name, slow)))


def proven_faster(profile: Profile, op: str, configuration: Configuration, than: Configuration, mode: str) -> bool:
    """Return whether an op is faster one way than another: 95 % intervals of the medians do not overlap.

    The intervals are those of order statistics (``statistics.median_interval``), which need six samples each.
    """
    intervals = []
    for each in (configuration, than):
        samples = profile.times.get((op, each, mode))
        intervals.append(None if samples is None else median_interval(samples.time_ns))
    first, second = intervals
    if first is None or second is None or first.high is None or second.low is None:
        return False
    return bool(first.high < second.low)


def counted_ns(profile: Profile, op: str, configuration: Configuration, slow: str, mode: str) -> float | None:
    """Return the time that a plan counts for an op: its median, but not less than all in fast memory unless proven.

    Return None where there is no sample.
    """
    ns = profile.typical_ns(op, configuration, mode)
    base = all_fast(profile, op, slow)
    base_ns = profile.typical_ns(op, base, mode)
    if ns is None or base_ns is None or ns >= base_ns or proven_faster(profile, op, configuration, base, mode):
        return ns
    return base_ns


@dataclass(frozen=True, slots=True)
class TimingQuality:
    """How far the times of a way of timing can be relied upon.

    Attributes:
        mode: the way of timing.
        least_samples: least number of samples of an op and configuration.
        spread: standard deviation by mean, the median over ops and configurations; None for one sample each.
        unproven: number of configurations that came out faster than all fast without proof, and count as all fast.
        verdict: of ``compare`` with the way of timing that this one agrees least with; None where there is no other.
        against: name of that other way of timing.
    """

    mode: str
    least_samples: int
    spread: float | None
    unproven: int
    verdict: str | None
    against: str | None

    @property
    def doubts(self) -> list[str]:
        """Reasons why the times are unreliable; empty where they are good."""
        reasons = []
        if self.spread is not None and self.spread > WITHIN:
            reasons.append(f"spread {percent(self.spread)} (more than {percent(WITHIN)})")
        if self.least_samples < FEWEST:
            reasons.append(f"{self.least_samples} samples of some (fewer than {FEWEST})")
        if self.verdict == NEITHER:
            reasons.append(f"compare with {self.against} says neither times nor order can be relied upon")
        return reasons

    def lines(self) -> list[str]:
        """Return the verdict in one line, and a second line where configurations came out faster than all fast."""
        spread = "" if self.spread is None else f", spread {percent(self.spread)}"
        agrees = "" if self.verdict is None else f"; compare with {self.against}: {self.verdict}"
        result = [f"{self.mode} times: {self.least_samples} samples or more of each{spread}{agrees}"]
        if self.doubts:
            result = [f"{self.mode} times are worth little: {'; '.join(self.doubts)}"]
        if self.unproven:
            result.append(
                f"{self.unproven} configurations were faster than all in fast memory without proof, and count as that"
            )
        return result

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"doubts": self.doubts}


def quality_of(profile: Profile, slow: str, mode: str) -> TimingQuality:
    """Return the quality of the times that plans with a slow pool are based on."""
    pools = {profile.fast.name, slow}
    samples = [s for s in profile.samples if s.mode == mode and s.time_ns and pools.issuperset(s.configuration.pools)]
    spreads = [stdev(s.time_ns) / mean for s in samples if len(s.time_ns) > 1 and (mean := fmean(s.time_ns)) > 0]
    unproven = sum(
        profile.typical_ns(s.op, s.configuration, mode) != counted_ns(profile, s.op, s.configuration, slow, mode)
        for s in samples
    )
    compared = _compared(profile, mode)
    return TimingQuality(
        mode,
        min((len(s.time_ns) for s in samples), default=0),
        median(spreads) if spreads else None,
        unproven,
        None if compared is None else compared.verdict,
        None if compared is None else compared.first if compared.second == mode else compared.second,
    )


def _compared(profile: Profile, mode: str) -> Comparison | None:
    """Return the comparison with the worst verdict about a way of timing; None where there is none."""
    modes = modes_of(profile)
    reference = SINGLE if SINGLE in modes else modes[0] if modes else ""
    firsts = [each for each in modes if each != reference] if mode == reference else [mode]
    comparisons = [compare(profile, first, reference) for first in firsts if {first, reference} <= {*modes}]
    worst_first = (NEITHER, RANKING, CONSISTENT)
    judged = (each for each in comparisons if each.ratios)
    return min(judged, key=lambda each: worst_first.index(each.verdict), default=None)
