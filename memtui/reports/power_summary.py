"""The part of a report on power and energy, by source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memtui.analysis.energy_parts import by_source
from memtui.core.readings import CHASSIS, PowerReading
from memtui.core.samples import Status
from memtui.core.units import energy, power, processes_text


@dataclass(frozen=True, slots=True)
class PowerSummary:
    """Mean power and energy of one source.

    Attributes:
        device, scope, source: what was measured, and by which interface: see ``core.readings.PowerReading``.
        status, reason: why figures are missing; a reason together with figures says since when they are missing.
        mean_w: mean of the readings.
        energy_j: rise of the device's counter; where it fell, it was reset and has a new origin.
        processes: largest number of processes that used the device at once.
    """

    device: str
    scope: str
    source: str
    status: str
    reason: str
    mean_w: float | None
    energy_j: float | None
    processes: int | None


def power_summaries(readings: Sequence[PowerReading]) -> tuple[PowerSummary, ...]:
    """Return mean power and energy per source."""
    return tuple(_of_source(rows) for rows in by_source(readings).values())


def _of_source(rows: Sequence[PowerReading]) -> PowerSummary:
    watts = [row.power_w for row in rows if row.power_w is not None]
    joules = [row.energy_j for row in rows if row.energy_j is not None]
    last = rows[-1]
    return PowerSummary(
        device=last.device,
        scope=last.scope,
        source=last.source,
        status=Status.OK if watts or joules else last.status,
        reason=last.reason if last.power_w is None and last.energy_j is None else "",
        mean_w=float(np.mean(watts)) if watts else None,
        energy_j=sum(max(b - a, 0.0) for a, b in pairwise(joules)) if len(joules) > 1 else None,
        processes=max((row.processes for row in rows if row.processes is not None), default=None),
    )


def power_line(source: PowerSummary) -> str:
    """Return the line of the report."""
    mean = f"mean {power(source.mean_w)}" if source.mean_w is not None else f"n/a: {source.reason}"
    joules = f", {energy(source.energy_j)}" if source.energy_j is not None else ""
    shared = f", {processes_text(source.processes)}" if source.processes is not None else ""
    since = f" ({source.reason})" if source.reason and source.mean_w is not None else ""
    by = f" by {source.source}" if source.scope == CHASSIS else ""  # there are two, and one says its cadence
    return f"power        {source.device} {source.scope}{shared}: {mean}{joules}{by}{since}"
