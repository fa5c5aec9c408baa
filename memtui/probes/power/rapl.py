"""Energy and power of CPU packages and memory from RAPL counters, through the kernel's powercap tree.

Intel and AMD processors use the same files, ``/sys/class/powercap/intel-rapl:N`` and ``intel-rapl:N:M``. Power is the
energy counted between two readings divided by the time between them, so it is always a mean since the reading before.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memtui.core.readings import PowerReading
from memtui.core.samples import Capability, Status
from memtui.probes.power.sysfs import text_of

NO_ZONE = "no RAPL zone: virtual machine or no powercap driver"
# No single zone exceeds this power. A counter that could wrap twice between two readings gives no energy, and one that
# would need a higher power to wrap was reset.
_LARGEST_W = 1000.0
_SHORTEST_NS = 2_000_000  # the counters move about once in a millisecond
_IDLE_NS = 50_000_000  # a live package or memory has used some energy after this long
_ZONE = re.compile(r"intel-rapl:(\d+)(?::(\d+))?")
_MAY_REST = ("core", "uncore")  # parts that can be switched off and really use nothing


@dataclass(slots=True)
class _Zone:
    """One counter and its last value."""

    device: str
    scope: str
    name: str
    range_uj: int | None  # the counter wraps to 0 above this; None: not known
    descriptor: int | None  # of energy_uj, kept open: one system call per reading
    problem: tuple[Status, str] | None = None  # the counter cannot be opened: why
    last_uj: int | None = None
    last_ns: int = 0
    counted_uj: int = 0  # since the first reading, over all wraps of the counter


class RaplProbe:
    """Reads every RAPL zone of this machine.

    The zone ``psys`` covers the whole platform and the packages with it: never add the two.
    """

    def __init__(self, *, sys_root: Path | str = "/sys", clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Find the zones and read each once, so that the first ``read`` has a power; never raises.

        Args:
            sys_root: where sysfs is mounted.
            clock: monotonic nanoseconds; the moment of each reading of a counter.
        """
        self._clock = clock
        self._zones = _find_zones(Path(sys_root) / "class" / "powercap")
        for zone in self._zones:
            self._advance(zone)

    @property
    def has_zones(self) -> bool:
        """Return whether there is any zone."""
        return bool(self._zones)

    def read(self, t_ns: int) -> tuple[PowerReading, ...]:
        """Return a reading of every zone, or one that says why there is none.

        ``power_w`` is the mean since the last reading (in the first one, since the probe was created). ``energy_j``
        counts from the first reading; it falls when the counter could not be followed and the count started again.
        """
        if not self._zones:
            return (PowerReading(t_ns, "CPU", "package", "rapl", status=Status.UNSUPPORTED, reason=NO_ZONE),)
        return tuple(self._read(zone, t_ns) for zone in self._zones)

    def _read(self, zone: _Zone, t_ns: int) -> PowerReading:
        power, status, reason = self._advance(zone)
        return PowerReading(
            t_ns,
            zone.device,
            zone.scope,
            "rapl",
            power_w=power,
            energy_j=None if zone.last_uj is None else zone.counted_uj / 1e6,
            name=zone.name,
            status=status,
            reason=reason,
        )

    def _advance(self, zone: _Zone) -> tuple[float | None, Status, str]:
        """Read a counter and add its change; return the watts since the last reading, or None, status and reason."""
        if zone.problem is not None or zone.descriptor is None:
            return None, *(zone.problem or (Status.FAILED, "the probe is closed"))
        try:
            now_uj = int(os.pread(zone.descriptor, 32, 0))
        except (OSError, ValueError) as error:
            zone.last_uj = None
            return None, Status.FAILED, f"the counter cannot be read: {error}"
        now_ns, before_uj, before_ns = self._clock(), zone.last_uj, zone.last_ns
        if before_uj is None:
            zone.last_uj, zone.last_ns, zone.counted_uj = now_uj, now_ns, 0
            return None, Status.FAILED, "first reading of the counter: power is known from the next one on"
        passed_ns = now_ns - before_ns
        if passed_ns < _SHORTEST_NS:  # the counter stays where it is: the next reading covers this time too
            return None, Status.FAILED, f"only {passed_ns / 1e6:.1f} ms since the reading before"
        moved_uj, problem = _moved(before_uj, now_uj, zone.range_uj, passed_ns)
        zone.last_uj, zone.last_ns = now_uj, now_ns
        if problem:
            zone.counted_uj = 0
            return None, Status.FAILED, problem
        if moved_uj == 0 and zone.scope not in _MAY_REST:
            if passed_ns < _IDLE_NS:
                zone.last_ns = before_ns
                return None, Status.FAILED, f"the counter did not move in {passed_ns / 1e6:.0f} ms"
            return None, Status.FAILED, f"the counter stands still ({passed_ns / 1e6:.0f} ms without a change)"
        zone.counted_uj += moved_uj
        return moved_uj * 1000 / passed_ns, Status.OK, ""

    def capabilities(self) -> list[Capability]:
        """Return one entry, ``rapl``; ok when at least one zone can be read."""
        if not self._zones:
            return [Capability("rapl", False, NO_ZONE, "on a physical machine: sudo modprobe intel_rapl_msr")]
        problems = [zone for zone in self._zones if zone.problem is not None]
        denied = [zone for zone in problems if zone.problem and zone.problem[0] == Status.DENIED]
        remedy = (
            "run as root, or: sudo chmod -R a+r /sys/class/powercap/intel-rapl:*/ (until restart)" if denied else ""
        )
        reasons = {zone.problem[1] for zone in problems if zone.problem}
        return [Capability("rapl", len(problems) < len(self._zones), "; ".join(sorted(reasons)), remedy)]

    def close(self) -> None:
        """Close the counters."""
        for zone in self._zones:
            if zone.descriptor is not None:
                os.close(zone.descriptor)
                zone.descriptor = None


