"""The energy of a recording by part of the machine: GPU boards, CPU packages, DRAM, and the rest.

A part has a figure only where each of its devices has one, and a sum exists only where every part was measured over the
whole recording: nothing is added up over a hole. What is inside another figure, or may be, is never added to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memtui.analysis.energy import NS, from_power
from memtui.core.readings import CHASSIS, GPU_PACKAGE, GPU_WITH_CPU, SOCKET_WITH_MEMORY, PowerReading
from memtui.core.samples import Status
from memtui.core.units import processes_text

GPU, CPU, DRAM, REST = "GPU boards", "CPU packages", "DRAM", "rest of the machine"
PARTS = (GPU, CPU, DRAM, REST)
# Scopes of GPUs that are not a board's, and why they give no energy of the boards.
_NO_BOARD = {
    GPU_PACKAGE: "it counts the energy of its package only",
    GPU_WITH_CPU: "its sensor has the CPU beside it, too",
}
_LATE_FRACTION, _LATE_NS = 0.05, 5 * NS  # of the recording, both ends together: what may be without a reading
_LONGEST_GAP_NS = 12 * NS  # between two readings of a sensor; they are at most 5 s apart unless one is missing
_NO_DRAM = "no counter of its own"
_UNCLEAR_DRAM = "the package's counter may have it already, on a processor with graphics: not added"


@dataclass(frozen=True, slots=True)
class EnergyPart:
    """The energy of one part of the machine.

    Attributes:
        part: one of ``PARTS``.
        energy_j: energy between the first and the last reading; None with a reason.
        source: what it was measured by.
        devices: what it is the sum of, each with those who shared it.
        measured_s: time that it is of.
        whole: whether that is the whole recording.
        inside: the part whose figure has this one in it; "" where it has a figure of its own.
        added: whether the figure may be added to those of other parts.
        status: ``ok`` with a figure, or why there is none.
        reason: why there is no figure, or what is said of it.
    """

    part: str
    energy_j: float | None = None
    source: str = ""
    devices: tuple[str, ...] = ()
    measured_s: float = 0.0
    whole: bool = False
    inside: str = ""
    added: bool = False
    status: str = Status.UNSUPPORTED
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EnergyOfMachine:
    """The parts, and their sum where there is one. ``reason``: why there is none."""

    parts: tuple[EnergyPart, ...]
    total_j: float | None
    reason: str


def part_of(scope: str) -> str | None:
    """Return the part to which a source is added; None: it lies inside another one's figure, or nobody knows."""
    if scope.startswith("board"):  # "board (shared by MIG)"
        return GPU
    return {"package": CPU, SOCKET_WITH_MEMORY: CPU, "dram": DRAM}.get(scope)


def by_source(readings: Iterable[PowerReading]) -> dict[tuple[str, str], list[PowerReading]]:
    """Return the readings of each source, by device and scope, in their order."""
    readings_by_source: dict[tuple[str, str], list[PowerReading]] = defaultdict(list)
    for reading in readings:
        readings_by_source[reading.device, reading.scope].append(reading)
    return readings_by_source


def energy_of_machine(readings: Sequence[PowerReading], start_ns: int, end_ns: int) -> EnergyOfMachine:
    """Return the parts of the energy between two moments, the first and the last of a recording."""
    by_device = by_source(readings)
    devices = [_of_device(rows, start_ns, end_ns) for rows in by_device.values()]
    by_part = {p: _part(p, [d for d in devices if part_of(d.scope) == p]) for p in (CPU, DRAM)}
    by_part[GPU] = _part(GPU, _boards(devices))
    by_part[DRAM] = _memory(by_part[DRAM], by_part[CPU], by_device.keys())
    parts = [by_part[GPU], by_part[CPU], by_part[DRAM]]
    machine = [d for d in devices if d.scope == CHASSIS]
    if not machine:
        rest = EnergyPart(REST, reason="no sensor of the whole machine")
        return _without_sum((*parts, rest))
    whole = _part(REST, machine)
    return _with_machine(parts, whole)


