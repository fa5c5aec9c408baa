"""What this machine can measure, what it cannot and why, and what would change that."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any

from memtui._version import __version__
from memtui.core.samples import Capability, Host
from memtui.probes.competing_observers import other_observers
from memtui.probes.host import read_host
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
        demo=_demo(),
        rights=_rights(),
    )


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
    for name in findings.observers:
        lines.append(f"observer     {name} clears accessed bits, too: some touched pages may be missed")
    return "\n".join(lines)
