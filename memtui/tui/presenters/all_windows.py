"""How all windows of a session are looked at: now and then, and some thousands at a time.

A session has hours of windows. Arrays that are a little longer each time fit into no hole that the last ones left.
"""

from __future__ import annotations

from collections.abc import Iterator

MORE = 64  # up to one in so many windows is added to what is known; then all are looked at again
_TOGETHER = 4096


def parts_until(count: int) -> Iterator[slice]:
    """Yield the first windows in parts."""
    for start in range(0, count, _TOGETHER):
        yield slice(start, min(start + _TOGETHER, count))
