"""A condition that ends a recording: ``wss>8GiB``, ``rss<2G for 5s``, ``verdict:oom``. Cheap to test."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from memtui.analysis.limit_forecast import forecast_of, forecast_sentence
from memtui.analysis.memory_growth import LONGEST_S
from memtui.core.readings import MemoryLimit
from memtui.core.units import duration, parse_size, size

_FORM = re.compile(
    r"\s*(?P<what>wss|rss)\s*(?P<sign>[<>])\s*(?P<size>[0-9][0-9.]*\s*[A-Za-z]*?)"
    r"(?:\s+for\s+(?P<time>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>ms|s|min|h)?)?\s*",
    re.ASCII,
)
OOM = "verdict:oom"
_UNITS = {"ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_MOST_NS = 366 * 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class StopCondition:
    """Whether the working set or the resident memory of the tree is above or below a size, and for how long.

    With ``OOM`` it is whether memory will be full if its use goes on growing.
    """

    what: str  # "wss", "rss" or ``OOM``
    above: bool = True
    size_bytes: int = 0
    for_ns: int = 0

    @classmethod
    def parse(cls, text: str) -> StopCondition:
        """Return the condition of a text. Raises ValueError with what is wrong and what would be right."""
        if text.strip() == OOM:
            return cls(OOM)
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a condition: say wss>8GiB, rss<500MB, wss>8GiB for 5s or {OOM}")
        for_ns = round(float(match["time"]) * _UNITS[match["unit"] or "s"]) if match["time"] else 0
        if for_ns > _MOST_NS:
            raise ValueError(f"{text!r}: for more than a year")
        return cls(match["what"], match["sign"] == ">", parse_size(match["size"]), for_ns)

    def holds(self, value: float) -> bool:
        return value > self.size_bytes if self.above else value < self.size_bytes


class Watch:
    """Tests a condition in window after window."""

    def __init__(self, condition: StopCondition) -> None:
        self.condition = condition
        self._since_ns: int | None = None
        self._limits: deque[MemoryLimit] = deque()

    def add_limits(self, limits: Iterable[MemoryLimit]) -> str:
        """Return what came true with these readings of the limit of memory, or an empty text."""
        before = len(self._limits)
        self._limits.extend(limits if self.condition.what == OOM else ())
        if len(self._limits) == before:
            return ""
        while self._limits[-1].t_ns - self._limits[0].t_ns > LONGEST_S * 1e9:
            self._limits.popleft()
        forecast = forecast_of(self._limits)
        if forecast is None:
            return ""
        return f"{OOM}: {forecast_sentence(self._limits[-1].cgroup, forecast)}"

    def update(self, start_ns: int, end_ns: int, wss_bytes: int | None, rss_bytes: int | None) -> str:
        """Return what came true with this window, or an empty text. A window without the value changes nothing."""
        condition = self.condition
        value = {"wss": wss_bytes, "rss": rss_bytes}.get(condition.what)
        if value is None:
            return ""
        if not condition.holds(value):
            self._since_ns = None
            return ""
        if self._since_ns is None:
            self._since_ns = start_ns
        if end_ns - self._since_ns < condition.for_ns:
            return ""
        sign = ">" if condition.above else "<"
        lasting = f" for {duration(condition.for_ns / 1e9)}" if condition.for_ns else ""
        return f"{condition.what} {size(value)} {sign} {size(condition.size_bytes)}{lasting}"
