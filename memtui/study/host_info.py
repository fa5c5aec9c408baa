"""The host of a study: versions and hardware, for its report and to tell runs on different machines apart."""

from __future__ import annotations

import os
import platform
import socket
from importlib import metadata
from typing import Any

from memtui._version import __version__
from memtui.core.units import size
from memtui.probes.host import processor_name


def describe() -> dict[str, Any]:
    """Return versions and hardware, as text. No framework is imported."""
    return {
        "hostname": socket.gethostname(),
        "kernel": platform.release(),
        "cpu": processor_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": size(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "torch": _version("torch"),
        "memtui": __version__,
    }


def surroundings(machine: dict[str, Any], place: str = "") -> list[str]:
    """Return the versions and the hardware that are equal in comparable runs.

    ``place``: place of the run; a run in a container also depends on the kind of container.
    """
    names = ("hostname", "kernel", "cpu", "python", "numpy", "torch", "memtui") + (("container",) if place else ())
    return [f"{name}={machine[name]}" for name in names]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
