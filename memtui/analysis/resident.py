"""Resident memory of a process tree by sample: RSS or PSS, one kind for all samples, so that they can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import median
from memtui.core.readings import MemoryUse
from memtui.core.samples import Process

RSS, PSS, SUM_OF_RSS = "RSS", "PSS", "sum of RSS"
SEVERAL_TIMES = "shared pages counted several times"
MEANING = {
    RSS: "of one process",
    PSS: "sum over the processes, a page that n processes map counts for 1/n in each; of a process alone its RSS",
    SUM_OF_RSS: f"sum over the processes, {SEVERAL_TIMES}",
}


@dataclass(frozen=True, slots=True, eq=False)
class Resident:
    """Resident memory by sample.

    Attributes:
        name: ``RSS`` of a process that was always alone; ``PSS`` of a tree, which is RSS in windows of one process;
            ``SUM_OF_RSS`` of a tree whose PSS is not known.
        bytes: f8[n]; nan where it is not known.
    """

    name: str
    bytes: NDArray[np.float64]


class ResidentKind:
    """Which figure is the resident memory of a table of samples that grows. Each sample is looked at once."""

    def __init__(self) -> None:
        self._count, self._last = 0, -1  # number of samples looked at, and the last of them
        self._alone, self._any_pss = True, False

    def of(self, samples: Any, processes: Iterable[Process]) -> str:
        """Return ``RSS``, ``PSS`` or ``SUM_OF_RSS``; ``processes``: of more than one pid if there ever were any."""
        total = len(samples.sample)
        if total < self._count or (self._count and samples.sample[self._count - 1] != self._last):
            self._count, self._alone, self._any_pss = 0, True, False  # there are more samples between them
        if total > self._count:
            new = slice(self._count, total)
            self._alone = self._alone and bool((samples.processes[new] == 1).all())
            self._any_pss = self._any_pss or bool(np.isfinite(samples.pss_bytes[new]).any())
            self._count, self._last = total, int(samples.sample[-1])
        # Old sessions do not store the number of processes by window.
        if self._alone or len({process.pid for process in processes}) < 2:
            return RSS
        return PSS if self._any_pss else SUM_OF_RSS


def resident_bytes(samples: Any, kind: str, of: slice = slice(None)) -> NDArray[np.float64]:
    """Return resident memory of one kind by sample, f8[n]."""
    rss: NDArray[np.float64] = samples.rss_bytes[of]
    if kind != PSS:
        return rss
    pss: NDArray[np.float64] = samples.pss_bytes[of]
    return np.where(samples.processes[of] == 1, rss, pss)


def has_all_processes(gaps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return in which samples resident memory has all processes, bool[n]; ``gaps``: births and ends in each.

    Where children come and go, it lacks those of a moment, and is too small to take a share of it.
    """
    return np.asarray(gaps == 0)


def is_comparable(wss_bytes: NDArray[np.float64], resident_bytes: NDArray[np.float64], kind: str) -> NDArray[np.bool_]:
    """Return in which samples the working set may be taken as a part of the resident memory, bool[n].

    A PSS that is less than what was touched was read earlier in the window, before the processes grew or copied what
    they shared.
    """
    both: NDArray[np.bool_] = np.isfinite(wss_bytes) & np.isfinite(resident_bytes)
    return both & (wss_bytes <= resident_bytes) if kind == PSS else both


def resident(samples: Any, processes: Sequence[Process], uses: Sequence[MemoryUse] = ()) -> Resident:
    """Return the resident memory of a session, from its table of samples.

    ``processes``: all that it recorded. ``uses``: readings between windows, which see children that began and ended
    between two windows.
    """
    kind = ResidentKind().of(samples, processes)
    of_several = [use for use in uses if use.processes > 1]
    if kind != PSS and of_several:
        kind = PSS if any(use.pss_bytes is not None for use in of_several) else SUM_OF_RSS
    return Resident(kind, resident_bytes(samples, kind))


def touched_fraction(
    wss_bytes: NDArray[np.float64], memory: Resident, of: slice = slice(None)
) -> tuple[float, float] | None:
    """Return (fraction, bytes): the median working set as a part of the median resident memory, of the same windows.

    ``wss_bytes``: of the windows ``of``, nan for windows that are not counted. None where no window has both figures
    (``is_comparable``), or where only one of the two counts shared pages once.
    """
    wss, resident_bytes = wss_bytes, memory.bytes[of]
    comparable = is_comparable(wss, resident_bytes, memory.name)
    if memory.name == SUM_OF_RSS or not comparable.any() or not (whole := median(resident_bytes[comparable])):
        return None
    return median(wss[comparable]) / whole, whole
