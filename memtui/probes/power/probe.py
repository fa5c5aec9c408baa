"""All power sources of this machine as one probe: GPUs by their drivers, CPUs and memory through RAPL, or hwmon."""

from __future__ import annotations

from pathlib import Path

from memtui.core.readings import PowerReading
from memtui.core.samples import Capability, Status
from memtui.probes.gpu.amd import amd, no_device
from memtui.probes.gpu.client import GpuProcess
from memtui.probes.gpu.intel import intel, no_counter
from memtui.probes.gpu.nvml import NO_GPU
from memtui.probes.gpu.processes import Holders, unknown
from memtui.probes.power.chassis import ChassisProbe
from memtui.probes.power.hwmon import HwmonProbe
from memtui.probes.power.rapl import RaplProbe

_LEFT_OUT = Capability("nvml", False, "GPU readings are switched off", "")


class PowerProbe:
    """Reads every power source; a reading of a missing source says why it is missing."""

    def __init__(self, *, sys_root: Path | str = "/sys", nvml: bool = True, chassis: bool = False) -> None:
        """Find the sources; never raises.

        Args:
            sys_root: where sysfs is mounted.
            nvml: also look for NVIDIA GPUs.
            chassis: also ask the management controller of the machine.
        """
        self._nvidia = GpuProcess() if nvml else None
        root = Path(sys_root)
        self._amd, self._intel = (GpuProcess(driver) if driver else None for driver in (amd(root), intel(root)))
        self._rapl = RaplProbe(sys_root=sys_root)
        self._hwmon = HwmonProbe(sys_root=sys_root)
        self._chassis = ChassisProbe()
        self._asks_chassis = chassis
        self.holders: Holders | None = None  # who held GPU memory, from the last ``read``; None: nothing new

    def read(self, t_ns: int) -> tuple[PowerReading, ...]:
        """Return the new readings. Never waits for a driver.

        CPUs are read now, at ``t_ns`` (monotonic nanoseconds). Another process reads GPUs, so their readings are half a
        second older, or some seconds where the driver is slow, as their ``t_ns`` shows; there are none until a new one
        came.
        """
        if self._nvidia is not None:
            gpus = self._nvidia.read(t_ns)
            self.holders = self._nvidia.holders
        else:
            self.holders = Holders(t_ns, unknown(Status.UNSUPPORTED, _LEFT_OUT.reason))
            gpus = (PowerReading(t_ns, NO_GPU, "board", "nvml", status=Status.UNSUPPORTED, reason=_LEFT_OUT.reason),)
        cpus = self._rapl.read(t_ns)
        if self._hwmon.scopes and not self._rapl.has_zones:  # a machine with other sensors misses no RAPL
            cpus = ()
        if self._others and all(r.status == Status.UNSUPPORTED for r in gpus):  # nor other GPUs NVIDIA's driver
            gpus = ()
        others = tuple(reading for process in self._others for reading in process.read(t_ns))
        machine = self._chassis.read(t_ns) if self._asks_chassis else ()
        return gpus + others + cpus + self._hwmon.read(t_ns) + machine

    @property
    def _others(self) -> list[GpuProcess]:
        return [process for process in (self._amd, self._intel) if process is not None]

    def capabilities(self) -> list[Capability]:
        """Return whether each kind of source works here; if not, with the reason and a remedy."""
        gpus = [_LEFT_OUT] if self._nvidia is None else self._nvidia.capabilities()
        gpus += [no_device()] if self._amd is None else self._amd.capabilities()
        gpus += [no_counter()] if self._intel is None else self._intel.capabilities()
        return gpus + self._rapl.capabilities() + self._hwmon.capabilities() + self._chassis.capabilities()

    def close(self) -> None:
        """Release the driver and the counters."""
        if self._nvidia is not None:
            self._nvidia.close()
        for process in self._others:
            process.close()
        self._rapl.close()
        self._chassis.close()
