"""An estimate of reuse distances between their bounds, for touches in random order inside each window.

A page's last touch in window i comes after the share u of that window's pages, and its first one in window j after
the share v of that one's. Between them lie

    D(u, v) = lower + A (1 - u) + B v + C (1 - u (1 - v))

bytes, where A are the pages of window i alone, B those of window j alone, and C those of both, less the page itself
(``reuse_distance.py``). *The assumption*: u and v are even between 0 and 1, independent of each other, of the page and
of the window it belongs to. It holds exactly where every order is equally likely; its mean is ``lower + A/2 + B/2 +
3/4 C``. A loop that touches the same pages in the same order has v = u, so its distance is the upper bound, and the
estimate is 3/4 of that in the mean and 0.81 of it in the median. Back and forth (v = 1 - u), the distance is even
between the bounds.

With w = 1 - u this is ``lower + (A + C) w + (B + C) v - C w v``: linear in v for every w. So a touch is spread over
bins by a few values of w, with the exact share of v in each bin.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.reuse_distance import ReuseSample

ASSUMPTION = "estimated for touches in random order inside each window"
_Floats = NDArray[np.float64]
_POSITIONS = 16  # of the page in the window that matters less for the distance
_MIDDLES = (np.arange(_POSITIONS) + 0.5) / _POSITIONS


def spread(samples: Sequence[ReuseSample], edges_bytes: NDArray[np.int64]) -> _Floats | None:
    """Return the expected number of returning touches in bins of their distance.

    Args:
        samples: windows.
        edges_bytes: i8[n], rising: bin k ends at edge k, and the last one has everything above, too.

    Returns:
        f8[n]; None where a window does not tell the parts between its bounds.
    """
    columns = [_columns(sample) for sample in samples if len(sample.counts)]
    whole = [column for column in columns if column is not None]
    if len(whole) < len(columns):
        return None
    bins = np.zeros(len(edges_bytes))
    if not whole:
        return bins
    lower, upper, counts, earlier, later = (np.concatenate(parts).astype(float) for parts in zip(*whole, strict=True))
    last = len(edges_bytes) - 1
    edges = edges_bytes[:-1].astype(float)
    first_bin, last_bin = np.searchsorted(edges, lower), np.searchsorted(edges, upper)
    inside = first_bin == last_bin  # wherever in its window the page is: most of what comes back after many windows
    np.add.at(bins, first_bin[inside], counts[inside])
    wide = ~inside
    if not wide.any():
        return bins
    lower, upper, earlier, later, counts = (a[wide] for a in (lower, upper, earlier, later, counts))
    both = upper - lower - earlier - later
    more, less = np.maximum(earlier, later) + both, np.minimum(earlier, later) + both
    low = (lower[:, None] + less[:, None] * _MIDDLES).ravel()
    length = (more[:, None] - both[:, None] * _MIDDLES).ravel()
    share = np.repeat(counts / _POSITIONS, _POSITIONS)
    first_bin, last_bin = np.searchsorted(edges, low), np.searchsorted(edges, low + length)
    inside = first_bin == last_bin
    np.add.at(bins, first_bin[inside], share[inside])
    across = ~inside
    if not across.any():
        return bins
    low, length, share = low[across], length[across], share[across]
    bins += _even(low, length, share, first_bin[across], last_bin[across], edges, last)
    return bins


def quantile(bins: _Floats, edges_bytes: NDArray[np.int64], q: float) -> float | None:
    """Return the distance that the share q of the touches in bins does not exceed; None without a touch.

    Inside a bin touches are taken to be even over the logarithm of the distance.
    """
    total = float(bins.sum())
    if total <= 0:
        return None
    below = np.cumsum(bins)
    k = min(int(np.searchsorted(below, q * below[-1])), len(bins) - 1)
    high = float(edges_bytes[k])
    low = float(edges_bytes[k - 1]) if k else high
    part = (q * below[-1] - (below[k] - bins[k])) / bins[k] if bins[k] > 0 else 1.0
    return low * (high / low) ** float(np.clip(part, 0.0, 1.0))


def _columns(sample: ReuseSample) -> tuple[NDArray[np.int64], ...] | None:
    if sample.earlier_bytes is None or sample.later_bytes is None:
        return None
    return sample.lower_bytes, sample.upper_bytes, sample.counts, sample.earlier_bytes, sample.later_bytes


def _even(
    low: _Floats,
    length: _Floats,
    share: _Floats,
    first_bin: NDArray[np.intp],
    last_bin: NDArray[np.intp],
    edges: _Floats,
    last: int,
) -> _Floats:
    """Return the sum of shares that are even from ``low`` to ``low + length``, in bins.

    What lies below an edge e is the sum of ``share (e - low) / length`` over all that begin below it, less the same
    from their end on: two sums by bin and a cumulative sum, however many there are.
    """
    slope = share / length
    steepness, offset = np.zeros(last + 1), np.zeros(last + 1)
    for bins, start, sign in ((first_bin, low, 1.0), (last_bin, low + length, -1.0)):
        steepness += sign * np.bincount(bins, slope, last + 1)
        offset += sign * np.bincount(bins, slope * start, last + 1)
    below = edges * np.cumsum(steepness)[:last] - np.cumsum(offset)[:last]
    below[last_bin.max() :] = share.sum()  # far above the last end, the two sums differ by rounding only
    return np.maximum(np.diff(below, prepend=0.0, append=float(share.sum())), 0.0)
