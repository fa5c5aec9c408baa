"""Reuse distances added up over a session: in fixed bins (small, storable) and exactly (for a report)."""

from __future__ import annotations

import struct
import zlib
from copy import copy
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from memtui.analysis import reuse_estimate
from memtui.analysis.reuse_distance import ReuseSample
from memtui.core.compression import inflate
from memtui.core.page_sizes import PAGE_BYTES

BOUNDS = ("lower", "upper")
BINS_PER_OCTAVE = 8
_FIRST_SHIFT, _LAST_SHIFT = 12, 48
BIN_COUNT = (_LAST_SHIFT - _FIRST_SHIFT) * BINS_PER_OCTAVE + 1
# Powers of two are exact, so counts up to 1 MiB, 1 GiB ... are exact too.
BIN_EDGES = np.floor(np.exp2(_FIRST_SHIFT + np.arange(BIN_COUNT) / BINS_PER_OCTAVE)).astype(np.int64)
"""i8[289], bytes: bin k holds distances above edge k-1 up to and including edge k; the last one takes all above too."""
_LARGEST = BIN_EDGES // PAGE_BYTES * PAGE_BYTES  # multiple of a page in each bin
_SMALLEST = np.concatenate(([0], _LARGEST[:-1])) + PAGE_BYTES

_HEAD = struct.Struct("<BBH")  # codec, bins per octave, bins
_CODEC_OF_BOUNDS, _CODEC = 1, 2  # of sessions before format 13, and with the estimate
_MAX_COUNT = 1 << 52  # all bins together stay in 64 bits


