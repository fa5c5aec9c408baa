"""The machine the figures are of, and whether it is quiet enough to believe them."""

from __future__ import annotations

import os
import platform
from datetime import datetime

from memtui._version import __version__
from memtui.probes.host import processor_name

QUIET = 0.5  # load average per core above which other work spoils the figures


def describe(load_before: float, load_after: float) -> str:
    """One line about this machine."""
    return (
        f"{processor_name()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, memtui {__version__}, {datetime.now():%Y-%m-%d %H:%M}; "
        f"load average {load_before:.2f} before, {load_after:.2f} after."
    )


def load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


def warning(load_before: float) -> str:
    """What to say of a machine that is busy before the first benchmark; empty when it is quiet."""
    cores = os.cpu_count() or 1
    if load_before <= QUIET * cores:
        return ""
    return (
        f"warning: load average {load_before:.2f} on {cores} cores before the start: something else runs here, "
        "and the figures are worse than memtui"
    )


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
