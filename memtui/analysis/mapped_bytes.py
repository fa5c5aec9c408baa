"""Address space over time, from the ranges of a session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Mapped(Protocol):
    """A range and the samples that it was there in, the last one included."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def first_sample(self) -> int: ...
    @property
    def last_sample(self) -> int: ...


def mapped_bytes(rows: Iterable[Mapped], sample: NDArray[np.int64]) -> NDArray[np.float64]:
    """f8[n]: address space in each window; a range counts with the extent it has over the session.

    Args:
        rows: ranges of all processes.
        sample: i8[n], rising numbers of the windows.
    """
    found = np.zeros(len(sample))
    for row in rows:
        low = np.searchsorted(sample, row.first_sample)
        high = np.searchsorted(sample, row.last_sample, side="right")
        found[low:high] += row.end - row.start
    return found
