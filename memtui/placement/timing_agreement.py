"""Whether two ways of timing agree, and how much the samples of one way spread.

The notebook of nGraph's profiler prints the means of simultaneous and single runs side by side, for the reader to
judge. Here the ratio of each pair of means, their correlation and the spread of the samples give a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median, stdev
from typing import Any

from memtui.core.json_fields import fields_to_json, to_json
from memtui.placement.graph import Configuration
from memtui.placement.profile import MODES, Profile, Samples

CONSISTENT, RANKING, NEITHER, NOTHING = (
    "consistent",
    "ranking reliable, absolute times not",
    "neither",
    "nothing to judge",
)
WITHIN = 0.2  # ratios that differ from 1 by at most this agree
ENOUGH = 0.8  # of the pairs
CORRELATED = 0.9  # of the logarithms of the times, for an order to rely upon
FLOOR_STEPS = 10  # times of fewer steps of the clock are not judged: one step is up to 10 % of them
_FENCE = 1.5  # interquartile ranges beyond the quartiles: Tukey's rule


@dataclass(frozen=True, slots=True)
class Pair:
    """One op in one configuration, timed in two ways.

    Attributes:
        op: name of the op.
        configuration: the pools of its tensors.
        first_ns: mean of the samples of the first way of timing.
        second_ns: mean of the samples of the reference.
        first_spread: standard deviation by mean, of the first way; None for fewer than two samples.
        second_spread: standard deviation by mean, of the reference.
        judged: whether the reference is above the noise floor.
        outlier: whether the ratio is far from those of the other pairs.
    """

    op: str
    configuration: Configuration
    first_ns: float
    second_ns: float
    first_spread: float | None
    second_spread: float | None
    judged: bool
    outlier: bool = False

    @property
    def ratio(self) -> float | None:
        """First time by second; None where the second is zero on the clock."""
        return self.first_ns / self.second_ns if self.second_ns > 0 else None

    def to_dict(self) -> dict[str, Any]:
        return fields_to_json(self) | {"ratio": self.ratio}


@dataclass(frozen=True)
class Comparison:
    """All pairs of two ways of timing.

    Attributes:
        first: mode in question.
        second: mode that is the reference.
        pairs: configurations with samples in both modes, in the order of the ops.
        floor_ns: noise floor; a pair whose reference time is below is listed, not judged.
        unmatched: number of (op, configuration) pairs with samples in only one of the two.
    """

    first: str
    second: str
    pairs: tuple[Pair, ...]
    floor_ns: float
    unmatched: int

    @cached_property
    def judged(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.judged)

    @cached_property
    def ratios(self) -> tuple[float, ...]:
        """Ratios of the judged pairs, rising."""
        return tuple(sorted(pair.ratio for pair in self.judged if pair.ratio is not None))

    def within(self, part: float) -> float | None:
        """Return the share of judged pairs whose ratio differs from 1 by at most this part."""
        return fmean(abs(ratio - 1) <= part + 1e-12 for ratio in self.ratios) if self.ratios else None

    @cached_property
    def correlation(self) -> float | None:
        """Pearson correlation of the logarithms of the judged times; None for fewer than three pairs or equal times."""
        both = [
            (math.log(p.first_ns), math.log(p.second_ns)) for p in self.judged if p.first_ns > 0 and p.second_ns > 0
        ]
        return pearson(both) if len(both) >= 3 else None

    @cached_property
    def verdict(self) -> str:
        """Whether the times of the first mode, or at least their order, agree with the reference."""
        near = self.within(WITHIN)
        if near is None:
            return NOTHING
        if near >= ENOUGH:
            return CONSISTENT
        return RANKING if self.correlation is not None and self.correlation >= CORRELATED else NEITHER

    def spread(self, which: str) -> tuple[float, float] | None:
        """Return (median spread, share of judged pairs whose spread is small) of ``first`` or ``second``."""
        spreads = [s for pair in self.judged if (s := getattr(pair, f"{which}_spread")) is not None]
        return (median(spreads), fmean(s <= WITHIN for s in spreads)) if spreads else None

    @property
    def outliers(self) -> list[Pair]:
        """The outliers, the farthest first."""
        return sorted((p for p in self.pairs if p.outlier), key=lambda p: -abs(math.log(p.ratio or 1)))

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        spreads = {which: self.spread(which) for which in ("first", "second")}
        return {
            "first": self.first,
            "second": self.second,
            "verdict": self.verdict,
            "judged": len(self.judged),
            "below_noise_floor": len(self.pairs) - len(self.judged),
            "unmatched": self.unmatched,
            "noise_floor_ns": self.floor_ns,
            "ratio": dict(zip(("least", "lower_quartile", "median", "upper_quartile", "most"), self.five, strict=True))
            if self.ratios
            else None,
            "within": {f"{part:.0%}": self.within(part) for part in (0.1, 0.2, 0.5)},
            "log_correlation": self.correlation,
            "spread": {
                which: None if s is None else {"median": s[0], "share_within_20%": s[1]} for which, s in spreads.items()
            },
            "pairs": to_json(self.pairs),
        }

    @property
    def five(self) -> tuple[float, ...]:
        """Least, lower quartile, median, upper quartile and most of the ratios, at least one of which must exist."""
        return tuple(quantile(self.ratios, part) for part in (0, 0.25, 0.5, 0.75, 1))


def compare(profile: Profile, first: str, second: str) -> Comparison:
    """Compare the times of one mode with those of a reference mode."""
    floor_ns = FLOOR_STEPS * profile.resolution_ns
    sides = [
        {(s.op, s.configuration): s for s in profile.samples if s.mode == mode and s.time_ns}
        for mode in (first, second)
    ]
    common = sorted(sides[0].keys() & sides[1].keys(), key=lambda key: (profile.graph.index[key[0]], key[1]))
    pairs = _marked([_pair(sides[0][key], sides[1][key], floor_ns) for key in common])
    return Comparison(first, second, tuple(pairs), floor_ns, len(sides[0].keys() ^ sides[1].keys()))


def modes_of(profile: Profile) -> list[str]:
    """Return the modes with samples."""
    present = {samples.mode for samples in profile.samples if samples.time_ns}
    return [mode for mode in MODES if mode in present]


def _pair(first: Samples, second: Samples, floor_ns: float) -> Pair:
    mean = fmean(second.time_ns)
    return Pair(
        first.op,
        first.configuration,
        fmean(first.time_ns),
        mean,
        _spread(first.time_ns),
        _spread(second.time_ns),
        mean > 0 and mean >= floor_ns,
    )


def _spread(times: Sequence[float]) -> float | None:
    mean = fmean(times)
    return stdev(times) / mean if len(times) > 1 and mean > 0 else None


def _marked(pairs: list[Pair]) -> list[Pair]:
    """Return the pairs with ``outlier`` set by Tukey's rule."""
    logs = sorted(math.log(pair.ratio) for pair in pairs if pair.judged and pair.ratio)
    if len(logs) < 4:
        return pairs
    low, high = quantile(logs, 0.25), quantile(logs, 0.75)
    beyond = _FENCE * (high - low)
    return [
        Pair(p.op, p.configuration, p.first_ns, p.second_ns, p.first_spread, p.second_spread, p.judged, True)
        if p.judged and p.ratio and not low - beyond <= math.log(p.ratio) <= high + beyond
        else p
        for p in pairs
    ]


def quantile(rising: Sequence[float], part: float) -> float:
    """Return a quantile of numbers in rising order, linear between them."""
    position = part * (len(rising) - 1)
    low = math.floor(position)
    high = min(low + 1, len(rising) - 1)
    return rising[low] + (position - low) * (rising[high] - rising[low])


def pearson(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the correlation coefficient; None where one side does not vary."""
    x_mean, y_mean = (fmean(pair[side] for pair in pairs) for side in (0, 1))
    xy = sum((x - x_mean) * (y - y_mean) for x, y in pairs)
    xx, yy = sum((x - x_mean) ** 2 for x, _ in pairs), sum((y - y_mean) ** 2 for _, y in pairs)
    if not xx or not yy:
        return None
    return max(-1.0, min(1.0, xy / math.sqrt(xx * yy)))