def _moved(before_uj: int, now_uj: int, range_uj: int | None, passed_ns: int) -> tuple[int, str]:
    """Return the microjoules between two readings of a counter that wraps, or 0 and why they are not known."""
    if range_uj and passed_ns / 1e9 * _LARGEST_W > range_uj / 1e6:
        return 0, f"{passed_ns / 1e9:.0f} s since the reading before: the counter may have turned more than once"
    if now_uj >= before_uj:
        return now_uj - before_uj, ""
    if not range_uj:
        return 0, "the counter went back, and where it turns is not known"
    moved_uj = now_uj - before_uj + range_uj + 1  # it counts 0 .. range
    if moved_uj * 1000 / passed_ns > _LARGEST_W:
        return 0, "the counter was set back"
    return moved_uj, ""


def _find_zones(powercap: Path) -> list[_Zone]:
    """Return all zones, packages before their parts, in the order of their numbers."""
    try:
        matches = [match for zone in powercap.iterdir() if (match := _ZONE.fullmatch(zone.name))]
    except OSError:
        return []
    packages: dict[str, str] = {}
    zones = []
    for match in sorted(matches, key=lambda matched: (int(matched[1]), int(matched[2] or -1))):
        directory = powercap / match[0]
        name = text_of(directory / "name") or match[0]
        if match[2] is None:
            device, scope = _label(name, match[1])
            packages[match[1]] = device
        else:
            device, scope = packages.get(match[1], f"CPU {match[1]}"), name
        zones.append(_open(directory, device, scope, name))
    return zones


def _label(name: str, number: str) -> tuple[str, str]:
    """Return the device and scope of a zone at the top: ``package-0``, ``package-1-die-0``, ``psys``."""
    if name == "psys":
        return "platform", "psys"
    if match := re.fullmatch(r"package-(\d+)(?:-die-(\d+))?", name):
        return f"CPU package {match[1]}" + (f" die {match[2]}" if match[2] else ""), "package"
    return f"CPU {number}", name


def _open(directory: Path, device: str, scope: str, name: str) -> _Zone:
    limit = text_of(directory / "max_energy_range_uj")
    zone = _Zone(device, scope, name, int(limit) if limit.isdigit() else None, None)
    try:
        zone.descriptor = os.open(directory / "energy_uj", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        # readable by root only since 2020: fine power readings reveal what other programs compute
        zone.problem = Status.DENIED, "the RAPL counters are readable by root only"
    except OSError as error:
        zone.problem = Status.FAILED, f"the RAPL counter cannot be opened: {error.strerror}"
    return zone
