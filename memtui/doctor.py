"""What this machine can measure, what it cannot and why, and what would change that."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from memtui import __version__
from memtui.probes.host import read_host
from memtui.probes.pages.choice import AUTO_ORDER, capabilities
from memtui.probes.pages.observers import other_observers
from memtui.samples import Capability
from memtui.target import sudo_line

ROOT_ONLY = "only this user's processes, and working sets by range without single pages"


def examine() -> dict[str, Any]:
    """Try everything once; nothing is left behind."""
    trackers = capabilities()
    working = [c.name for c in trackers if c.ok]
    return {
        "memtui_version": __version__,
        "python": platform.python_version(),
        "host": asdict(read_host()),
        "root": os.geteuid() == 0,
        "auto_tracker": next((name for name in AUTO_ORDER if name in working), None),
        "trackers": [asdict(c) for c in trackers],
        "flushes": [asdict(c) for c in _flushes()],
        "observers": list(other_observers()),
        "power": [asdict(c) for c in _power()],
        "demo": asdict(_demo()),
        "rights": asdict(_rights()),
    }


def _rights() -> Capability:
    if os.geteuid() == 0:
        return Capability("root", True)
    return Capability("root", False, ROOT_ONLY, f"run: {sudo_line('doctor')}")


def _flushes() -> list[Capability]:
    from memtui.probes.pages import referenced
    from memtui.probes.pages.pagetable import flush_capabilities

    found = flush_capabilities()
    # Where page tables cannot be read, the referenced tracker proves its flush in its own way.
    return [c if c.ok or c.name != referenced.SOFT_DIRTY else referenced.prove_flush() for c in found]


def _power() -> list[Capability]:
    from memtui.probes.power import PowerProbe

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
    """The findings as a page of text."""
    host = findings["host"]
    lines = [
        f"memtui {findings['memtui_version']}, Python {findings['python']}, Linux {host['kernel']} "
        f"{host['architecture']}, {host['cpu_count']} CPUs, {host['memory_bytes'] / 2**30:.0f} GiB",
        f"tracker auto: {findings['auto_tracker']}",
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
        lines.append(f"observer     {name} clears accessed bits, too: a page first touched in a window may be missed")
    return "\n".join(lines)
