"""Power readings in memory, so that a cursor position costs a search and not a query."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from math import isfinite

import numpy as np

from memtui.analysis.energy_parts import part_of
from memtui.core.samples import GPU_COUNTERS, SOCKET_WITH_MEMORY
from memtui.core.units import processes_text, short_size
from memtui.session.session import Session
from memtui.tui.presenters.playhead import Playhead
from memtui.widgets.views.memory import DevicePower, PowerView

_EACH = len(GPU_COUNTERS)
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
        self.counters = array("d")  # as many of each reading as ``GPU_COUNTERS`` names
        self.shared: list[str] = []  # what each reading covers
        self.limit: float | None = None
        self.reason = ""
        self.silences: list[tuple[int, str]] = []  # moments from which on there was no reading, and why

    def view(self, cursor_ns: int) -> DevicePower:
        until = bisect_right(self.times, cursor_ns)
        if not until:
            return DevicePower(self.name, reason=self.reason or "no reading yet")
        watts, joules = np.frombuffer(self.watts)[:until], np.frombuffer(self.joules)[:until]
        finite_joules = joules[np.isfinite(joules)]
        now: float | None = float(watts[-1])
        if cursor_ns - self.times[until - 1] > STALE_NS or now != now:
            now = None
        note = self.shared[until - 1]
        silence = next((s for s in reversed(self.silences) if s[0] <= cursor_ns), (0, ""))
        if silence[0] > self.times[until - 1]:
            now, note = None, silence[1]
        seen = watts[np.isfinite(watts)]
        return DevicePower(
            self.name,
            now_w=now,
            mean_w=float(seen.mean()) if len(seen) else None,
            peak_w=float(seen.max()) if len(seen) else None,
            energy_j=float(finite_joules[-1] - finite_joules[0]) if len(finite_joules) > 1 else None,
            limit_w=self.limit,
            reason="" if len(seen) or len(finite_joules) else self.reason,
            note=note,
            counters=() if now is None else counter_lines(self.counters[(until - 1) * _EACH : until * _EACH]),
            added=self.added,
        )


class PowerLog:
    """Readings of all devices up to the newest sample."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, str], _Device] = {}
        self._until = 0

    def update(self, reader: Session, playhead: Playhead) -> None:
        """Add the readings since the last call."""
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
                values = (getattr(reading, name) for name in GPU_COUNTERS)
                device.counters.extend(np.nan if value is None else value for value in values)
                device.shared.append(shared_by(reading.scope, reading.processes))
                device.limit = reading.limit_w if reading.limit_w is not None else device.limit
        self._until = end

    def view(self, cursor_ns: int) -> PowerView:
        """Return all devices at a moment; averages, peaks and energy since the session began."""
        return PowerView(tuple(device.view(cursor_ns) for device in self._devices.values()))


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
