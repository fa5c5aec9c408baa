"""Power, energy, use and memory of AMD GPUs, from AMD's management library (amdsmi). Untried on hardware.

Written after the documents and the source of amdsmi 7.0. Every call may fail on some card, and a value may be "N/A", so
single values may be missing: ``reason`` names them. ``source`` says which power it is: ``amdsmi instant`` (MI300 and
later) or ``amdsmi average`` (earlier cards).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memtui.core import procfs
from memtui.core.readings import GPU_WITH_CPU, PowerReading
from memtui.core.samples import Capability, Status
from memtui.probes.gpu import processes as gpu_holders
from memtui.probes.gpu.driver import GpuDriver
from memtui.probes.gpu.processes import Holding

SOURCE = "amdsmi"
NO_AMD_GPU = "AMD GPU"  # the device of the one reading that says why there is none
SHARED = "board (shared by partitions)"
_NO_DEVICE = "no AMD GPU: no /dev/kfd, and no device of the driver amdgpu"
_NOT_INSTALLED = "amdsmi is not installed"
_INSTALL = "pip install 'memtui[amd]', or use the Python of ROCm"
_UNSUPPORTED, _NO_RIGHT = (2, 3), 10  # AMDSMI_STATUS_NOT_SUPPORTED, _NOT_YET_IMPLEMENTED, _NO_PERM
_NO_VALUE = (0xFFFF, 0xFFFFFFFF)  # what the library leaves where the firmware has nothing; newer ones say "N/A"
_POWERS = {"current_socket_power": "instant", "average_socket_power": "average"}


def amd(sys_root: Path, device: Path = Path("/dev/kfd")) -> GpuDriver | None:
    """Return the driver; None on a machine without a device of it. Loads nothing."""
    drivers = (path.resolve().name for path in (sys_root / "class" / "drm").glob("card*/device/driver"))
    if not device.exists() and "amdgpu" not in drivers:
        return None
    return GpuDriver(
        source=SOURCE,
        worker=("memtui.probes.gpu.amd_worker",),
        name="the AMD driver",
        absent=NO_AMD_GPU,
        problem=None,
        remedy="check amd-smi; restart the machine",
    )


def no_device() -> Capability:
    """Return what ``memtui doctor`` says without a device."""
    return Capability(SOURCE, False, _NO_DEVICE, "")


@dataclass(slots=True)
class _Gpu:
    label: str
    handle: Any
    name: str = ""
    scope: str = "board"
    limit_w: float | None = None
    without: dict[str, str] = field(default_factory=dict)  # what this card can never say, and why


class AmdProbe:
    """Reads all AMD GPUs. Create and read it in one process: a call may hang."""

    def __init__(self) -> None:
        """Load the library and find GPUs; never raises."""
        self._smi: Any = None
        self._gpus: list[_Gpu] = []
        # Others' processes are known to root only: the library looks them up in /proc.
        self._sees_everybody = os.geteuid() == 0 and procfs.in_initial_pid_namespace()
        self._notes: list[str] = []  # of the reading under way
        self._status, self._capability = self._start()

    def _start(self) -> tuple[Status, Capability]:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # it prints where it finds no library
                self._smi = importlib.import_module("amdsmi")
        except ImportError:
            return Status.UNSUPPORTED, Capability(SOURCE, False, _NOT_INSTALLED, _INSTALL)
        except (OSError, KeyError, AttributeError) as error:  # no libamd_smi.so, or one of another version
            reason = f"amdsmi finds no libamd_smi.so that fits it ({type(error).__name__}: {error})"
            return Status.UNSUPPORTED, Capability(SOURCE, False, reason, "install amd-smi-lib of ROCm, of its version")
        try:
            self._smi.amdsmi_init()
            handles = list(self._smi.amdsmi_get_processor_handles())
        except self._smi.AmdSmiException as error:
            status, reason = _explain(error)
            remedy = "add this user to the groups render and video" if status == Status.DENIED else "check amd-smi"
            return status, Capability(SOURCE, False, reason, remedy)
        self._gpus = self._boards(handles)
        if not self._gpus:
            return Status.UNSUPPORTED, Capability(SOURCE, False, "the AMD driver shows no GPU", "check amd-smi list")
        return Status.OK, Capability(SOURCE, True)

    def _boards(self, handles: list[Any]) -> list[_Gpu]:
        """Return one GPU for each device of PCI: partitions are functions of one, and share its power."""
        boards: dict[str, _Gpu] = {}
        for handle in handles:
            address = self._query(None, "address", self._smi.amdsmi_get_gpu_device_bdf, handle)
            address_text = str(address).rpartition(".")[0] if address else f"handle {len(boards)}"
            if address_text in boards:
                boards[address_text].scope = SHARED
            else:
                boards[address_text] = self._open(_Gpu(f"AMD GPU {len(boards)}", handle))
        return list(boards.values())

    def _open(self, gpu: _Gpu) -> _Gpu:
        asic = self._query(gpu, "name", self._smi.amdsmi_get_gpu_asic_info, gpu.handle) or {}
        gpu.name = str(asic.get("market_name", "")).replace("N/A", "")
        memory = self._query(gpu, "memory type", self._smi.amdsmi_get_gpu_vram_info, gpu.handle) or {}
        with contextlib.suppress(ValueError, AttributeError):
            kind = self._smi.AmdSmiVramType(memory.get("vram_type")).name
            if kind.startswith(("DDR", "LPDDR")):
                gpu.scope = GPU_WITH_CPU
        if "MI300A" in gpu.name:
            gpu.scope = GPU_WITH_CPU
        cap = self._query(gpu, "power limit", self._smi.amdsmi_get_power_cap_info, gpu.handle) or {}
        limit_uw = _number(cap.get("power_cap"))
        gpu.limit_w = limit_uw / 1e6 if limit_uw else None
        return gpu

    def _query(self, gpu: _Gpu | None, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a call, or None with a note in the current reading."""
        if gpu is not None and what in gpu.without:
            self._notes.append(gpu.without[what])
            return None
        try:
            return call(*arguments)
        except self._smi.AmdSmiException as error:
            status, reason = _explain(error)
            note = f"{what}: {reason}"
            if gpu is not None and status == Status.UNSUPPORTED:
                gpu.without[what] = note
        except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:  # a library of another version
            note = f"{what}: {error}"
        self._notes.append(note)
        return None

    def read(self, t_ns: int) -> tuple[PowerReading, ...]:
        """Return a reading of every GPU, or one that says why there is none.

        ``power_w`` and ``limit_w`` are watts of the whole board, which partitions and ``processes`` share; ``energy_j``
        is the counter since the driver was loaded; ``utilization`` runs from 0 to 1.
        """
        if not self._gpus:
            reason = self._capability.reason
            return (PowerReading(t_ns, NO_AMD_GPU, "board", SOURCE, status=self._status, reason=reason),)
        return tuple(self._read(gpu, t_ns) for gpu in self._gpus)

    def _read(self, gpu: _Gpu, t_ns: int) -> PowerReading:
        smi, self._notes = self._smi, []
        info = self._query(gpu, "power", smi.amdsmi_get_power_info, gpu.handle)
        watts, source = power_of(info or {})
        if info is not None and watts is None:
            self._notes.append("power: the driver tells none of this GPU")
        energy = use = memory = None
        if watts is not None:  # a die whose power is in that of another one has no energy of its own either
            energy = self._query(gpu, "energy counter", smi.amdsmi_get_energy_count, gpu.handle)
        if info is not None:  # a card that hangs fails in every call
            use = self._query(gpu, "utilisation", smi.amdsmi_get_gpu_activity, gpu.handle)
            memory = self._query(gpu, "memory", smi.amdsmi_get_gpu_vram_usage, gpu.handle)
        busy, used_mib = _number((use or {}).get("gfx_activity")), _number((memory or {}).get("vram_used"))
        return PowerReading(
            t_ns,
            gpu.label,
            gpu.scope,
            source,
            power_w=watts,
            energy_j=energy_of(energy or {}),
            limit_w=gpu.limit_w,
            memory_used_bytes=None if used_mib is None else int(used_mib) << 20,
            utilization=None if busy is None or busy > 100 else busy / 100,
            name=gpu.name,
            status=Status.OK if watts is not None else Status.UNSUPPORTED if info is not None else Status.FAILED,
            reason="; ".join(self._notes),
            processes=self._processes(gpu) if watts is not None and self._sees_everybody else None,
        )

    def _processes(self, gpu: _Gpu) -> int | None:
        """Return how many processes of all users share the board."""
        listed = self._query(gpu, "processes", self._smi.amdsmi_get_gpu_process_list, gpu.handle)
        return None if listed is None else len({process["pid"] for process in listed})

    def holdings(self) -> tuple[Holding, ...]:
        """Return that the memory of single processes is not read here."""
        return gpu_holders.unknown(Status.UNSUPPORTED, "not read of AMD GPUs")

    def capabilities(self) -> list[Capability]:
        """Return one entry, ``amdsmi``."""
        return [self._capability]


def power_of(info: dict[str, Any]) -> tuple[float | None, str]:
    """Return watts and their source from ``amdsmi_get_power_info``; None where it has no power above 0."""
    for key, kind in _POWERS.items():
        if watts := _number(info.get(key)):
            return watts, f"{SOURCE} {kind}"
    return None, SOURCE


def energy_of(count: dict[str, Any]) -> float | None:
    """Return joules from ``amdsmi_get_energy_count``; None where the counter is not there, or is 0."""
    ticks = _number(count.get("energy_accumulator", count.get("power")))  # older versions call it power
    microjoules = _number(count.get("counter_resolution"))
    return ticks * microjoules / 1e6 if ticks and microjoules else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value in _NO_VALUE or not 0 <= value < 2**63:
        return None
    return value


def _explain(error: Any) -> tuple[Status, str]:
    code = getattr(error, "err_code", None)
    text = str(getattr(error, "err_info", error)).partition(" - ")
    status = Status.UNSUPPORTED if code in _UNSUPPORTED else Status.DENIED if code == _NO_RIGHT else Status.FAILED
    return status, f"the AMD library says: {text[2] or text[0]}"
