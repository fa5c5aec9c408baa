"""Finds the power of the whole machine among the resources of a Redfish service, and reads it from one of them.

Two resources of a chassis have it (DMTF DSP2046): ``EnvironmentMetrics`` (``PowerWatts.Reading``) and, before 2020.4
and in most services still, ``Power`` (``PowerControl[].PowerConsumedWatts``). Both are the power at the moment.
``Power`` has a mean as well, ``PowerMetrics.AverageConsumedWatts`` over ``IntervalInMin``: that is another figure, and
not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memtui.core.samples import Status
from memtui.recording.network_power.address import ROOT, is_path
from memtui.recording.network_power.connection import Forbidden, NoAnswer, Unreachable

Get = Callable[[str], dict[str, Any]]
RESOURCES = ("EnvironmentMetrics", "Power")  # links of a chassis, in the order in which they are tried
MOST_CHASSIS = 32
_RANKS = (0, 1, 2)  # of ``_rank``
_MOST_WATTS = 1e6
_MOST_FLOAT = 1e308  # a whole number in JSON may be beyond what a float holds
# Values of ChassisType that are a part of a machine, or many machines.
_NO_MACHINE = {
    *("Component", "Module", "Card", "Cartridge", "Drawer", "StorageEnclosure", "ExpansionChassis", "Expansion"),
    *("Zone", "Shelf", "Row", "Pod", "Rack", "RackGroup", "Facility", "IPBasedDrive", "Sidecar", "PowerStrip"),
}
# Values of PhysicalContext of a power control that is about all of its chassis. XCC has one of the CPUs beside it.
_WHOLE = (None, "Chassis", "PowerSupply", "PowerSubsystem", "PowerOutlet")


@dataclass(frozen=True, slots=True)
class PowerResource:
    """Where the power is. ``kind``: one of ``RESOURCES``."""

    kind: str
    path: str

    def watts(self, document: dict[str, Any]) -> float:
        """Return the power in the resource. Raises NoAnswer."""
        return watts_of(self.kind, document)


def find(get: Get, chassis: str = "") -> tuple[PowerResource, float]:
    """Return the resource with the power of the machine, and the power.

    Args:
        get: returns a resource; raises NoAnswer.
        chassis: the path of the chassis; empty: the one that is a machine, and not a part of another one.

    Raises:
        NoAnswer: there is none, or there are several, or the service fails.
    """
    if chassis:
        if named := _reading(get, get(chassis)):
            return named
        raise NoAnswer(Status.UNSUPPORTED, f"{chassis} has no power: no EnvironmentMetrics and no Power with one")
    members = _members(get)
    ranked = [(path, document, _rank(document)) for path, document in members]
    for wanted in _RANKS:
        resources = {
            path: reading
            for path, document, rank in ranked
            if rank == wanted and (reading := _reading(get, document)) is not None
        }
        if len(resources) > 1:
            reason = (
                f"several chassis have a power ({', '.join(resources)}): "
                f"name one, as in --redfish HOST{next(iter(resources))}"
            )
            raise NoAnswer(Status.UNSUPPORTED, reason)
        if resources:
            return next(iter(resources.values()))
    reason = f"none of the {len(members)} chassis of the Redfish service has the power of a machine"
    raise NoAnswer(Status.UNSUPPORTED, reason)


def watts_of(kind: str, document: dict[str, Any]) -> float:
    """Return the power in a resource of this kind. Raises NoAnswer."""
    if kind == "EnvironmentMetrics":
        figures = [_object(document, "PowerWatts").get("Reading")]
    else:
        controls = [control for control in _list(document, "PowerControl") if isinstance(control, dict)]
        figures = [c.get("PowerConsumedWatts") for c in controls if c.get("PhysicalContext") in _WHOLE]
    numbers = [
        float(max(min(figure, _MOST_FLOAT), -_MOST_FLOAT))
        for figure in figures
        if isinstance(figure, int | float) and not isinstance(figure, bool)
    ]
    if not numbers:
        raise NoAnswer(Status.FAILED, f"{kind} of the Redfish service has no power at present")
    if len(numbers) > 1:
        raise NoAnswer(Status.UNSUPPORTED, "Power of the Redfish service has several figures of the whole chassis")
    if not 0 < numbers[0] < _MOST_WATTS:
        raise NoAnswer(Status.FAILED, f"{kind} of the Redfish service says {numbers[0]:g} W, which cannot be")
    return numbers[0]


def _members(get: Get) -> list[tuple[str, dict[str, Any]]]:
    """Return the chassis by their paths. Raises NoAnswer."""
    root = get(f"{ROOT}/")
    path = _link(root, "Chassis")
    if not path:
        raise NoAnswer(Status.UNSUPPORTED, "what answers is not a Redfish service, or has no chassis")
    links = [member.get("@odata.id") for member in _list(get(path), "Members") if isinstance(member, dict)]
    paths = [link for link in links if isinstance(link, str) and is_path(link)][:MOST_CHASSIS]
    documents = ((path, _optional(get, path)) for path in paths)
    return [(path, document) for path, document in documents if document is not None]


def _rank(chassis: dict[str, Any]) -> int | None:
    """Return how likely this is the machine, 0 the most; None: it is a part of one, or many."""
    links = _object(chassis, "Links")
    inside = bool(_link(links, "ContainedBy"))
    if str(chassis.get("ChassisType")) in _NO_MACHINE:  # it may be anything, also what has no hash
        return None
    if _list(links, "ComputerSystems"):
        return 1 if inside else 0  # 1: a blade or a sled
    return None if inside else 2


def _reading(get: Get, chassis: dict[str, Any]) -> tuple[PowerResource, float] | None:
    """Return the first resource of a chassis that has a power now; None: none has. Raises NoAnswer."""
    for kind in RESOURCES:
        path = _link(chassis, kind)
        document = _optional(get, path) if path else None
        if document is not None:
            try:
                return PowerResource(kind, path), watts_of(kind, document)
            except NoAnswer:
                continue  # the other resource may have it
    return None


def _optional(get: Get, path: str) -> dict[str, Any] | None:
    """Return a resource; None: the service cannot give this one. Raises NoAnswer where it would give no other, too."""
    try:
        return get(path)
    except NoAnswer as error:
        if isinstance(error, Forbidden) or not (isinstance(error, Unreachable) or error.status == Status.DENIED):
            return None
        raise


def _link(document: dict[str, Any], name: str) -> str:
    """Return the path to which a property links; empty: it does not."""
    path = _object(document, name).get("@odata.id")
    return path if isinstance(path, str) and is_path(path) else ""


def _object(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _list(document: dict[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    return value if isinstance(value, list) else []
