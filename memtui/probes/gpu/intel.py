"""Energy and power of Intel GPUs, from the counters that the drivers i915 and xe have in sysfs. Untried on hardware.

``energy*_input`` counts microjoules. Only xe has one of the whole card, on some cards; the other one, and that of i915,
is of the GPU's package, without its memory and regulators. Level Zero gives the same counters and needs a library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memtui.core.readings import GPU_PACKAGE, PowerReading
from memtui.core.samples import Capability, Status
from memtui.probes.gpu import processes as gpu_holders
from memtui.probes.gpu.driver import GpuDriver
from memtui.probes.gpu.processes import Holding
from memtui.probes.power.sysfs import number_of, text_of

SOURCE = "intel sysfs"
NO_INTEL_GPU = "Intel GPU"  # the device of the one reading that says why there is none
_NO_COUNTER = "no Intel GPU with an energy counter (drivers i915 and xe, cards of their own)"
_SHORTEST_NS, _IDLE_NS = 2_000_000, 5_000_000_000


def intel(sys_root: Path) -> GpuDriver | None:
    """Return the driver; None on a machine without a counter of it."""
    if not _find(sys_root):
        return None
    return GpuDriver(
        source=SOURCE,
        worker=("memtui.probes.gpu.intel_worker", str(sys_root)),
        name="the Intel driver",
        absent=NO_INTEL_GPU,
        problem=None,
        remedy="restart the machine",
    )


def no_counter() -> Capability:
    """Return what ``memtui doctor`` says without a counter."""
    return Capability(SOURCE, False, _NO_COUNTER, "")


@dataclass(slots=True)
class _Card:
    label: str
    scope: str
    counter: Path
    limit: Path
    name: str
    last: tuple[int, int] | None = None  # (ns, uJ) when the counter moved last


class IntelProbe:
    """Reads the energy counter of each card. A read may wake the card, and wait for it: use a process of its own."""

    def __init__(self, sys_root: Path | str = "/sys", *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Find the cards; never raises."""
        self._clock = clock
        self._cards = _find(Path(sys_root))

    def read(self, t_ns: int) -> tuple[PowerReading, ...]:
        """Return a reading of every card, or one that says why there is none.

        ``power_w`` is the mean since the reading before; ``energy_j`` the counter since the driver was loaded.
        """
        if not self._cards:
            return (PowerReading(t_ns, NO_INTEL_GPU, "board", SOURCE, status=Status.UNSUPPORTED, reason=_NO_COUNTER),)
        return tuple(self._read(card, t_ns) for card in self._cards)

    def _read(self, card: _Card, t_ns: int) -> PowerReading:
        now_uj, now_ns = number_of(card.counter), self._clock()
        limit_uw = number_of(card.limit)
        watts, reason = (None, "the counter cannot be read") if now_uj is None else _power(card, now_ns, now_uj)
        return PowerReading(
            t_ns,
            card.label,
            card.scope,
            SOURCE,
            power_w=watts,
            energy_j=None if now_uj is None else now_uj / 1e6,
            limit_w=limit_uw / 1e6 if limit_uw else None,  # 0: no limit
            name=card.name,
            status=Status.OK if watts is not None else Status.FAILED,
            reason=reason,
        )

    def holdings(self) -> tuple[Holding, ...]:
        """Return that the memory of single processes is not read here."""
        return gpu_holders.unknown(Status.UNSUPPORTED, "not read of Intel GPUs")

    def capabilities(self) -> list[Capability]:
        """Return one entry, ``intel sysfs``."""
        if not self._cards:
            return [no_counter()]
        closed = [card.label for card in self._cards if number_of(card.counter) is None]
        reason = f"the counter of {', '.join(closed)} cannot be read" if closed else ""
        return [Capability(SOURCE, len(closed) < len(self._cards), reason, "")]


def _power(card: _Card, now_ns: int, now_uj: int) -> tuple[float | None, str]:
    """Return watts since the counter moved last, or None and why."""
    before, card.last = card.last, (now_ns, now_uj)
    if before is None:
        return None, "first reading of the counter: power is known from the next one on"
    passed_ns, moved_uj = now_ns - before[0], now_uj - before[1]
    if moved_uj < 0:
        return None, "the counter was set back"
    if moved_uj == 0 or passed_ns < _SHORTEST_NS:
        card.last = before
        still = passed_ns >= _IDLE_NS
        return None, "the counter stands still" if still else "the counter did not move since the reading before"
    return moved_uj * 1000 / passed_ns, ""


def _find(sys_root: Path) -> list[_Card]:
    """Return the cards in the order of their PCI addresses."""
    cards: dict[Path, _Card] = {}
    for monitor in sorted((sys_root / "class" / "drm").glob("card*/device/hwmon/hwmon*")):
        counter = _counter(monitor)
        device = monitor.parent.parent.resolve()
        if counter is None or device in cards:  # renderD nodes and connectors lead to the same device
            continue
        path, limit, scope = counter
        pci = next((line for line in text_of(device / "uevent").splitlines() if line.startswith("PCI_ID=")), "")
        cards[device] = _Card("", scope, path, limit, f"Intel GPU {pci.removeprefix('PCI_ID=')}".strip())
    ordered = [cards[device] for device in sorted(cards)]
    for number, card in enumerate(ordered):
        card.label = f"Intel GPU {number}"
    return ordered


def _counter(monitor: Path) -> tuple[Path, Path, str] | None:
    """Return counter, limit and scope of a monitor of a GPU: of the card before that of its package."""
    driver = text_of(monitor / "name")
    if driver not in ("i915", "xe"):  # "i915_gt0" is a part
        return None
    channels = ((1, "board"), (2, GPU_PACKAGE)) if driver == "xe" else ((1, GPU_PACKAGE),)
    for channel, scope in channels:
        if (path := monitor / f"energy{channel}_input").exists():
            return path, monitor / f"power{channel}_max", scope
    return None
