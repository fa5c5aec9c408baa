"""Limits of fast memory from a ratio of slow to fast memory."""

from __future__ import annotations

import re
from fractions import Fraction

_RATIO = re.compile(r"([0-9]{1,9}):([0-9]{1,9})", re.ASCII)


def parse_ratio(text: str) -> Fraction:
    """Return the fast part of a ratio ``P:D``, slow to fast: ``1:1`` is a half, ``0:1`` is 1. Raises ValueError."""
    match = _RATIO.fullmatch(text.strip())
    slow, fast = (int(match[1]), int(match[2])) if match else (0, 0)
    if not slow + fast:
        raise ValueError(f"{text!r} is not a ratio of slow to fast memory, such as 1:1, 4:1 or 0:1 (all of it fast)")
    return Fraction(fast, slow + fast)


def limit_of(part: Fraction, peak_bytes: int) -> int:
    """Return the limit in bytes that holds this part of the peak in fast memory."""
    return int(part * peak_bytes)
