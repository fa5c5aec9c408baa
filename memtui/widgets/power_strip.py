"""What a device draws while it is measured: the last minute, with the windows that are measured marked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memtui.widgets import raster, text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line
from memtui.widgets.views.bench import PowerSample

SPAN_S = 60.0
HELD_S = 2.0  # how long a reading stands for what follows it
AXIS = 7
_MEASURED, _BETWEEN, _MEAN = 0, 1, 2  # styles


class PowerStrip(Panel):
    """The sensor as an area, the mean of a second as a line over it; one of them where the device has one only."""

    view: Sequence[PowerSample]
    title = "power"

    def heading_right(self, width: int) -> Line:
        look = self.look
        line: Line = [("■ ", look.heat[_HOT]), ("in a measured window", look["dim"])]
        if self._has_sensor:
            line += [(" · ", look["dim"]), ("─ ", look["focus"]), ("mean of 1 s", look["dim"])]
        return line

    def footing(self) -> Line:
        return [(f"-{SPAN_S:.0f} s", self.look["dim"])]

    def footing_right(self, width: int) -> Line:
        return [("now", self.look["dim"])]

    @property
    def _has_sensor(self) -> bool:
        return any(one.sensor_w is not None for one in self.view)

    def paint_inside(self, width: int, height: int) -> list[Line]:
        columns, rows = width - AXIS, height - 1
        if not self.view or columns < 4 or rows < 1:
            return []
        look = self.look
        each = 1 if look.ascii_only else 2  # values a column
        mean, sensor, measured = _held(self.view, columns * each)
        filled = sensor if self._has_sensor else mean
        known = np.concatenate((filled, mean))
        high = _ceiling(float(np.nanmax(known)) if np.isfinite(known).any() else 1.0)
        codes = raster.area(filled / high, rows, glyphs=raster.ASCII_VERTICAL if look.ascii_only else "braille")
        inside = measured[::each] | measured[each - 1 :: each]
        index = np.repeat(np.where(inside, _MEASURED, _BETWEEN)[None, :], rows, axis=0)
        if self._has_sensor and not look.ascii_only:
            line = raster.trace(mean / high, rows)
            codes, index = np.where(line != 0, line, codes), np.where(line != 0, _MEAN, index)
        lines = raster.lines(codes, index, [look.heat[_HOT], look["faint"], look["focus"]])
        number, unit = text.power(high).split()
        labels = [f"{float(number):g} {unit}", *[""] * (rows - 2), "0"][:rows]
        rule = "".join("■" if one else " " for one in inside.tolist())  # told without colours, too
        return [
            *([(label.rjust(AXIS - 1) + " ", look["dim"]), *line] for label, line in zip(labels, lines, strict=True)),
            [(" " * AXIS, look["dim"]), (rule, look.heat[_HOT])],
        ]


_HOT = 6  # of the warm levels


def _held(drawn: Sequence[PowerSample], count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean and sensor (nan: not known) and whether it was measured, for equal spans of the last minute."""
    t_ns = np.array([one.t_ns for one in drawn], np.int64)
    at = t_ns[-1] - (np.arange(count)[::-1] * (SPAN_S * 1e9 / count)).astype(np.int64)
    place = np.searchsorted(t_ns, at, side="right") - 1
    there = (place >= 0) & (at - t_ns[place] <= HELD_S * 1e9)

    def series(values: list[float | None]) -> np.ndarray:
        return np.where(there, np.array([np.nan if v is None else v for v in values])[place], np.nan)

    measured = np.array([one.measured for one in drawn])[place] & there
    return series([one.power_w for one in drawn]), series([one.sensor_w for one in drawn]), measured


def _ceiling(watts: float) -> float:
    """Return a round number at or above, for the upper end of the axis."""
    power = 10.0 ** np.floor(np.log10(watts or 1.0))
    return float(next(power * f for f in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * f >= watts))
