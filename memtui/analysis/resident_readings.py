"""Resident memory over time: what windows measured at their ends, and the readings between them.

Windows may be half a minute apart. What a program allocates and frees between two of them is seen in the readings of
the whole tree, some times a second, alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.resident import PSS, Resident
from memtui.core.readings import MemoryUse
from memtui.core.samples import End

EXIT_NS = 100_000_000  # before its end
DIFFERENT_RSS = 0.05  # of two readings


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Values of resident memory, and the time that each stands for.

    Attributes:
        bytes: f8[n]; nan where it is not known.
        read_ns: i8[n], when it was read, or the end of the window that it was read in.
        start_ns: i8[n], the start of that time.
        end_ns: i8[n], its end.
        at_most_bytes: an upper bound of all values where some were not read, but follow from the RSS
            (``resident_readings``); None where all were read.
    """

    bytes: NDArray[np.float64]
    read_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    at_most_bytes: int | None = None

    @property
    def lengths_ns(self) -> NDArray[np.int64]:
        """The times as weights of a mean."""
        return self.end_ns - self.start_ns


def before_exit(uses: Sequence[MemoryUse], end: End | None) -> Sequence[MemoryUse]:
    """Return the readings without those that a program gave while it was on its way out.

    An interpreter frees its objects before it exits, and a reading stands for the time around it.
    """
    if end is None or not end.of_target:
        return uses
    running = list(uses)
    while len(running) > 1 and running[-1].t_ns > end.t_ns - EXIT_NS and running[-1].rss_bytes < running[-2].rss_bytes:
        running.pop()
    return running


def rss_readings(samples: Any, uses: Sequence[MemoryUse]) -> Readings:
    """Return the RSS, or the sum of those of several processes, of a table of samples and of ``uses``."""
    values = np.where(_lacks_children(samples, uses), np.nan, samples.rss_bytes[:])
    return _with_more(samples, values, [(use.t_ns, use.rss_bytes) for use in uses])


def _lacks_children(samples: Any, uses: Sequence[MemoryUse]) -> NDArray[np.bool_]:
    """Return of which windows the sizes do not count: b1[n].

    Where children come and go, the newest ones are not known at the end of one. Readings between windows have them,
    and are larger then.
    """
    times = np.array([use.t_ns for use in uses], np.int64)
    sizes = np.array([use.rss_bytes for use in uses], np.float64)
    first, last = (np.searchsorted(times, moments) for moments in (samples.start_ns[:], samples.end_ns[:]))
    most = [sizes[low:high].max(initial=0) for low, high in zip(first.tolist(), last.tolist(), strict=True)]
    return (samples.gaps[:] > 0) & (np.array(most, np.float64) > samples.rss_bytes[:])


def resident_readings(samples: Any, resident: Resident, uses: Sequence[MemoryUse]) -> Readings:
    """Return the resident memory of ``samples``, of its kind, with the readings ``uses``.

    A window repeats the last PSS that was read, which may be old: a PSS counts once, at the time of its reading where
    that is known, else in the first window that has it. Between its readings the PSS follows the sum of the RSS, which
    is read more often: what sharing saves, their difference, is taken to change evenly from reading to reading. That
    is wrong where a short-lived child copies what it shares, which its RSS does not show: the sum of RSS is a bound.
    """
    if resident.name != PSS:
        return rss_readings(samples, uses)
    of_several = pss_of_several(uses)
    of_one = [(use.t_ns, use.rss_bytes) for use in uses if use.processes == 1]
    values = resident.bytes
    if of_several:
        first = np.concatenate(([True], values[1:] != values[:-1]))
        new = first & ~np.isin(values, [pss_bytes for _, pss_bytes in of_several])
        alone = samples.processes[:] == 1
        values = np.where((alone | new) & ~_lacks_children(samples, uses), values, np.nan)
    readings = _with_more(samples, values, of_several + of_one)
    not_read = [use.rss_bytes for use in uses if use.processes > 1 and use.pss_bytes is None]
    if not of_several or not not_read:
        return readings
    return replace(readings, at_most_bytes=max(*not_read, int(np.nanmax(readings.bytes))))


def pss_of_several(uses: Sequence[MemoryUse]) -> list[tuple[int, int]]:
    """Return (time, PSS) of the readings of several processes, by their number and time.

    The difference to the RSS is that of PSS readings of as many processes: between two of them in proportion to the
    RSS where that of both differs (workers that begin map little of what they will share), else to the time; outside
    them that of the nearest. Without such a reading the PSS is not known.
    """
    sums: list[tuple[int, int]] = []
    for processes in sorted({use.processes for use in uses} - {1}):
        alike = [use for use in uses if use.processes == processes]
        read = [(use.t_ns, use.rss_bytes, use.rss_bytes - use.pss_bytes) for use in alike if use.pss_bytes is not None]
        if not read:
            continue
        after = np.searchsorted([t_ns for t_ns, _, _ in read], [use.t_ns for use in alike])
        for use, n in zip(alike, after.tolist(), strict=True):
            saved_bytes = _saved_bytes(use, read[max(n - 1, 0)], read[min(n, len(read) - 1)])
            pss_bytes = max(use.rss_bytes - saved_bytes, 0) if use.pss_bytes is None else use.pss_bytes
            sums.append((use.t_ns, pss_bytes))
    return sums


def _saved_bytes(use: MemoryUse, before: tuple[int, int, int], after: tuple[int, int, int]) -> int:
    """Return what sharing saves at a reading, from (time, RSS, what sharing saves) of those before and after it."""
    by_rss = abs(after[1] - before[1]) > DIFFERENT_RSS * before[1]
    at, first, last = (use.rss_bytes, before[1], after[1]) if by_rss else (use.t_ns, before[0], after[0])
    part = min(max((at - first) / (last - first), 0.0), 1.0) if last != first else 0.0
    return round(before[2] + part * (after[2] - before[2]))


def _with_more(samples: Any, values: NDArray[np.float64], more: Sequence[tuple[int, int]]) -> Readings:
    """Return the values of windows and ``more`` values with their times; each reaches halfway to the next.

    Readings from before the first window are left out. Without any, a value is that of its window.
    """
    start_ns, end_ns = samples.start_ns[:], samples.end_ns[:]
    more = [(t_ns, size_bytes) for t_ns, size_bytes in more if len(start_ns) and t_ns > start_ns[0]]
    if not more:
        return Readings(values, end_ns, start_ns, end_ns)
    finite = np.isfinite(values)
    times = np.concatenate((end_ns[finite], np.array([t_ns for t_ns, _ in more], np.int64)))
    sizes = np.concatenate((values[finite], np.array([size_bytes for _, size_bytes in more], np.float64)))
    order = np.argsort(times, kind="stable")
    times = times[order]
    halfway = times[:-1] + (times[1:] - times[:-1]) // 2
    return Readings(
        sizes[order],
        times,
        np.concatenate((start_ns[:1], halfway)),
        np.concatenate((halfway, [max(times[-1], end_ns[-1])])),
    )


def windows_without(resident: Resident, samples: Any, readings: Readings) -> int:
    """Return the number of windows whose resident memory is not known, and in which none was read."""
    read_ns = np.sort(readings.read_ns[np.isfinite(readings.bytes)])
    first, last = (np.searchsorted(read_ns, times, side="right") for times in (samples.start_ns[:], samples.end_ns[:]))
    return int(np.count_nonzero(np.isnan(resident.bytes) & (first == last)))
