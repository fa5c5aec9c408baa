"""A device whose law is known: what convolutions cost on it follows from a formula, and from chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memtui.bench.configuration import Configuration
from memtui.bench.predict.estimator import Samples
from memtui.bench.predict.features import describe, group_of

NOISE = 0.05  # standard deviation of the logarithm of a time
CALL_NS = 5_000.0  # what a call costs in any case


def call_ns(configuration: Configuration) -> float:
    """A roofline of 50 GFLOP/s and 10 GB/s, less efficient in groups and where channels are not a multiple of 16."""
    p = configuration.parameters
    efficiency = 0.3 if p["groups"] > 1 else 1.0
    if p["groups"] == p["cin"] > 1:
        efficiency = 0.05
    if p["cin"] % 16 or p["cout"] % 16:
        efficiency *= 0.5
    if p["k"] == 1:
        efficiency *= 0.7
    return CALL_NS + max(configuration.flops / (50 * efficiency), configuration.moved_bytes / 10)


def samples(configurations: list[Configuration], seed: int = 0) -> Samples:
    """Measured once each."""
    chance = np.random.default_rng(seed)
    log = np.log([call_ns(c) for c in configurations]) + chance.normal(0, NOISE, len(configurations))
    return as_samples(configurations, log)


def as_samples(configurations: Sequence[Configuration], log: NDArray[np.float64]) -> Samples:
    """Of logarithms of costs, f8[n]."""
    groups, flagged = tuple(map(group_of, configurations)), np.zeros(len(configurations), bool)
    return Samples(tuple(map(describe, configurations)), log, groups, flagged)
