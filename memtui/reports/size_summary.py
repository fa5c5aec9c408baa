"""Mean, median and maximum of a size over the windows of a session, or why they are not known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memtui.analysis.statistics import summary
from memtui.core.samples import Status
from memtui.core.units import size


@dataclass(frozen=True, slots=True)
class SizeSummary:
    """Bytes, over windows. ``reason``: why they are not known, or not exact."""

    mean: float | None
    median: float | None
    max: int | None
    status: str
    reason: str


def size_summary(values: np.ndarray, reason: str, weights: np.ndarray | None = None) -> SizeSummary:
    """Return the summary of what is known of some values.

    Args:
        values: f8[n], bytes; nan where it is not known.
        reason: why nothing is known, where that is so.
        weights: f8[n], how long each value stood for; None: all the same.
    """
    result = summary(values, weights)
    if result.mean is None or result.max is None:
        return SizeSummary(None, None, None, Status.UNSUPPORTED, reason)
    return SizeSummary(result.mean, result.median, int(result.max), Status.OK, "")


def median_of_known(values: np.ndarray) -> float | None:
    """Return the median of the values that are not nan; None where there are none."""
    finite = values[~np.isnan(values)]
    return float(np.median(finite)) if len(finite) else None


def size_clause(summary: SizeSummary) -> str:
    """Return ``mean 1 MiB, median 1 MiB, max 2 MiB``, with what makes it less than exact; or why it is not known."""
    if summary.mean is None:
        return f"n/a: {summary.reason}"
    about = f" (approximate: {summary.reason})" if summary.status == Status.APPROXIMATE else ""
    return f"mean {size(summary.mean)}, median {size(summary.median)}, max {size(summary.max)}{about}"
