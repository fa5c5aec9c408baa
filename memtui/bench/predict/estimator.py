"""What all models are to those who use them: fitted to configurations and the logarithms of what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.bench.predict.features import Described

LEAST_ROWS = 20  # that a model is fitted to; of fewer, nine of ten is not known
LEAST_GROUPS = 5  # a fold each
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Guess:
    """What a model says of n configurations.

    Attributes:
        log: f8[n], natural logarithm of the cost (nanoseconds or joules of a call).
        spread: f8[n], not below 0: how unsure the model is of each beside the others.
    """

    log: Reals
    spread: Reals


Model = Callable[[Sequence[Described]], Guess]
Fit = Callable[[Sequence[Described], Reals], Model]  # what was measured, f8[n] logarithms of its cost


@dataclass(frozen=True)
class Samples:
    """What a model is fitted to and held against.

    Attributes:
        rows: what was measured, n of them.
        log: f8[n], natural logarithms of what they cost.
        groups: n names; those that are nearly the same configuration have the same one.
        flagged: b[n]: something speaks against the measurement.
    """

    rows: tuple[Described, ...]
    log: Reals
    groups: tuple[str, ...]
    flagged: NDArray[np.bool_]

    def take(self, chosen: NDArray[np.int64]) -> Samples:
        """Return those with these numbers, i8[m]."""
        rows, groups = tuple(self.rows[i] for i in chosen), tuple(self.groups[i] for i in chosen)
        return Samples(rows, self.log[chosen], groups, self.flagged[chosen])
