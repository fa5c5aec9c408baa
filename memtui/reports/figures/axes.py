"""Scales and ticks: round numbers in a unit that stands at the axis, and the axes to draw into."""

from __future__ import annotations

import math
from dataclasses import dataclass

from memtui.reports.figures.svg import COLUMN_PT, SMALL_PT, TEXT_PT, Drawing

AXIS_PT = 22.0  # height of the numbers and the name of an axis
_LINE_PT = SMALL_PT + 1.2
_BYTES = (("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("PiB", 1 << 50))
_SI = ((1e-9, "n"), (1e-6, "u"), (1e-3, "m"), (1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))
_RATIOS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_SECONDS = (("s", 1.0), ("min", 60.0), ("h", 3600.0))


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to 0 to 1. ``ticks`` are (value, label); ``unit`` is for the name of the axis."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    unit: str
    log: bool = False

    def fraction(self, value: float) -> float:
        """Return the position of a value: 0 at the low end, 1 at the high end; values beyond stay at the end."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log2(max(value, low)), math.log2(low), math.log2(high)
        return min(max((value - low) / (high - low), 0.0), 1.0)


def bytes_scale(most: float, ticks: int = 4) -> Scale:
    """Return a scale from 0 to a round number of bytes at or above ``most``."""
    unit, factor = max((u for u in _BYTES if u[1] <= max(most, 1)), key=lambda u: u[1])
    step = _round_step(max(most, 1) / factor / ticks)
    return _linear(0.0, math.ceil(max(most, 1) / factor / step - 1e-9) * step, step, factor, unit)


def time_scale(span_s: float, ticks: int = 6) -> Scale:
    """Return a scale from 0 to the end of a recording, which needs no round number."""
    unit, factor = max((u for u in _SECONDS if u[1] * 2 <= max(span_s, 2.0)), key=lambda u: u[1])
    end = max(span_s, 1e-3) / factor
    return _linear(0.0, end, _round_step(end / ticks), factor, unit)


def share_scale(most: float) -> Scale:
    """Return a scale of percent from 0 to a round number at or above a share of 0 to 1."""
    step = _round_step(max(most, 1e-4) * 100 / 4)
    return _linear(0.0, min(100.0, math.ceil(max(most, 1e-4) * 100 / step - 1e-9) * step), step, 0.01, "%")


def number_scale(most: float) -> Scale:
    """Return a scale from 0 to a round number at or above ``most``, without a unit."""
    step = _round_step(max(most, 1e-9) / 4)
    return _linear(0.0, math.ceil(max(most, 1e-9) / step - 1e-9) * step, step, 1.0, "")


def prefixed_scale(most: float, unit: str, ticks: int = 4) -> Scale:
    """Return a scale from 0 to a round number of ``unit``, with an SI prefix, at or above ``most``."""
    most = max(most, 1e-12)
    factor, prefix = max((p for p in _SI if p[0] <= most), key=lambda p: p[0], default=_SI[0])
    step = _round_step(most / factor / ticks)
    return _linear(0.0, math.ceil(most / factor / step - 1e-9) * step, step, factor, prefix + unit)


def decade_scale(low: float, high: float, unit: str, labels: int = 6) -> Scale:
    """Return a logarithmic scale that has all values of ``low`` to ``high``, with ticks that name their unit."""
    low, high = max(low, 1e-15), max(high, 1e-15)
    spread = high / low
    factors = (1, 2, 5) if spread < 30 else (1,)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    every = sorted(f * 10.0**power for power in powers for f in factors)
    first = max(tick for tick in every if tick <= low * (1 + 1e-9))
    last = min(tick for tick in every if tick >= high * (1 - 1e-9) and tick > first)
    inside = [tick for tick in every if first <= tick <= last]
    stride = math.ceil(len(inside) / labels)
    return Scale(first, last, tuple((tick, _prefixed(tick, unit)) for tick in inside[::stride]), unit, log=True)


def ratio_scale(most: float) -> Scale:
    """Return a logarithmic scale of ratios around 1, up to ``most`` and down to its inverse."""
    limit = next((ratio for ratio in _RATIOS if ratio >= most), 10.0 ** math.ceil(math.log10(max(most, 1.0))))
    ratios = [10.0**power for power in range(1, round(math.log10(limit)))] + [limit]
    ticks = tuple((ratio, f"{ratio:.3g}") for ratio in sorted([1.0, *ratios, *(1 / ratio for ratio in ratios)]))
    return Scale(1 / limit, limit, ticks, "", log=True)


def _prefixed(value: float, unit: str) -> str:
    """Return ``10 us`` for a tick."""
    factor, prefix = max((p for p in _SI if p[0] <= value * (1 + 1e-9)), key=lambda p: p[0], default=_SI[0])
    return f"{value / factor:.3g} {prefix}{unit}"


def row_scale(count: int) -> Scale:
    """Return a scale from 0 to a count."""
    return _linear(0.0, float(max(count, 1)), max(_round_step(max(count, 1) / 6), 1.0), 1.0, "")


def octave_scale(low: float, high: float, labels: int = 6) -> Scale:
    """Return a logarithmic scale of bytes, with a tick at powers of two."""
    first, last = math.floor(math.log2(low) + 1e-9), math.ceil(math.log2(high) - 1e-9)
    last = max(last, first + 1)
    stride = max(1, math.ceil((last - first) / labels))
    # Aligned to powers of four or sixteen like the stride: readers expect 64 KiB and 1 MiB.
    start = math.ceil(first / stride) * stride
    ticks = tuple((2.0**power, _octave(power)) for power in range(start, last + 1, stride))
    return Scale(2.0**first, 2.0**last, ticks, "bytes", log=True)


def _octave(power: int) -> str:
    """Return ``64 KiB``, without digits after the point."""
    unit, factor = max((u for u in _BYTES if u[1] <= 1 << power), key=lambda u: u[1])
    return f"{(1 << power) // factor} {unit}"


def _linear(low: float, high: float, step: float, factor: float, unit: str) -> Scale:
    count = math.floor((high - low) / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = tuple(((low + i * step) * factor, f"{low + i * step:.{digits}f}") for i in range(count + 1))
    return Scale(low * factor, high * factor, ticks, unit)


def _round_step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at or above ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= least * (1 - 1e-9))


@dataclass(frozen=True, slots=True)
class Axes:
    """A rectangle of a drawing with a scale on each side."""

    drawing: Drawing
    left: float
    top: float
    width: float
    height: float
    across: Scale
    up: Scale | None = None

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, value: float) -> float:
        """Return the position of a value of the horizontal axis, points from the left."""
        return self.left + self.across.fraction(value) * self.width

    def y(self, value: float) -> float:
        """Return the position of a value of the vertical axis, points from above."""
        assert self.up is not None
        return self.bottom - self.up.fraction(value) * self.height

    def grid(self) -> None:
        """Draw faint lines at the ticks of the vertical axis, behind everything."""
        for value, _ in self.up.ticks if self.up else ():
            if value > (self.up.low if self.up else 0):
                self.drawing.line(self.left, self.y(value), self.left + self.width, self.y(value), "grid", 0.4)

    def edges(self) -> None:
        """Draw the axis lines over everything else."""
        self.drawing.line(self.left, self.top, self.left, self.bottom, "ink", 0.6)
        self.drawing.line(self.left, self.bottom, self.left + self.width, self.bottom, "ink", 0.6)

    def label_up(self, name: str) -> None:
        """Write numbers and name of the vertical axis."""
        draw = self.drawing
        for value, label in self.up.ticks if self.up else ():
            draw.line(self.left - 2, self.y(value), self.left, self.y(value), "ink", 0.5)
            draw.text(self.left - 3.5, self.y(value) + 2.2, label, size=6.5, anchor="end")
        draw.text(9.0, self.top + self.height / 2, name, anchor="middle", upright=True)

    def label_across(self, name: str, *, numbers: bool = True) -> None:
        """Write numbers and name of the horizontal axis."""
        draw = self.drawing
        for value, label in self.across.ticks:
            x = self.x(value)
            draw.line(x, self.bottom, x, self.bottom + 2, "ink", 0.5)
            if numbers:
                draw.text(x, self.bottom + 8.5, label, size=6.5, anchor="middle")
        if name:
            draw.text(self.left + self.width / 2, self.bottom + 17, name, size=TEXT_PT, anchor="middle")


def captioned(bottom: float, title: str, description: str, lines: list[str]) -> Drawing:
    """Return a drawing with room for the numbers and the name of an axis below ``bottom``, and for a footnote there."""
    return Drawing(COLUMN_PT, bottom + AXIS_PT + len(lines) * _LINE_PT + 3, title, description)


def footnote(drawing: Drawing, lines: list[str], top: float) -> None:
    """Write the provenance of the figure, small and grey, below everything."""
    for row, line in enumerate(lines):
        drawing.text(4, top + row * _LINE_PT + SMALL_PT, line, size=SMALL_PT, fill="dim")
