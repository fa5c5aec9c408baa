"""The energy of one device, for fast polling: the counter and the sensor of a GPU, or of the CPU packages.

``PowerProbe`` reads all values of every device twice a second. To measure an operator, one value of one device is
needed a thousand times a second; the others (clocks, temperature) once for each window.
"""

from __future__ import annotations

import importlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

from memtui.probes.gpu.nvml import library_problem
from memtui.probes.host import cpu_information
from memtui.probes.power.rapl import NO_ZONE, RaplProbe

# Why a GPU's clock is held down (NVML's "clocks event reasons"), and those that spoil a measurement.
_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "hardware power brake",
    0x100: "display clock",
}
SPOILING = frozenset(("hardware slowdown", "software thermal", "hardware thermal", "hardware power brake"))
WHOLE_MACHINE = Path("/sys/devices/system/cpu/online")  # anybody may open it, so anybody may lock it


class NoSource(Exception):
    """No energy can be read; the text says why."""


class EnergySource(ABC):
    """A source of the energy of a device.

    Attributes:
        name: of the counter or sensor.
        scope: the part of the machine that it measures.
        sensor: kind of the power sensor: the draw at the moment (``instant``), or a mean over time (``average``); empty
            without a sensor.
        limit_w: the limit that the device enforces.
    """

    name: str
    scope: str
    sensor: str = ""
    limit_w: float | None = None

    @abstractmethod
    def read(self) -> tuple[float, float]:
        """Return (counter in joules, sensor in watts); nan for a value that the device does not have."""

    def state(self) -> dict[str, Any]:
        """Return clocks, temperature, and why the clock is held down, as far as they are known."""
        return {}

    def computing(self, since_wall_ns: int) -> set[int]:
        """Return the processes that computed on the device since this time of the wall clock.

        Those that have it open where the driver does not say how they use it. A use below 1 % counts as none.
        """
        return set()

    def close(self) -> None:  # noqa: B027 (some have nothing to release)
        """Release the device."""


class RaplEnergy(EnergySource):
    """All CPU packages together, by their RAPL counters. Raises NoSource."""

    name, scope = "rapl", "cpu_package"

    def __init__(self, *, sys_root: Path | str = "/sys", clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._probe = RaplProbe(sys_root=sys_root, clock=clock)
        self._clock = clock
        readings = [r for r in self._probe.read(clock()) if r.scope == "package"]
        if missing := [r.reason for r in readings if r.energy_j is None]:
            self._probe.close()
            why = missing[0]
            if why == NO_ZONE and "hypervisor" in cpu_information("flags").split():
                why = "no RAPL zone: this is a virtual machine"
            raise NoSource(why)

    def read(self) -> tuple[float, float]:
        energies_j = [r.energy_j for r in self._probe.read(self._clock()) if r.scope == "package"]
        return (nan if None in energies_j else sum(j for j in energies_j if j is not None)), nan

    def close(self) -> None:
        self._probe.close()


class NvmlEnergy(EnergySource):
    """The board of one NVIDIA GPU. Raises NoSource."""

    scope = "gpu_board"

    def __init__(self, uuid: str) -> None:
        """``uuid``: as the driver gives it, with or without ``GPU-``."""
        if problem := library_problem():
            raise NoSource(problem[1].reason)
        self._nvml: Any = importlib.import_module("pynvml")
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        except nvml.NVMLError as error:
            raise NoSource(f"the NVIDIA library says: {error}") from None
        mig = self._query("nvmlDeviceGetMigMode")
        if mig and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            raise NoSource("MIG is on: the board's energy belongs to all of its instances together")
        limit = self._query("nvmlDeviceGetEnforcedPowerLimit")
        self.limit_w = limit / 1000 if limit else None
        self._field = (nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_GPU)
        self._counts = bool(self._query("nvmlDeviceGetTotalEnergyConsumption"))
        self._instant = bool(self._instant_mw())
        if not self._counts and not self._query("nvmlDeviceGetPowerUsage") and not self._instant:
            raise NoSource("this GPU tells neither energy nor power")
        self.sensor = "instant" if self._instant else "average"
        self.name = "nvml counter" if self._counts else f"nvml {self.sensor}"

    def _query(self, call: str, *arguments: Any) -> Any:
        """Return the result of a call; None where it fails."""
        try:
            return getattr(self._nvml, call)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError, OSError, ValueError):
            return None

    def _instant_mw(self) -> int | None:
        fields = self._query("nvmlDeviceGetFieldValues", [self._field])
        return int(fields[0].value.uiVal) if fields and fields[0].nvmlReturn == 0 else None

    def read(self) -> tuple[float, float]:
        counted = self._query("nvmlDeviceGetTotalEnergyConsumption") if self._counts else None
        drawn = self._instant_mw() if self._instant else self._query("nvmlDeviceGetPowerUsage")
        return (nan if counted is None else counted / 1000), (drawn / 1000 if drawn else nan)

    def state(self) -> dict[str, Any]:
        nvml = self._nvml
        bits = self._query("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._query("nvmlDeviceGetCurrentClocksThrottleReasons")
        state = {
            "sm_mhz": self._query("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_mhz": self._query("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "temperature_c": self._query("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "held_down": None if bits is None else [word for bit, word in _REASONS.items() if bits & bit],
        }
        return {key: value for key, value in state.items() if value is not None}

    def computing(self, since_wall_ns: int) -> set[int]:
        nvml, since_us = self._nvml, since_wall_ns // 1000
        try:
            uses = nvml.nvmlDeviceGetProcessUtilization(self._handle, since_us)
        except nvml.NVMLError_NotFound:
            return set()  # nothing has run on it since then
        except (nvml.NVMLError, OSError, ValueError):
            processes = self._query("nvmlDeviceGetComputeRunningProcesses") or []
            return {process.pid for process in processes}
        return {use.pid for use in uses if use.pid and use.timeStamp > since_us and 0 < use.smUtil <= 100}

    def lock_path(self) -> Path:
        """Return a file of this device that anybody may lock."""
        minor = self._query("nvmlDeviceGetMinorNumber")
        path = Path(f"/dev/nvidia{minor}")
        return path if minor is not None and os.access(path, os.R_OK) else WHOLE_MACHINE

    def close(self) -> None:
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            pass


def open_source(device: str, uuid: str) -> EnergySource:
    """Return the energy source of ``cpu`` or of the CUDA device with this UUID. Raises NoSource."""
    return RaplEnergy() if device == "cpu" else NvmlEnergy(uuid)


def lock_path(source: EnergySource | None) -> Path:
    """Return the file to lock, so that one measurement at a time runs on a device."""
    return source.lock_path() if isinstance(source, NvmlEnergy) else WHOLE_MACHINE
