"""Resident memory of a process tree by sample: RSS or PSS, one kind for all samples, so that they can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.fast_numpy import median
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
        alone: bool[n]: one process only in that window.
    """

    name: str
    bytes: NDArray[np.float64]
    alone: NDArray[np.bool_]


def resident(samples: Any, processes: Iterable[Process]) -> Resident:
    """Return the resident memory of a session, from its table of samples; ``processes``: all that it recorded."""
    always = len({process.pid for process in processes}) < 2  # old sessions do not store the number by window
    alone = np.full(len(samples.sample), always) | (samples.processes == 1)
    if alone.all():
        return Resident(RSS, samples.rss_bytes, alone)
    if not np.isfinite(samples.pss_bytes).any():
        return Resident(SUM_OF_RSS, samples.rss_bytes, alone)
    return Resident(PSS, np.where(alone, samples.rss_bytes, samples.pss_bytes), alone)


def touched_fraction(
    wss_bytes: NDArray[np.float64], memory: Resident, of: slice = slice(None)
) -> tuple[float, float] | None:
    """Return (fraction, bytes): the median working set as a part of the median resident memory, of the same windows.

    ``wss_bytes``: of the windows ``of``, nan for windows that are not counted. None where no window has both figures,
    or where only one of the two counts shared pages once.
    """
    wss, resident_bytes = wss_bytes, memory.bytes[of]
    both_known = np.isfinite(wss) & np.isfinite(resident_bytes)
    if memory.name == SUM_OF_RSS or not both_known.any() or not (whole := median(resident_bytes[both_known])):
        return None
    return median(wss[both_known]) / whole, whole
