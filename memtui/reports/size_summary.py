"""Mean, median and maximum of a size over the windows of a session, or why they are unknown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memtui.analysis.statistics import summary
from memtui.core.samples import Status
from memtui.core.units import size


@dataclass(frozen=True, slots=True)
class SizeSummary:
    """A size in bytes, over windows. ``reason``: why it is unknown, or not exact."""

    mean: float | None
    median: float | None
    max: int | None
    status: str
    reason: str


def size_summary(values: np.ndarray, reason: str, weights: np.ndarray | None = None) -> SizeSummary:
    """Return the summary of the known values.

    Args:
        values: f8[n], bytes; nan for an unknown value.
        reason: why all values are unknown, in case they are.
        weights: f8[n], duration of each value; None: equal weights.
    """
    result = summary(values, weights)
    if result.mean is None or result.max is None:
        return SizeSummary(None, None, None, Status.UNSUPPORTED, reason)
    return SizeSummary(result.mean, result.median, int(result.max), Status.OK, "")


def finite_median(values: np.ndarray) -> float | None:
    """Return the median of the values that are not nan; None without such values."""
    finite = values[~np.isnan(values)]
    return float(np.median(finite)) if len(finite) else None


def size_clause(summary: SizeSummary) -> str:
    """Return ``mean 1 MiB, median 1 MiB, max 2 MiB``, with the reason why it is inexact, or why it is unknown."""
    if summary.mean is None:
        return f"n/a: {summary.reason}"
    about = f" (approximate: {summary.reason})" if summary.status == Status.APPROXIMATE else ""
    return f"mean {size(summary.mean)}, median {size(summary.median)}, max {size(summary.max)}{about}"