class ReuseHistogram:
    """Touches by reuse distance in 289 bins, 8 per octave, from 4 KiB to 2**48 bytes, for both bounds.

    Attributes:
        lower: i8[289], returning touches by the lower bound of their distance.
        upper: i8[289], by the upper bound.
        estimated: f8[289], by their distance if the order inside each window is random (``reuse_estimate.py``); None
            where a window of an older format is among them.
        first_touches: touches of pages never seen before.
        first_touch_bytes: size of those pages.
    """

    __slots__ = ("estimated", "first_touch_bytes", "first_touches", "lower", "upper")

    def __init__(self) -> None:
        self.lower = np.zeros(BIN_COUNT, np.int64)
        self.upper = np.zeros(BIN_COUNT, np.int64)
        self.estimated: NDArray[np.float64] | None = np.zeros(BIN_COUNT)
        self.first_touches = 0
        self.first_touch_bytes = 0

    @property
    def touches(self) -> int:
        """All touches, first ones included."""
        return self.first_touches + int(self.upper.sum())

    def add(self, *samples: ReuseSample) -> None:
        """Count some windows: one or more."""
        self.first_touches += sum(sample.first_touches for sample in samples)
        self.first_touch_bytes += sum(sample.first_touch_bytes for sample in samples)
        counts = np.concatenate([sample.counts for sample in samples])
        for bins, bounds in (
            (self.lower, [sample.lower_bytes for sample in samples]),
            (self.upper, [sample.upper_bytes for sample in samples]),
        ):
            np.add.at(bins, bin_of(np.concatenate(bounds)), counts)
        self.estimated = _sum(self.estimated, reuse_estimate.spread(samples, BIN_EDGES))

    def __iadd__(self, other: ReuseHistogram) -> ReuseHistogram:
        self.lower += other.lower
        self.upper += other.upper
        self.estimated = _sum(self.estimated, other.estimated)
        self.first_touches += other.first_touches
        self.first_touch_bytes += other.first_touch_bytes
        return self

    def __add__(self, other: ReuseHistogram) -> ReuseHistogram:
        total = ReuseHistogram()
        total += self
        total += other
        return total

    def __sub__(self, earlier: ReuseHistogram) -> ReuseHistogram:
        """Return the touches added since an earlier checkpoint of the same histogram."""
        change = ReuseHistogram()
        change.lower = self.lower - earlier.lower
        change.upper = self.upper - earlier.upper
        if self.estimated is None or earlier.estimated is None:
            change.estimated = None
        else:
            change.estimated = np.maximum(self.estimated - earlier.estimated, 0)
        change.first_touches = self.first_touches - earlier.first_touches
        change.first_touch_bytes = self.first_touch_bytes - earlier.first_touch_bytes
        return change

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReuseHistogram):
            return False
        if self.estimated is None or other.estimated is None:
            same = self.estimated is other.estimated
        else:
            same = np.allclose(self.estimated, other.estimated)  # sums of fractions depend on their order
        return same and bool(np.array_equal(self._counts(), other._counts()))

    __hash__ = None  # type: ignore[assignment]

    def entries(self, bound: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (distances i8[k] in bytes, counts i8[k]), rising, of the bins that are not empty.

        A bin stands for its largest multiple of 4 KiB under ``upper`` and for its smallest under ``lower``, so the
        bounds stay bounds.

        Raises:
            ValueError: bound is neither "lower" nor "upper".
        """
        counts = _pick(bound, self.lower, self.upper)
        used = np.flatnonzero(counts)
        return _pick(bound, _SMALLEST, _LARGEST)[used], counts[used]

    def quantile(self, q: float) -> tuple[int, int] | None:
        """Return the distance that the share q of returning touches does not exceed, to 9 %, on each bound's safe side.

        Returns:
            (lower, upper) in bytes, or None when no page came back.

        Raises:
            ValueError: q outside 0..1.
        """
        return _both(self, q)

    def estimate(self, q: float) -> float | None:
        """Return the estimate of that distance, between its bounds; None where it is not known."""
        return _estimate(self, self.estimated, q)

    def _counts(self) -> NDArray[np.int64]:
        return np.concatenate(([self.first_touches, self.first_touch_bytes], self.lower, self.upper)).astype(np.int64)

    def to_bytes(self) -> bytes:
        """Encode by codec 2: a head, the two counters, both rows of bins, the estimate as doubles; zlib.

        Typically about a kilobyte. Without an estimate it is codec 1, which ends after the bins: about 300 bytes.
        """
        codec = _CODEC if self.estimated is not None else _CODEC_OF_BOUNDS
        numbers = self._counts().astype("<i8").tobytes()
        estimated = b"" if self.estimated is None else self.estimated.astype("<f8").tobytes()
        return _HEAD.pack(codec, BINS_PER_OCTAVE, BIN_COUNT) + zlib.compress(numbers + estimated, 6)

    @classmethod
    def from_bytes(cls, data: bytes) -> ReuseHistogram:
        """Invert ``to_bytes``.

        Raises:
            ValueError: damaged data, or of an unknown codec.
        """
        try:
            head = _HEAD.unpack_from(data)
            if head[0] not in (_CODEC_OF_BOUNDS, _CODEC) or head[1:] != (BINS_PER_OCTAVE, BIN_COUNT):
                raise ValueError(f"unknown codec {head}")
            length = 2 + 2 * BIN_COUNT
            expected = 8 * (length + (BIN_COUNT if head[0] == _CODEC else 0))
            raw = inflate(data[_HEAD.size :], expected)
            if len(raw) != expected:
                raise ValueError(f"{len(raw)} bytes")
            numbers = np.frombuffer(raw, "<i8", length).astype(np.int64)
            if numbers.min() < 0 or numbers[0] >= _MAX_COUNT or numbers[2:].max() >= _MAX_COUNT:
                raise ValueError("counts out of range")
            if numbers[2 : 2 + BIN_COUNT].sum() != numbers[2 + BIN_COUNT :].sum():
                raise ValueError("the bounds count different touches")
            returning = int(numbers[2 : 2 + BIN_COUNT].sum())
            estimated = np.frombuffer(raw, "<f8", offset=8 * length).astype(float) if head[0] == _CODEC else None
            if estimated is not None and not _counts_as(estimated, returning):
                raise ValueError("the estimate counts different touches")
        except (struct.error, ValueError) as error:
            raise ValueError(f"damaged reuse histogram: {error}") from error
        histogram = cls()
        histogram.first_touches, histogram.first_touch_bytes = int(numbers[0]), int(numbers[1])
        histogram.lower, histogram.upper = numbers[2 : 2 + BIN_COUNT].copy(), numbers[2 + BIN_COUNT :].copy()
        # Nothing came back yet: then nothing is unknown.
        histogram.estimated = estimated if estimated is not None or returning else np.zeros(BIN_COUNT)
        return histogram


class ExactReuse:
    """Touches by exact distance, for both bounds.

    Memory grows with the number of distinct distances, which are multiples of 4 KiB up to the bytes seen: at most
    0.4 % of the latter per bound, and mostly far less.
    """

    _MERGE_ENTRIES = 1 << 16  # entries put off before they are merged

    def __init__(self) -> None:
        self.first_touches = 0
        self.first_touch_bytes = 0
        self._merged = {bound: (np.empty(0, np.int64), np.empty(0, np.int64)) for bound in BOUNDS}
        self._estimated: NDArray[np.float64] | None = np.zeros(BIN_COUNT)  # in the bins of ``ReuseHistogram``
        self._waiting: list[ReuseSample] = []
        self._waiting_entries = 0

    @property
    def touches(self) -> int:
        """All touches, first ones included."""
        return self.first_touches + int(self.entries("upper")[1].sum())

    def copy(self) -> ExactReuse:
        """Return a sum that goes on from here without changing this one: a merge makes new arrays."""
        other = copy(self)
        other._merged, other._waiting = self._merged.copy(), self._waiting.copy()
        return other

    def add(self, sample: ReuseSample) -> None:
        """Count one window."""
        self.first_touches += sample.first_touches
        self.first_touch_bytes += sample.first_touch_bytes
        if len(sample.counts):
            self._waiting.append(sample)
            self._waiting_entries += len(sample.counts)
            if self._waiting_entries >= self._MERGE_ENTRIES:
                self._merge()

    def __iadd__(self, other: ExactReuse) -> ExactReuse:
        """Add another process's touches."""
        self._merge()
        other._merge()
        self.first_touches += other.first_touches
        self.first_touch_bytes += other.first_touch_bytes
        for bound in BOUNDS:
            self._merged[bound] = merge_counts([self._merged[bound], other._merged[bound]])
        self._estimated = _sum(self._estimated, other._estimated)
        return self

    def entries(self, bound: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (distances i8[k] in bytes, rising, counts i8[k]) of the returning touches.

        Raises:
            ValueError: bound is neither "lower" nor "upper".
        """
        self._merge()
        return _pick(bound, self._merged["lower"], self._merged["upper"])

    def quantile(self, q: float) -> tuple[int, int] | None:
        """Return the smallest distance that at least the share q of returning touches does not exceed, for both bounds.

        Returns:
            (lower, upper) in bytes, or None when no page came back.

        Raises:
            ValueError: q outside 0..1.
        """
        return _both(self, q)

    def estimate(self, q: float) -> float | None:
        """Return the estimate of that distance, from bins of 9 % and between its bounds; None where it is not known."""
        self._merge()
        return _estimate(self, self._estimated, q)

    @property
    def estimated(self) -> NDArray[np.float64] | None:
        """Touches in the bins of ``ReuseHistogram`` by their estimated distance; None where it is not known."""
        self._merge()
        return self._estimated

    def _merge(self) -> None:
        if not self._waiting:
            return
        lower = [(sample.lower_bytes, sample.counts) for sample in self._waiting]
        upper = [(sample.upper_bytes, sample.counts) for sample in self._waiting]
        self._merged["lower"] = merge_counts([self._merged["lower"], *lower])
        self._merged["upper"] = merge_counts([self._merged["upper"], *upper])
        self._estimated = _sum(self._estimated, reuse_estimate.spread(self._waiting, BIN_EDGES))
        self._waiting.clear()
        self._waiting_entries = 0


def bin_of(distances: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the bin number of each distance in bytes."""
    return np.minimum(np.searchsorted(BIN_EDGES, distances), BIN_COUNT - 1)


def bins_of(distances: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return counts of distances in bytes, added up in the bins."""
    return np.bincount(bin_of(distances), counts, BIN_COUNT).astype(np.float64)


def merge_counts(
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Add up (distances, counts) pairs: distinct distances, rising, and the total of each."""
    values, where = np.unique(np.concatenate([distances for distances, _ in parts]), return_inverse=True)
    totals = np.zeros(len(values), np.int64)
    np.add.at(totals, where, np.concatenate([counts for _, counts in parts]))
    return values, totals


def quantile(distances: NDArray[np.int64], counts: NDArray[np.int64], q: float) -> int | None:
    """Return the smallest of rising distances that at least the share q of all counts does not exceed; None without.

    Raises:
        ValueError: q outside 0..1.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"quantile {q} is not within 0 and 1")
    if not len(counts):
        return None
    below = np.cumsum(counts)
    return int(distances[min(int(np.searchsorted(below, q * below[-1])), len(distances) - 1)])


def _both(source: ReuseHistogram | ExactReuse, q: float) -> tuple[int, int] | None:
    lower, upper = quantile(*source.entries("lower"), q), quantile(*source.entries("upper"), q)
    return None if lower is None or upper is None else (lower, upper)


def _estimate(source: ReuseHistogram | ExactReuse, bins: NDArray[np.float64] | None, q: float) -> float | None:
    bounds = _both(source, q)
    value = None if bins is None else reuse_estimate.quantile(bins, BIN_EDGES, q)
    # No order inside windows leads beyond the bounds, but a bin does.
    return None if value is None or bounds is None else min(max(value, bounds[0]), bounds[1])


def _sum(first: NDArray[np.float64] | None, second: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    return None if first is None or second is None else first + second


def _counts_as(estimated: NDArray[np.float64], returning: int) -> bool:
    """Return whether an estimate that was read spreads as many touches as there are."""
    whole = bool(np.isfinite(estimated).all()) and float(estimated.min()) >= 0
    return whole and abs(float(estimated.sum()) - returning) <= 1e-6 * returning


Picked = TypeVar("Picked")


def _pick(bound: str, lower: Picked, upper: Picked) -> Picked:
    if bound not in BOUNDS:
        raise ValueError(f"bound {bound!r} is neither 'lower' nor 'upper'")
    return lower if bound == "lower" else upper
