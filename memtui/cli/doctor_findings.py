"""What this machine can measure, what it cannot and why, and what would change that."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memtui._version import __version__
from memtui.core.errors import UserError
from memtui.core.fault_latency import FaultLatencies, save, stored
from memtui.core.json_fields import from_json, to_json
from memtui.core.privilege import as_invoker, invoker, state_directory
from memtui.core.samples import Capability, Host
from memtui.core.text import printable
from memtui.core.units import between, duration_ns
from memtui.probes.competing_observers import how_to_stop, other_observers
from memtui.probes.host import read_host
from memtui.probes.major_faults import measure
from memtui.probes.pages.referenced import prove_flush
from memtui.probes.pages.select_tracker import NoTracker, capabilities, choose
from memtui.probes.pages.tlb_flush import SOFT_DIRTY, soft_dirty_is_tracked
from memtui.recording.targets import sudo_line

ROOT_ONLY = "only this user's processes, and working sets by range without single pages"
_MOST_EXACT = "the most exact one, and it proved itself here"
_WRITE_PROTECTS = (
    "a kernel with CONFIG_MEM_SOFT_DIRTY: it write-protects the target's pages, one minor fault for each page that is "
    "written in a window"
)


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """The tracker that a recording would choose here, and why; None: no tracker works."""

    tracker: str | None
    flush: str | None
    rearm: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What was tried, and the results.

    Attributes:
        root: whether this process has root's rights.
        observers: other programs that clear accessed bits.
        fault_latencies: what was measured last of this user's machines; None: nothing yet.
        demo: whether the demo trains with PyTorch.
        rights: what root would change.
    """

    memtui_version: str
    python: str
    host: Host
    root: bool
    auto: AutoChoice
    trackers: tuple[Capability, ...]
    flushes: tuple[Capability, ...]
    observers: tuple[str, ...]
    power: tuple[Capability, ...]
    fault_latencies: FaultLatencies | None
    demo: Capability
    rights: Capability

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints, without the version of that format."""
        return {
            "memtui_version": self.memtui_version,
            "python": self.python,
            "host": asdict(self.host),
            "root": self.root,
            "auto_tracker": self.auto.tracker,
            "auto": asdict(self.auto),
            "trackers": list(map(asdict, self.trackers)),
            "flushes": list(map(asdict, self.flushes)),
            "observers": list(self.observers),
            "power": list(map(asdict, self.power)),
            "fault_latencies": to_json(self.fault_latencies),
            "demo": asdict(self.demo),
            "rights": asdict(self.rights),
        }


def examine() -> Findings:
    """Try everything once; nothing is left behind."""
    return Findings(
        memtui_version=__version__,
        python=platform.python_version(),
        host=read_host(),
        root=os.geteuid() == 0,
        auto=_auto(),
        trackers=tuple(capabilities()),
        flushes=tuple(_flushes()),
        observers=other_observers(),
        power=tuple(_power()),
        fault_latencies=_stored_latencies(),
        demo=_demo(),
        rights=_rights(),
    )


def measure_major_faults(folder: Path) -> None:
    """Measure the latency of major faults, and store it, with the rights of the invoking user.

    Args:
        folder: where a file is made that is read back.

    Raises:
        UserError: no file can be made there, or nothing can be stored.
    """

    def as_user() -> None:
        if not folder.is_dir():
            raise UserError(f"{folder}: is not a folder; name the one with your data")
        save(measure(folder), state_directory(invoker()))

    as_invoker(as_user)


def _stored_latencies() -> FaultLatencies | None:
    data = as_invoker(lambda: to_json(stored()))
    return None if data is None else from_json(FaultLatencies, data)


def _auto() -> AutoChoice:
    """Choose a tracker as a recording would, and release it."""
    try:
        tracker, rejected = choose("auto", "auto")
    except NoTracker as error:
        return AutoChoice(None, None, None, str(error))
    try:
        why = "; ".join(f"{c.name} is out: {c.reason}" for c in rejected) or _MOST_EXACT
        return AutoChoice(tracker.name, tracker.flush, tracker.rearm, why)
    finally:
        tracker.close()


def _rights() -> Capability:
    if os.geteuid() == 0:
        return Capability("root", True)
    return Capability("root", False, ROOT_ONLY, f"run: {sudo_line('doctor')}")


def _flushes() -> list[Capability]:
    from memtui.probes.pages.pagetable.proof import flush_capabilities

    return [_soft_dirty(c) if c.name == SOFT_DIRTY else c for c in flush_capabilities()]


def _soft_dirty(capability: Capability) -> Capability:
    """Prove this flush by the referenced tracker's own method where page tables cannot be read."""
    proved = capability if capability.ok else prove_flush()
    return replace(proved, reason=_WRITE_PROTECTS) if proved.ok and soft_dirty_is_tracked() else proved


def _power() -> list[Capability]:
    from memtui.probes.power.probe import PowerProbe

    probe = PowerProbe()
    try:
        return list(probe.capabilities())
    finally:
        probe.close()


def _demo() -> Capability:
    if find_spec("torch") is not None:
        return Capability("torch", True)
    return Capability("torch", False, "PyTorch is not installed: the demo trains a numpy network", "pip install torch")


def format_findings(findings: Findings) -> str:
    """Return the findings as a page of text."""
    host, auto = findings.host, findings.auto
    lines = [
        f"memtui {findings.memtui_version}, Python {findings.python}, Linux {host.kernel} "
        f"{host.architecture}, {host.cpu_count} CPUs, {host.memory_bytes / 2**30:.0f} GiB",
        f"auto: tracker {auto.tracker}, flush {auto.flush}, rearm {auto.rearm}: {auto.reason}",
    ]
    groups = (
        ("rights", (findings.rights,)),
        ("tracker", findings.trackers),
        ("flush", findings.flushes),
        ("power", findings.power),
        ("demo", (findings.demo,)),
    )
    for title, group in groups:
        for capability in group:
            mark = "yes" if capability.ok else "no "
            why = f": {capability.reason}" if capability.reason else ""
            lines.append(f"{title:<8} {mark} {capability.name}{why}")
            if capability.remedy and not capability.ok:
                lines.append(f"{'':<12} {capability.remedy}")
    lines += _of_faults(findings.fault_latencies)
    for name in findings.observers:
        lines.append(f"observer     {name} clears accessed bits, too: some touched pages may be missed")
        lines.append(f"{'':<12} {how_to_stop(name)}")
    return "\n".join(lines)


def _of_faults(measured: FaultLatencies | None) -> list[str]:
    """Return the lines about major faults."""
    if measured is None:
        return ["faults   no  latency of major faults: not measured", f"{'':<12} memtui doctor --measure"]
    lines = []
    for latency in measured.latencies:
        quartiles = between(duration_ns(latency.lower_ns), duration_ns(latency.upper_ns))
        where = f"{latency.source} ({printable(latency.where)})"
        lines.append(
            f"faults   yes {where}: a page comes back in {duration_ns(latency.median_ns)} (half of them {quartiles})"
        )
    lines += [f"faults   no  {printable(sentence)}" for sentence in measured.unmeasured]
    return [*lines, f"{'':<12} measured on {measured.host.hostname}, {measured.measured}"]
