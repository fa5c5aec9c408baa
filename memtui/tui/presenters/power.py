"""Power readings in memory, so that a cursor position costs a search and not a query."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from math import inf, isfinite, nan

import numpy as np

from memtui.analysis.energy_parts import part_of
from memtui.core.readings import GPU_COUNTERS, SOCKET_WITH_MEMORY, PowerReading
from memtui.core.units import processes_text, short_size
from memtui.session.sample_arrays import Texts
from memtui.session.session import Session
from memtui.tui.presenters.playhead import Playhead
from memtui.widgets.views.memory import DevicePower, PowerView

_SHARES = ((("SM", "sm_active"), ("occup.", "sm_occupancy")), (("tensor", "tensor_active"), ("mem", "dram_active")))
_BUSES = {"pcie": "PCIe", "nvlink": "NVLink"}
STALE_NS = 5_000_000_000
LATE_NS = 3_000_000_000  # a reading may be stored after windows that ended later: another process reads power

_SHORT = {SOCKET_WITH_MEMORY: "CPU", "CPU rail": "CORES", "SoC rail": "SoC", "module with GPU": "MOD"}  # of Grace


class _Device:
    """One source over time."""

    def __init__(self, name: str, *, added: bool = True) -> None:
        self.name, self.added = name, added
        self.times = array("q")  # arrays: there may be hours of ten readings a second
        self.watts = array("d")
        self.joules = array("d")
        self.shared = Texts()  # what each reading covers
        self.newest: PowerReading | None = None
        self.limit: float | None = None
        self.reason = ""
        self.silences: list[tuple[int, str]] = []  # moments from which on there was no reading, and why
        self._sums = _Sums()

    def view(self, cursor_ns: int, counters_at: Callable[[int], tuple[str, ...]]) -> DevicePower:
        """Return the device at a moment; ``counters_at``: what a GPU counted until one of its readings."""
        until = bisect_right(self.times, cursor_ns)
        if not until:
            return DevicePower(self.name, reason=self.reason or "no reading yet")
        if until < self._sums.until:
            self._sums = _Sums()
        sums = self._sums
        sums.add(self.watts[sums.until : until], self.joules[sums.until : until])
        now: float | None = self.watts[until - 1]
        if cursor_ns - self.times[until - 1] > STALE_NS or now != now:
            now = None
        note = self.shared[until - 1]
        silence = next((s for s in reversed(self.silences) if s[0] <= cursor_ns), (0, ""))
        if silence[0] > self.times[until - 1]:
            now, note = None, silence[1]
        return DevicePower(
            self.name,
            now_w=now,
            mean_w=sums.watts / sums.count if sums.count else None,
            peak_w=sums.peak_w if sums.count else None,
            energy_j=sums.last_j - sums.first_j if sums.joules > 1 else None,
            limit_w=self.limit,
            reason="" if sums.count or sums.joules else self.reason,
            note=note,
            counters=() if now is None else counters_at(self.times[until - 1]),
            added=self.added,
        )


class _Sums:
    """The readings up to one, added up: a live cursor adds a few a second to hours of them."""

    def __init__(self) -> None:
        self.until = self.count = self.joules = 0  # readings, and those whose power and whose energy is known
        self.watts, self.peak_w = 0.0, -inf
        self.first_j = self.last_j = 0.0

    def add(self, watts: Sequence[float], joules: Sequence[float]) -> None:
        """Add readings; nan is a value that is not known."""
        self.until += len(watts)
        power, energy = (np.array(values)[np.isfinite(values)] for values in (watts, joules))
        if len(power):
            self.count += len(power)
            self.watts, self.peak_w = self.watts + float(power.sum()), max(self.peak_w, float(power.max()))
        if len(energy):
            self.first_j = self.first_j if self.joules else float(energy[0])
            self.joules, self.last_j = self.joules + len(energy), float(energy[-1])


class PowerLog:
    """Readings of all devices up to the newest sample."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, str], _Device] = {}
        self._until = 0
        self._read: Callable[[int, int], list[PowerReading]] = lambda first_ns, last_ns: []
        self._shown: dict[tuple[str, str], PowerReading] = {}  # of a cursor that is not live, those read last

    def update(self, reader: Session, playhead: Playhead) -> None:
        """Add the readings since the last call."""
        self._read = reader.devices.power
        end = playhead.latest_ns + 1
        if end <= self._until:
            return
        for reading in reader.devices.power(max(0, self._until - LATE_NS), end):
            key = reading.device, reading.scope
            if key not in self._devices:
                added = part_of(reading.scope) is not None
                self._devices[key] = _Device(short_name(reading.device, reading.scope), added=added)
            device = self._devices[key]
            if reading.power_w is None and reading.energy_j is None:
                device.reason = reading.reason or str(reading.status)
                if not device.silences or reading.t_ns > device.silences[-1][0]:
                    device.silences.append((reading.t_ns, device.reason))
            elif not device.times or reading.t_ns > device.times[-1]:
                device.times.append(reading.t_ns)
                device.watts.append(np.nan if reading.power_w is None else reading.power_w)
                device.joules.append(np.nan if reading.energy_j is None else reading.energy_j)
                device.shared.extend((shared_by(reading.scope, reading.processes),))
                device.newest = reading
                device.limit = reading.limit_w if reading.limit_w is not None else device.limit
        self._until = end

    def view(self, cursor_ns: int) -> PowerView:
        """Return all devices at a moment; averages, peaks and energy since the session began."""
        return PowerView(
            tuple(device.view(cursor_ns, partial(self._counters, key)) for key, device in self._devices.items())
        )

    def _counters(self, key: tuple[str, str], t_ns: int) -> tuple[str, ...]:
        """Return the counters of one reading: of a live cursor it is the newest, others are read again."""
        cached = self._devices[key].newest, self._shown.get(key)
        reading = next((r for r in cached if r is not None and r.t_ns == t_ns), None)
        if reading is None:
            readings = {(r.device, r.scope): r for r in self._read(t_ns, t_ns + 1)}
            self._shown |= readings
            reading = readings.get(key)
        values = [getattr(reading, name, None) for name in GPU_COUNTERS]
        return counter_lines([nan if value is None else value for value in values])


