"""The interface of all models, which are fitted to configurations and the logarithms of their costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.bench.predict.features import Described

LEAST_ROWS = 20  # that a model is fitted to; fewer rows do not give a 90 % range
LEAST_GROUPS = 5  # one for each fold
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Guess:
    """Predictions of a model for n configurations.

    Attributes:
        log: f8[n], natural logarithm of the cost (nanoseconds or joules of a call).
        spread: f8[n], not below 0: relative uncertainty of the model about each configuration.
    """

    log: Reals
    spread: Reals


Model = Callable[[Sequence[Described]], Guess]
Fit = Callable[[Sequence[Described], Reals], Model]  # of configurations, f8[n] logarithms of their costs


@dataclass(frozen=True)
class Samples:
    """Samples that a model is fitted to and evaluated on.

    Attributes:
        rows: n measured configurations.
        log: f8[n], natural logarithms of their costs.
        groups: n names; nearly equal configurations have the same name.
        flagged: b[n]: whether the measurement has a flag.
    """

    rows: tuple[Described, ...]
    log: Reals
    groups: tuple[str, ...]
    flagged: NDArray[np.bool_]

    def take(self, chosen: NDArray[np.int64]) -> Samples:
        """Return the samples with these indices, i8[m]."""
        rows, groups = tuple(self.rows[i] for i in chosen), tuple(self.groups[i] for i in chosen)
        return Samples(rows, self.log[chosen], groups, self.flagged[chosen])
