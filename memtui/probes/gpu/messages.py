"""Reports of the process that calls the driver of GPUs: a line of JSON about the driver, then one per reading."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from memtui.core.readings import PowerReading
from memtui.core.samples import Capability
from memtui.probes.gpu.processes import Holding


@dataclass(frozen=True, slots=True)
class DriverReport:
    """Whether the driver can be used, and why not. Sent once, first of all."""

    capability: Capability


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One reading of all GPUs, and who holds their memory at that moment. ``pause_s``: until the next one."""

    readings: tuple[PowerReading, ...]
    holdings: tuple[Holding, ...]
    pause_s: float = 0.0


def to_line(report: DriverReport | GpuReport) -> bytes:
    """Return one line of JSON."""
    return json.dumps(asdict(report)).encode() + b"\n"


def from_line(line: bytes) -> DriverReport | GpuReport:
    """Undo ``to_line``. Raises ValueError, TypeError and KeyError for anything else."""
    fields = json.loads(line)
    if "capability" in fields:
        return DriverReport(Capability(**fields["capability"]))
    readings = tuple(PowerReading(**reading) for reading in fields["readings"])
    holdings = tuple(Holding(**holding) for holding in fields["holdings"])
    return GpuReport(readings, holdings, float(fields["pause_s"]))