@dataclass(frozen=True, slots=True)
class _Device:
    """One source: its energy, or why it has none. ``found``: it is a device, and not the word that there is none."""

    device: str
    scope: str
    exists: bool
    source: str
    processes: int | None
    energy_j: float | None
    start_ns: int
    end_ns: int
    whole: bool
    status: str
    reason: str

    @property
    def text(self) -> str:
        """Return the device, and who shares it."""
        shared = "" if self.scope in ("board", "package", "dram", CHASSIS) else f" {self.scope}"
        return f"{self.device}{shared}" + (f", {processes_text(self.processes)}" if self.processes is not None else "")


def _of_device(rows: Sequence[PowerReading], start_ns: int, end_ns: int) -> _Device:
    counted = [(row.t_ns, row.energy_j) for row in rows if row.energy_j is not None]
    drawn = [(row.t_ns, row.power_w) for row in rows if row.power_w is not None]
    last = rows[-1]
    by_counter = len(counted) > 1
    times = [t_ns for t_ns, _ in (counted if by_counter else drawn)]
    family = last.source.partition(" ")[0]
    device = _Device(
        device=last.device,
        scope=last.scope,
        exists=any(character.isdigit() for character in last.device) or bool(times),
        source=f"{family} counter" if by_counter else f"{last.source} integrated",
        processes=max((row.processes for row in rows if row.processes is not None), default=None),
        energy_j=None,
        start_ns=times[0] if times else start_ns,
        end_ns=times[-1] if times else start_ns,
        whole=False,
        status=last.status if not times and last.status != Status.OK else Status.FAILED,
        reason=last.reason or "no reading",
    )
    if len(times) < 2:
        return replace(device, reason=device.reason if not times else "only one reading")
    late_ns = max(times[0] - start_ns, 0) + max(end_ns - times[-1], 0)
    whole = late_ns <= min(_LATE_FRACTION * (end_ns - start_ns), _LATE_NS)
    device = replace(device, whole=whole)
    if by_counter:
        values = np.array([value for _, value in counted])
        if (np.diff(values) < 0).any():
            return replace(device, reason="its counter was reset, or not read for some time")
        if values[-1] == values[0]:  # whatever is powered draws something
            return replace(device, reason="its counter did not move")
        return replace(device, energy_j=float(values[-1] - values[0]), status=Status.OK, reason="")
    if (np.diff(times) > _LONGEST_GAP_NS).any():
        return replace(device, reason=f"no reading for {np.diff(times).max() / NS:.0f} s")
    integral = from_power(times, [value for _, value in drawn], times[0], times[-1])
    status = Status.OK if integral.energy_j is not None else Status.FAILED
    return replace(device, energy_j=integral.energy_j, status=status, reason=integral.reason)


def _boards(devices: Sequence[_Device]) -> list[_Device]:
    """Return the boards, and those GPUs of whose boards nothing is known: they are a hole."""
    boards = [device for device in devices if part_of(device.scope) == GPU]
    # The graphics of a processor, beside a board, are in the figure of its package.
    with_cpu = GPU_WITH_CPU if any(board.exists for board in boards) else ""
    return boards + [
        replace(d, energy_j=None, status=Status.UNSUPPORTED, reason=_NO_BOARD[d.scope])
        for d in devices
        if d.scope in _NO_BOARD and d.scope != with_cpu
    ]


