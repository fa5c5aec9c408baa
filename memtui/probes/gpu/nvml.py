"""Power, energy, use and memory of NVIDIA GPUs, from the driver's management library (NVML).

The ``source`` of a reading says which power it has: ``nvml instant`` is the draw at the moment, ``nvml average`` the
mean of the last second, which is all that Ampere and later cards give without the newer field; ``nvml`` where the
driver does not say which of the two it is. Every call may fail on some card or driver, so single values may be missing:
``status`` is about ``power_w``; ``reason`` also names the other missing values.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from memtui.core import procfs
from memtui.core.readings import PowerReading
from memtui.core.samples import Capability, Status
from memtui.probes.gpu import processes as gpu_holders
from memtui.probes.gpu.counters import CounterReader, Counters
from memtui.probes.gpu.processes import Board, Holding, Why

SLOW_NS = 50_000_000  # a reading that takes longer says so: it delays its sample
_LIMIT_EVERY_NS = 10_000_000_000  # the limit changes by hand or by heat, seldom
_LIBRARY = "libnvidia-ml.so.1"
NO_GPU = "GPU"  # the device of the one reading that says why there is none

_ERRORS: dict[int, tuple[Status, str]] = {
    3: (Status.UNSUPPORTED, "not supported by this GPU"),
    4: (Status.DENIED, "the driver refuses it to this user"),
    6: (Status.FAILED, "the driver does not find the GPU"),
    7: (Status.FAILED, "the answer grew while it was read"),
    9: (Status.UNSUPPORTED, "the NVIDIA driver is not loaded"),
    10: (Status.FAILED, "the driver did not answer in time"),
    12: (Status.UNSUPPORTED, f"no NVIDIA driver ({_LIBRARY} not found)"),
    13: (Status.UNSUPPORTED, "not known to this driver"),
    15: (Status.FAILED, "the GPU is lost: it fell off the bus or hangs"),
    16: (Status.FAILED, "the GPU needs a reset"),
    18: (Status.FAILED, "the NVIDIA library and the loaded driver are of different versions"),
    28: (Status.FAILED, "the driver does not find the GPU"),
}
_REMEDIES: dict[int, str] = {
    4: "let this user read /dev/nvidiactl and /dev/nvidia*",
    9: "sudo modprobe nvidia",
    12: "install the NVIDIA driver, or give the container its libraries (docker run --gpus all)",
    15: "restart the machine",
    16: "sudo nvidia-smi --gpu-reset",
    18: "restart the machine, or load the new kernel module",
}
_PERMANENT = {3, 13}  # these calls need not be repeated
_TOO_SMALL, _LIST_TRIES = 7, 3  # a process started between the call for their count and the call for the list
_NOTHING = {0, 6}  # what says that no process used a board: an answer without room, and "not found"
# The use of processes is asked for the time since the reading before, within these bounds: some boards take a sample a
# second, and there shall always be one; and the driver keeps some ten seconds of them.
_USE_LEAST_US, _USE_MOST_US = 1_200_000, 10_000_000
_LISTS = {"compute": "Compute", "graphics": "Graphics", "MPS": "MPSCompute"}


def library_problem() -> tuple[Status, Capability] | None:
    """Return why the driver's library cannot be loaded; None when it can. Calls no function of it, which may hang."""
    try:
        ctypes.CDLL(_LIBRARY)  # pynvml does the same; trying first saves its 6 MiB where there is no GPU
    except OSError as error:
        text = str(error)
        # "cannot open shared object file" may also speak of a library that this one needs
        if _LIBRARY in text and "No such file" in text:
            return _ERRORS[12][0], Capability("nvml", False, _ERRORS[12][1], _REMEDIES[12])
        reason = f"{_LIBRARY} cannot be loaded: {error}"
        return Status.FAILED, Capability("nvml", False, reason, "reinstall the NVIDIA driver")
    return None


@dataclass(slots=True)
class _Device:
    label: str
    handle: Any = None
    lost: Why | None = None  # no handle: why
    name: str = ""
    scope: str = "board"
    sliced: bool = False  # MIG is on
    usage_source: str = "nvml"
    without: dict[str, str] = field(default_factory=dict)  # what this card can never say, and why
    limit_w: float | None = None
    limit_read_ns: int | None = None
    notes: list[str] = field(default_factory=list)  # of the reading under way
    computing: list[Any] | Why = (Status.FAILED, "not read yet")  # processes, as the last reading found them
    counters: CounterReader | None = None
    use_asked_us: int = 0  # when the use of processes was read last, on the wall clock


