"""Doubts about pages that several processes of a tree map, where another observer took their accessed bits.

The kernel's note about that is one for all processes. The first of them whose accessed bits are cleared takes it away,
so the windows of the others say nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from memtui.analysis.lower_bound import bound_bytes
from memtui.core.samples import MORE_TOUCHED
from memtui.core.units import size
from memtui.probes.pages.tracker import BITS_TAKEN, PageWindow, is_little


def shared_doubts(windows: Mapping[int, PageWindow], shared_bytes: Mapping[int, int]) -> dict[int, str]:
    """Return a sentence for each window that may lack pages as the window of another process says.

    Args:
        windows: of a round, by pid.
        shared_bytes: how much of what is resident of a process others map, too; of other pids it is not known.
    """
    taken = {pid: part for pid, window in windows.items() if (part := _taken(window.reason))}
    doubts = {}
    for pid, window in windows.items():
        others = [(bound_bytes(part), other, part) for other, part in taken.items() if other != pid]
        if pid in taken or window.pages is None or not others:
            continue
        most_bytes, other, part = max(others)
        missing_bytes = min(most_bytes, shared_bytes.get(pid, most_bytes))
        if math.isfinite(missing_bytes) and not is_little(int(missing_bytes), window.pages):
            who = part.partition(f" {BITS_TAKEN}")[0]
            bound = f"about {size(missing_bytes)} {MORE_TOUCHED}"
            doubts[pid] = f"{who} {BITS_TAKEN} of memory that pid {other} has, too: {bound}"
    return doubts


def _taken(reason: str) -> str:
    """Return the part of the reason of a window that says what another observer took; empty without one."""
    return next((part for part in reason.split("; ") if f" {BITS_TAKEN}: " in part), "")
