"""Whether the working set of windows is a lower bound: the reasons of windows say what may have been touched, too."""

from __future__ import annotations

import math
import re

from memtui.core.samples import MORE_TOUCHED, is_lower_bound
from memtui.core.units import parse_size

MAPPED_SHARE = 0.1  # of a working set, in file pages that faults mapped: with more of them it is not a lower bound
_BOUND = re.compile(rf"([0-9.]+ [KMGT]?i?B) {MORE_TOUCHED}")

NOT_WATCHED = "without what children touched that came and went inside a window"


def bound_bytes(reason: str) -> float:
    """Return how many bytes may have been touched besides a working set, by its reason; infinite where it has none."""
    return sum(map(parse_size, _BOUND.findall(reason))) or math.inf


def may_lack_pages(reason: str, gaps: int) -> bool:
    """Return whether more may have been touched in a window; ``gaps``: births and ends of processes in it."""
    return is_lower_bound(reason) or gaps > 0


def mapped_bytes(reason: str, faulted_in_bytes: float) -> float:
    """Return the file pages that faults mapped in a window, touched or not; 0 where it may lack more than these.

    ``faulted_in_bytes``: nan is not known, and counts for nothing.
    """
    if math.isnan(faulted_in_bytes) or (is_lower_bound(reason) and bound_bytes(reason) >= faulted_in_bytes):
        return 0.0
    return faulted_in_bytes
