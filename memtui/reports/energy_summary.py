"""The part of a report on energy by part of the machine, and on its CO2 where the user says that of a kWh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memtui.analysis.energy_parts import CPU, DRAM, EnergyPart, energy_of_machine
from memtui.core.readings import PowerReading
from memtui.core.units import duration, energy, mass

KWH_J = 3.6e6


@dataclass(frozen=True, slots=True)
class Co2Summary:
    """CO2 of what was measured.

    Attributes:
        g_per_kwh: the user's figure.
        co2_g: grams; None with a reason.
        of: what it is of: the names of the parts, or "the whole machine".
        partial: whether that is a part of the energy only.
        reason: why there is no figure.
    """

    g_per_kwh: float
    co2_g: float | None
    of: tuple[str, ...]
    partial: bool
    reason: str


@dataclass(frozen=True, slots=True)
class EnergySummary:
    """Energy of the recorded time.

    Attributes:
        parts: every part of the machine, with its energy or why that is not known.
        total_j: energy of the machine; None with a reason unless it was measured over the whole recording.
        reason: why there is no total.
        co2: None unless the user says how much CO2 is in a kWh.
    """

    parts: tuple[EnergyPart, ...]
    total_j: float | None
    reason: str
    co2: Co2Summary | None


def energy_summary(
    readings: Sequence[PowerReading], start_ns: int, end_ns: int, gco2_per_kwh: float | None = None
) -> EnergySummary | None:
    """Return the energy of the parts between two moments; None without any reading."""
    if not readings:
        return None
    energy = energy_of_machine(readings, start_ns, end_ns)
    co2 = None if gco2_per_kwh is None else _co2(energy.parts, energy.total_j, gco2_per_kwh)
    return EnergySummary(energy.parts, energy.total_j, energy.reason, co2)


def _co2(parts: Sequence[EnergyPart], total_j: float | None, g_per_kwh: float) -> Co2Summary:
    if total_j is not None:
        return Co2Summary(g_per_kwh, total_j / KWH_J * g_per_kwh, ("the whole machine",), False, "")
    measured = [part for part in parts if part.energy_j is not None and part.added]
    if not measured:
        return Co2Summary(g_per_kwh, None, (), True, "no part was measured")
    joules = sum(part.energy_j or 0.0 for part in measured)
    return Co2Summary(g_per_kwh, joules / KWH_J * g_per_kwh, tuple(part.part for part in measured), True, "")


def energy_lines(summary: EnergySummary | None) -> list[str]:
    """Return the lines of the report: one for each part that has a figure, and the total or what it lacks."""
    if summary is None:
        return []
    measured = [part for part in summary.parts if part.energy_j is not None]
    lines = [f"{part.part}: {energy(part.energy_j or 0.0)}, {part_figure(part)}" for part in measured]
    return [f"energy       {line}" for line in [*lines, *energy_notes(summary)]]


def part_figure(part: EnergyPart) -> str:
    """Return by what a part was measured, whose energy is in it, and since when; or why it has no figure."""
    if part.energy_j is None:
        return part.reason
    whose = "; ".join(part.devices)
    if part.part in (CPU, DRAM):
        whose += ", with all that ran on them" if len(part.devices) > 1 else ", with all that ran on it"
    details = [f"{part.source} ({whose})", "" if part.whole else f"over {duration(part.measured_s)} only", part.reason]
    return ", ".join(filter(None, details))


def energy_notes(summary: EnergySummary) -> list[str]:
    """Return the total, or why there is none, and CO2."""
    total = f"total: {energy(summary.total_j)}" if summary.total_j is not None else f"no total: {summary.reason}"
    return [total, *([] if summary.co2 is None else [_co2_note(summary.co2)])]


def _co2_note(co2: Co2Summary) -> str:
    at = f"at {co2.g_per_kwh:g} g/kWh (your figure)"
    if co2.co2_g is None:
        return f"no CO2 {at}: {co2.reason}"
    partial = ", a part of the energy only" if co2.partial else ""
    return f"{mass(co2.co2_g)} CO2 {at}, of {' and '.join(co2.of)}{partial}"