class NvmlProbe:
    """Reads all GPUs that the driver shows. Create and read it in one process: NVML does not survive a fork."""

    def __init__(self, *, slow_ns: int = SLOW_NS, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Load the library and find GPUs; never raises.

        Args:
            slow_ns: the reason of a reading of one GPU says so when it took longer.
            clock: measures that time, in nanoseconds.
        """
        self._slow_ns, self._clock = slow_ns, clock
        self._devices: list[_Device] = []
        self._nvml: Any = None
        self._sees_own_processes_only = not procfs.in_initial_pid_namespace()
        self._status, self._capability = self._start()

    def _start(self) -> tuple[Status, Capability]:
        if problem := library_problem():
            return problem
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return self._out(Status.UNSUPPORTED, "nvidia-ml-py is not installed", "pip install nvidia-ml-py")
        try:
            nvml.nvmlInit()
            self._nvml = nvml
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            return self._out(*self._explain(error), _REMEDIES.get(error.value, ""))
        if count == 0:
            return self._out(Status.UNSUPPORTED, "the NVIDIA driver shows no GPU", "check nvidia-smi -L")
        self._devices = [self._open(index) for index in range(count)]
        broken = [f"{device.label}: {device.lost[1]}" for device in self._devices if device.lost]
        if len(broken) == count:
            return self._out(Status.FAILED, "; ".join(broken), "check nvidia-smi", keep_devices=True)
        return Status.OK, Capability("nvml", True, "; ".join(broken))

    def _out(
        self, status: Status, reason: str, remedy: str, *, keep_devices: bool = False
    ) -> tuple[Status, Capability]:
        if not keep_devices:
            self._devices = []
        return status, Capability("nvml", False, reason, remedy)

    def _open(self, index: int) -> _Device:
        device, nvml = _Device(f"GPU {index}"), self._nvml
        try:
            device.handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            device.lost = self._explain(error)
            return device
        device.name = self._query(device, "name", nvml.nvmlDeviceGetName) or ""
        mig = self._query(device, "MIG mode", nvml.nvmlDeviceGetMigMode)
        if mig and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            device.scope, device.sliced = "board (shared by MIG)", True  # NVML knows no power of a slice
        architecture = self._query(device, "architecture", nvml.nvmlDeviceGetArchitecture)
        capability = self._query(device, "compute capability", nvml.nvmlDeviceGetCudaComputeCapability)
        if architecture is not None and architecture != nvml.NVML_DEVICE_ARCH_UNKNOWN and capability is not None:
            # up to Turing, and on GA100, the plain call gives the moment; elsewhere the mean of one second
            instant = architecture <= nvml.NVML_DEVICE_ARCH_TURING or tuple(capability) == (8, 0)
            device.usage_source = "nvml instant" if instant else "nvml average"
        device.counters = CounterReader(
            nvml, device.handle, lambda error: self._explain(error)[1], sliced=device.sliced
        )
        return device

    def _explain(self, error: Any) -> tuple[Status, str]:
        return _ERRORS.get(error.value, (Status.FAILED, f"the NVIDIA library says: {error}"))

    def _query(self, device: _Device, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of one NVML call, or None with a note in the current reading."""
        if what in device.without:
            device.notes.append(device.without[what])
            return None
        try:
            return call(device.handle, *arguments)
        except self._nvml.NVMLError as error:
            note = f"{what}: {self._explain(error)[1]}"
            if error.value in _PERMANENT:
                device.without[what] = note
            device.notes.append(note)
        except (OSError, ValueError) as error:  # a name that is not text, a structure that pynvml does not expect
            device.notes.append(f"{what}: {error}")
        return None

    def read(self, t_ns: int) -> tuple[PowerReading, ...]:
        """Return a reading of every GPU, or one that says why there is none.

        ``power_w`` and ``limit_w`` are watts of the whole board, which ``processes`` share; ``energy_j`` is the counter
        since the driver was loaded (it falls when the driver is loaded again); ``utilization`` runs from 0 to 1.
        """
        if not self._devices:
            status, reason = self._status, self._capability.reason
            return (PowerReading(t_ns, NO_GPU, "board", "nvml", status=status, reason=reason),)
        return tuple(self._read(device, t_ns) for device in self._devices)

    def _read(self, device: _Device, t_ns: int) -> PowerReading:
        if device.lost is not None:
            status, reason = device.lost
            return PowerReading(
                t_ns, device.label, device.scope, "nvml", name=device.name, status=status, reason=reason
            )
        nvml, start_ns = self._nvml, self._clock()
        device.notes = []
        power, source, status, reason = self._power(device)
        if status == Status.FAILED:  # a card that hangs answers slowly and says the same of every value
            energy = use = memory = processes = None
            device.computing = status, reason
            counters = Counters({}, reason)
        else:
            energy = self._query(device, "energy counter", nvml.nvmlDeviceGetTotalEnergyConsumption)
            use = self._query(device, "utilisation", nvml.nvmlDeviceGetUtilizationRates)
            memory = self._memory(device)
            self._read_limit(device, start_ns)
            processes = self._processes(device)
            counters = device.counters.read() if device.counters is not None else Counters({}, "not opened")
        took_ns = self._clock() - start_ns
        if took_ns > self._slow_ns:
            device.notes.append(f"slow: this reading took {took_ns / 1e6:.0f} ms")
        return PowerReading(
            t_ns,
            device.label,
            device.scope,
            source,
            power_w=power,
            energy_j=None if energy is None else energy / 1000,
            limit_w=device.limit_w,
            memory_used_bytes=None if memory is None else int(memory.used),
            utilization=None if use is None else use.gpu / 100,
            name=device.name,
            status=status,
            reason="; ".join([reason, *device.notes] if reason else device.notes),
            processes=processes,
            **counters.values,
            counters_reason=counters.reason,
        )

    def _power(self, device: _Device) -> tuple[float | None, str, Status, str]:
        """Return watts and their source; or None, with status and reason."""
        nvml = self._nvml
        if "instant" not in device.without:
            value, code = self._instant(device)
            if value:
                return value / 1000, "nvml instant", Status.OK, ""
            if code in _PERMANENT or code == 0:  # some drivers know the field and answer 0
                device.without["instant"] = "instant power is not supported"
        try:
            milliwatts = nvml.nvmlDeviceGetPowerUsage(device.handle)
        except nvml.NVMLError as error:
            status, reason = self._explain(error)
            return None, device.usage_source, status, f"power: {reason}"
        if milliwatts == 0:  # no powered card draws nothing
            return None, device.usage_source, Status.FAILED, "power: the driver reads 0 W, which cannot be"
        return milliwatts / 1000, device.usage_source, Status.OK, ""

    def _instant(self, device: _Device) -> tuple[int | None, int]:
        """Return milliwatts at this moment, and NVML's return code."""
        nvml = self._nvml
        field_id = (nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_GPU)
        try:
            value = nvml.nvmlDeviceGetFieldValues(device.handle, [field_id])[0]
        except nvml.NVMLError as error:
            return None, error.value
        if value.nvmlReturn != 0:
            return None, value.nvmlReturn
        members = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal"}
        member = members.get(value.valueType)
        return (getattr(value.value, member), 0) if member else (None, 3)

    def _memory(self, device: _Device) -> Any:
        """Return NVML's memory record; the second version leaves out memory that the driver reserves."""
        nvml = self._nvml
        if "memory_v2" not in device.without:
            try:
                return nvml.nvmlDeviceGetMemoryInfo(device.handle, nvml.nvmlMemory_v2)
            except nvml.NVMLError:
                device.without["memory_v2"] = "older driver"
        return self._query(device, "memory", nvml.nvmlDeviceGetMemoryInfo)

    def _processes(self, device: _Device) -> int | None:
        """Return how many compute processes of all users share the board."""
        device.computing = running = self._list(device, "compute")
        if isinstance(running, tuple):
            device.notes.append(running[1])
            return None
        if not running and self._sees_own_processes_only:
            return None  # the driver hides those outside of this container, and may hide all
        return len({process.pid for process in running})

    def _list(self, device: _Device, kind: str) -> list[Any] | Why:
        """Return NVML's records of the processes of one kind on one board, or why they cannot be read."""
        call = getattr(self._nvml, f"nvmlDeviceGet{_LISTS[kind]}RunningProcesses")
        return self._listed(device, f"{kind} processes", call)

    def _listed(
        self, device: _Device, what: str, call: Callable[[Any], Any], *, nothing: Container[int] = ()
    ) -> list[Any] | Why:
        """Return the list that a call gives, or why not; an error among ``nothing`` says that it is empty."""
        if what in device.without:
            return Status.UNSUPPORTED, device.without[what]
        why: Why = (Status.FAILED, what)
        for _ in range(_LIST_TRIES):
            try:
                return list(call(device.handle))
            except self._nvml.NVMLError as error:
                if error.value in nothing:
                    return []
                status, reason = self._explain(error)
                why = status, f"{what}: {reason}"
                if error.value in _PERMANENT:
                    device.without[what] = why[1]
                if error.value != _TOO_SMALL:
                    break
        return why

    def _read_limit(self, device: _Device, now_ns: int) -> None:
        if device.limit_read_ns is not None and now_ns - device.limit_read_ns < _LIMIT_EVERY_NS:
            return
        limit = self._query(device, "power limit", self._nvml.nvmlDeviceGetEnforcedPowerLimit)
        device.limit_w = limit / 1000 if limit else None
        device.limit_read_ns = now_ns

    def holdings(self) -> tuple[Holding, ...]:
        """Return GPU memory and use of all processes, of all users. Call this after ``read``: it is of one moment."""
        if not self._devices:
            return gpu_holders.unknown(self._status, self._capability.reason)
        if self._sees_own_processes_only:
            return gpu_holders.unknown(Status.UNSUPPORTED, gpu_holders.CONTAINER)
        if gpu_holders.under_wsl():
            return gpu_holders.unknown(Status.UNSUPPORTED, gpu_holders.WSL)
        return gpu_holders.sum_up([self._board(device) for device in self._devices])

    def _board(self, device: _Device) -> Board:
        if device.lost is not None:
            return Board(device.label, {}, device.lost, device.lost)
        if isinstance(device.computing, tuple):
            return Board(device.label, {}, device.computing, device.computing)
        entries = list(device.computing)
        others: Why | None = (Status.UNSUPPORTED, gpu_holders.IN_SLICES) if device.sliced else None
        in_mps: frozenset[int] = frozenset()
        for kind in ("graphics", "MPS"):
            listed = self._list(device, kind)
            if isinstance(listed, list):
                entries += listed
                in_mps = frozenset(entry.pid for entry in listed) if kind == "MPS" else in_mps
            elif kind != "MPS" or listed[0] != Status.UNSUPPORTED:  # a board without MPS has no such processes
                others = others or listed
        return Board(device.label, gpu_holders.merged(entries), others, self._shares(device), in_mps)

    def _shares(self, device: _Device) -> dict[int, float | None] | Why:
        """Return the part of the time since the last call that each process kept one board busy, or why not."""
        if device.sliced:
            return Status.UNSUPPORTED, gpu_holders.NO_USE_IN_SLICES
        now_us = time.time_ns() // 1000  # the driver's samples carry the time of the wall clock, which may be set
        since_us = max(now_us - _USE_MOST_US, min(now_us - _USE_LEAST_US, device.use_asked_us or now_us))
        device.use_asked_us = now_us
        call = self._nvml.nvmlDeviceGetProcessUtilization
        shares = self._listed(device, gpu_holders.USE, lambda handle: call(handle, since_us), nothing=_NOTHING)
        return shares if isinstance(shares, tuple) else gpu_holders.shares_of(shares, since_us)

    def capabilities(self) -> list[Capability]:
        """Return one entry, ``nvml``."""
        return [self._capability]

    def close(self) -> None:
        """Release the driver. Readings afterwards say that the probe is closed."""
        if self._nvml is not None:
            for device in self._devices:
                if device.counters is not None:
                    device.counters.close()
            with contextlib.suppress(self._nvml.NVMLError):  # the driver may have gone away first
                self._nvml.nvmlShutdown()
            self._nvml = None
        self._status, self._capability = self._out(Status.FAILED, "the probe is closed", "")