def counter_lines(values: Sequence[float]) -> tuple[str, ...]:
    """Return the counters of a GPU (as in ``GPU_COUNTERS``) in lines of up to 27 cells, without those not known."""
    of = dict(zip(GPU_COUNTERS, values, strict=True))
    lines = [
        " ".join(f"{word} {of[name] * 100:.0f} %" for word, name in pair if isfinite(of[name])) for pair in _SHARES
    ]
    for bus in ("pcie", "nvlink"):
        received, sent = of[f"{bus}_rx_bytes_per_s"], of[f"{bus}_tx_bytes_per_s"]
        if isfinite(received) and isfinite(sent) and (received or sent or bus == "pcie"):
            lines.append(f"{_BUSES[bus]} in {short_size(received)}/s out {short_size(sent)}/s")
    return tuple(filter(None, lines))


def shared_by(scope: str, processes: int | None) -> str:
    """Return what a reading of a GPU covers, where that is more than one program: ``board, 3 processes``."""
    if processes is None:
        return scope if scope.startswith("board ") else ""  # a board that is cut into slices
    return f"{scope}, {processes_text(processes)}" if scope.startswith("board") else ""


def short_name(device: str, scope: str) -> str:
    """Return a name in eight cells: ``CPU 0`` for ``CPU package 0``, ``DRAM 0`` for its memory."""
    number = device.rsplit(" ", 1)[-1]
    if scope in ("dram", "psys", "core", "uncore"):
        return f"{scope.upper()} {number}" if number.isdigit() else scope.upper()
    if scope in _SHORT:
        return f"{_SHORT[scope]} {number}"
    return device.replace(" package", "").replace("NVIDIA ", "").replace("AMD GPU", "AMD").replace("Intel GPU", "Intel")