def _part(part: str, devices: Sequence[_Device]) -> EnergyPart:
    """Return the sum of some devices; n/a where one of them has no figure."""
    real = [device for device in devices if device.exists]
    families = {device.source.split()[0] for device in real}
    # That there is no driver of one make says nothing where there are devices of another; that it fails does.
    failed = [
        d for d in devices if not d.exists and d.status != Status.UNSUPPORTED and d.source.split()[0] not in families
    ]
    devices = real + failed if real else devices
    missing = [device for device in devices if device.energy_j is None]
    names = tuple(device.text for device in devices if device.exists)
    if not devices or missing:
        named = real and len(devices) > 1
        reason = "; ".join(dict.fromkeys(f"{d.device}: {d.reason}" if named else d.reason for d in missing))
        status = missing[0].status if missing else Status.UNSUPPORTED
        return EnergyPart(part, devices=names, status=status, reason=reason or "not read")
    return EnergyPart(
        part,
        energy_j=sum(device.energy_j or 0.0 for device in devices),
        source=", ".join(dict.fromkeys(device.source for device in devices)),
        devices=names,
        measured_s=min(device.end_ns - device.start_ns for device in devices) / NS,
        whole=all(device.whole for device in devices),
        added=True,
        status=Status.OK,
    )


def _memory(memory: EnergyPart, cpu: EnergyPart, devices: Collection[tuple[str, str]]) -> EnergyPart:
    """Return DRAM with what is known of its relation to the packages. ``devices``: and scopes of the machine."""
    scopes = {scope for _, scope in devices}
    if SOCKET_WITH_MEMORY in scopes:
        # Whether these sockets have a figure or not: memory has none of its own there.
        return EnergyPart(DRAM, inside=CPU, reason=f"in the figure of the {CPU}")
    # A package of several dies may have one counter of its memory.
    packages, with_memory = (
        {device.partition(" die ")[0] for device, scope in devices if scope == kind} for kind in ("package", "dram")
    )
    if memory.energy_j is not None and (without := sorted(packages - with_memory)):
        return EnergyPart(DRAM, reason=f"{', '.join(without)} has no counter of its memory")
    if memory.energy_j is not None and "uncore" in scopes:
        return replace(memory, added=False, reason=_UNCLEAR_DRAM)
    if memory.energy_j is None and not memory.devices:
        return EnergyPart(DRAM, reason=_NO_DRAM) if cpu.energy_j is not None else replace(cpu, part=DRAM, devices=())
    return memory


def _without_sum(parts: tuple[EnergyPart, ...]) -> EnergyOfMachine:
    """Return parts of which one has no figure: the rest of the machine at least."""
    return EnergyOfMachine(parts, None, "; ".join(_why_no_sum(parts)))


def _why_no_sum(parts: Sequence[EnergyPart]) -> list[str]:
    """Return what prevents a sum, in the order of the parts; those with one reason stand together."""
    unknown: dict[str, list[str]] = {}
    for part in parts:
        if part.energy_j is None and not part.inside:
            unknown.setdefault(part.reason, []).append(part.part)
    reasons: dict[str, None] = {}
    for part in parts:
        if part.inside:
            continue
        if part.energy_j is None:
            reasons[f"{' and '.join(unknown[part.reason])} n/a ({part.reason})"] = None
        elif not part.added:
            reasons[f"{part.part}: {part.reason}"] = None
        elif not part.whole:
            reasons[f"{part.part} for {part.measured_s:.1f} s only"] = None
    return list(reasons)


def _with_machine(parts: list[EnergyPart], machine: EnergyPart) -> EnergyOfMachine:
    """Return the parts with what is left of the machine's own figure, which is the total."""
    if machine.energy_j is None:
        return _without_sum((*parts, machine))
    rest = EnergyPart(REST, reason="known only where all other parts are")
    missing = _why_no_sum(parts)
    if not missing and machine.whole:
        rest_j = machine.energy_j - sum(part.energy_j or 0.0 for part in parts)
        if rest_j >= 0:
            rest = replace(machine, energy_j=rest_j, reason="the whole machine less the parts")
        else:
            rest = replace(rest, status=Status.FAILED, reason="the parts drew more than the sensor of the machine says")
            return EnergyOfMachine((*parts, rest), None, f"{REST} n/a ({rest.reason})")
    if not machine.whole:
        return EnergyOfMachine((*parts, rest), None, f"the machine for {machine.measured_s:.1f} s only")
    return EnergyOfMachine((*parts, rest), machine.energy_j, "")
