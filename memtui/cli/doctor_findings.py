"""What this machine can measure, what it cannot and why, and what would change that."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Any

from memtui._version import __version__
from memtui.core.samples import Capability
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


def examine() -> dict[str, Any]:
    """Try everything once; nothing is left behind."""
    auto = _auto()
    return {
        "memtui_version": __version__,
        "python": platform.python_version(),
        "host": asdict(read_host()),
        "root": os.geteuid() == 0,
        "auto_tracker": auto["tracker"],
        "auto": auto,
        "trackers": [asdict(c) for c in capabilities()],
        "flushes": [asdict(c) for c in _flushes()],
        "observers": list(other_observers()),
        "power": [asdict(c) for c in _power()],
        "demo": asdict(_demo()),
        "rights": asdict(_rights()),
    }


def _auto() -> dict[str, str | None]:
    """Return what a recording would take here, and why: the choice itself, made and given back."""
    try:
        tracker, rejected = choose("auto", "auto")
    except NoTracker as error:
        return {"tracker": None, "flush": None, "rearm": None, "reason": str(error)}
    try:
        why = "; ".join(f"{c.name} is out: {c.reason}" for c in rejected) or _MOST_EXACT
        return {"tracker": tracker.name, "flush": tracker.flush, "rearm": tracker.rearm, "reason": why}
    finally:
        tracker.close()


def _rights() -> Capability:
    if os.geteuid() == 0:
        return Capability("root", True)
    return Capability("root", False, ROOT_ONLY, f"run: {sudo_line('doctor')}")


def _flushes() -> list[Capability]:
    from memtui.probes.pages.pagetable.proof import flush_capabilities

    return [_soft_dirty(c) if c.name == SOFT_DIRTY else c for c in flush_capabilities()]


def _soft_dirty(found: Capability) -> Capability:
    """Where page tables cannot be read, the referenced tracker proves this flush in its own way."""
    found = found if found.ok else prove_flush()
    return replace(found, reason=_WRITE_PROTECTS) if found.ok and soft_dirty_is_tracked() else found


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


def format_findings(findings: dict[str, Any]) -> str:
    """Return the findings as a page of text."""
    host, auto = findings["host"], findings["auto"]
    lines = [
        f"memtui {findings['memtui_version']}, Python {findings['python']}, Linux {host['kernel']} "
        f"{host['architecture']}, {host['cpu_count']} CPUs, {host['memory_bytes'] / 2**30:.0f} GiB",
        f"auto: tracker {auto['tracker']}, flush {auto['flush']}, rearm {auto['rearm']}: {auto['reason']}",
    ]
    groups = (
        ("rights", [findings["rights"]]),
        ("tracker", findings["trackers"]),
        ("flush", findings["flushes"]),
        ("power", findings["power"]),
        ("demo", [findings["demo"]]),
    )
    for title, found in groups:
        for capability in found:
            mark = "yes" if capability["ok"] else "no "
            why = f": {capability['reason']}" if capability["reason"] else ""
            lines.append(f"{title:<8} {mark} {capability['name']}{why}")
            if capability["remedy"] and not capability["ok"]:
                lines.append(f"{'':<12} {capability['remedy']}")
    for name in findings["observers"]:
        lines.append(f"observer     {name} clears accessed bits, too: some touched pages may be missed")
    return "\n".join(lines)
