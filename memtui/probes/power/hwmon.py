"""Power of CPU sockets and modules from the kernel's hardware monitoring, ``/sys/class/hwmon``.

Only sensors whose label says what they measure are read: those of NVIDIA's Grace, whose firmware names them (ACPI power
meters). The label decides the scope. The module has the socket in it and the GPU beside it, the socket has its memory
and its rails: never add them. A sensor without a label, or with another one, is named and not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memtui.core.readings import SOCKET_WITH_MEMORY, PowerReading
from memtui.core.samples import Capability, Status
from memtui.probes.power.sysfs import number_of, text_of

# As NVIDIA's performance guide for Grace explains the labels: device and scope.
_LABELS = {
    "Module Power Socket": ("module", "module with GPU"),
    "Grace Power Socket": ("CPU socket", SOCKET_WITH_MEMORY),
    "CPU Power Socket": ("CPU socket", "CPU rail"),
    "SysIO Power Socket": ("CPU socket", "SoC rail"),
}
_LABEL = re.compile(rf"({'|'.join(_LABELS)}) (\d+)")
_FILE = re.compile(r"power(\d+)_(average|input)")
_GPU_DRIVERS = ("amdgpu", "i915", "xe", "nouveau")  # other probes read those
NO_SENSOR = "no power sensor with a label that says what it measures"


@dataclass(slots=True)
class _Sensor:
    path: Path
    device: str
    scope: str
    label: str
    every_ns: int  # how long its mean is: it is not read more often
    read_ns: int | None = None


class HwmonProbe:
    """Reads the power sensors whose meaning is known."""

    def __init__(self, *, sys_root: Path | str = "/sys") -> None:
        """Find the sensors; never raises."""
        self._sensors: list[_Sensor] = []
        self._unknown: list[str] = []
        for driver, path, label in _labels(Path(sys_root) / "class" / "hwmon"):
            domain = domain_of(label)
            if domain is not None:
                interval_ms = number_of(path.with_name(path.name + "_interval")) if path.name.endswith("average") else 0
                self._sensors.append(_Sensor(path, *domain, label, (interval_ms or 0) * 1_000_000))
            elif driver not in _GPU_DRIVERS:
                name = path.name.partition("_")[0]
                self._unknown.append(f"{driver or path.parent.name} {name} ({label or 'no label'})")
        self._sensors.sort(key=lambda sensor: (sensor.device, list(_LABELS.values()).index(_kind(sensor))))

    @property
    def scopes(self) -> set[str]:
        """Return what the sensors cover."""
        return {sensor.scope for sensor in self._sensors}

    def read(self, t_ns: int) -> tuple[PowerReading, ...]:
        """Return a reading of each sensor that has a new one, or one that says why there is none."""
        return tuple(_read(sensor, t_ns) for sensor in self._sensors if _is_due(sensor, t_ns))

    def capabilities(self) -> list[Capability]:
        """Return one entry, ``hwmon``. Its reason names the sensors that are not read."""
        unknown = f"not read, as it is not known what they measure: {', '.join(self._unknown)}" if self._unknown else ""
        failed = [why for sensor in self._sensors if (why := _watts(sensor.path)[2])]
        ok = len(failed) < len(self._sensors)
        reasons = [*dict.fromkeys(failed), *([] if self._sensors else [NO_SENSOR]), *([unknown] if unknown else [])]
        return [Capability("hwmon", ok, "; ".join(reasons), "")]


def domain_of(label: str) -> tuple[str, str] | None:
    """Return device and scope of a label; None: it does not say what is measured."""
    match = _LABEL.fullmatch(label)
    if match is None:
        return None
    device, scope = _LABELS[match[1]]
    return f"{device} {int(match[2])}", scope


def _kind(sensor: _Sensor) -> tuple[str, str]:
    return sensor.device.rpartition(" ")[0], sensor.scope


def _labels(hwmon: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield driver, file and label of each power sensor, its mean rather than its moment where it has both."""
    try:
        monitors = sorted(hwmon.iterdir(), key=lambda path: (len(path.name), path.name))
    except OSError:
        return
    for monitor in monitors:
        # Older drivers have their files in the device.
        for folder in (monitor, monitor / "device"):
            files = _files(folder)
            for number, path in sorted(files.items()):
                label = text_of(folder / f"power{number}_label") or text_of(folder / f"power{number}_oem_info")
                yield text_of(monitor / "name") or text_of(folder / "name"), path, label
            if files:
                break


def _files(folder: Path) -> dict[int, Path]:
    try:
        matches = [match for path in folder.iterdir() if (match := _FILE.fullmatch(path.name))]
    except OSError:
        return {}
    # "average" comes first in the alphabet, and so it is the last to be entered.
    return {int(match[1]): folder / match[0] for match in sorted(matches, key=lambda m: m[2], reverse=True)}


def _is_due(sensor: _Sensor, t_ns: int) -> bool:
    if sensor.read_ns is not None and t_ns - sensor.read_ns < sensor.every_ns:
        return False
    sensor.read_ns = t_ns
    return True


def _read(sensor: _Sensor, t_ns: int) -> PowerReading:
    watts, status, reason = _watts(sensor.path)
    kind = "average" if sensor.path.name.endswith("average") else "instant"
    return PowerReading(
        t_ns,
        sensor.device,
        sensor.scope,
        f"hwmon {kind}",
        power_w=watts,
        name=sensor.label,
        status=status,
        reason=reason,
    )


def _watts(path: Path) -> tuple[float | None, Status, str]:
    """Return watts, or None with status and reason."""
    try:
        microwatts = int(path.read_text())
    except PermissionError:
        return None, Status.DENIED, "the power sensor is readable by root only"
    except (OSError, ValueError) as error:
        return None, Status.FAILED, f"the power sensor cannot be read: {error}"
    if microwatts <= 0:  # what is running draws something
        return None, Status.FAILED, f"the power sensor reads {microwatts / 1e6:g} W, which cannot be"
    return microwatts / 1e6, Status.OK, ""
