"""The power of a device during a measurement: the last minute, with the measured windows highlighted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memtui.widgets import raster, text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line
from memtui.widgets.views.bench import PowerSample

SPAN_S = 60.0
VALID_S = 2.0  # how long a reading is valid
AXIS = 7
_MEASURED, _BETWEEN, _MEAN = 0, 1, 2  # styles


class PowerStrip(Panel):
    """The sensor as an area, the mean of a second as a line over it; one of them where the device has one only."""

    view: Sequence[PowerSample]
    title = "power"

    def heading_right(self, width: int) -> Line:
        draw_style = self.draw_style
        line: Line = [("■ ", draw_style.heat[_HOT]), ("in a measured window", draw_style["dim"])]
        if self._has_sensor:
            line += [(" · ", draw_style["dim"]), ("─ ", draw_style["focus"]), ("mean of 1 s", draw_style["dim"])]
        return line

    def footing(self) -> Line:
        return [(f"-{SPAN_S:.0f} s", self.draw_style["dim"])]

    def footing_right(self, width: int) -> Line:
        return [("now", self.draw_style["dim"])]

    @property
    def _has_sensor(self) -> bool:
        return any(sample.sensor_w is not None for sample in self.view)

    def paint_inside(self, width: int, height: int) -> list[Line]:
        columns, rows = width - AXIS, height - 1
        if not self.view or columns < 4 or rows < 1:
            return []
        draw_style = self.draw_style
        each = 1 if draw_style.ascii_only else 2  # values a column
        mean, sensor, measured = _resampled(self.view, columns * each)
        filled = sensor if self._has_sensor else mean
        drawn_w = np.concatenate((filled, mean))
        high = _ceiling(float(np.nanmax(drawn_w)) if np.isfinite(drawn_w).any() else 1.0)
        codes = raster.area(filled / high, rows, glyphs=raster.ASCII_VERTICAL if draw_style.ascii_only else "braille")
        inside = measured[::each] | measured[each - 1 :: each]
        index = np.repeat(np.where(inside, _MEASURED, _BETWEEN)[None, :], rows, axis=0)
        if self._has_sensor and not draw_style.ascii_only:
            line = raster.trace(mean / high, rows)
            codes, index = np.where(line != 0, line, codes), np.where(line != 0, _MEAN, index)
        lines = raster.lines(codes, index, [draw_style.heat[_HOT], draw_style["faint"], draw_style["focus"]])
        number, unit = text.power(high).split()
        labels = [f"{float(number):g} {unit}", *[""] * (rows - 2), "0"][:rows]
        rule = "".join("■" if marked else " " for marked in inside.tolist())  # visible without colours, too
        return [
            *(
                [(label.rjust(AXIS - 1) + " ", draw_style["dim"]), *line]
                for label, line in zip(labels, lines, strict=True)
            ),
            [(" " * AXIS, draw_style["dim"]), (rule, draw_style.heat[_HOT])],
        ]


_HOT = 6  # of the warm levels


def _resampled(drawn: Sequence[PowerSample], count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, sensor (nan: not known) and whether a window was measured, for equal spans of the last minute."""
    t_ns = np.array([sample.t_ns for sample in drawn], np.int64)
    times_ns = t_ns[-1] - (np.arange(count)[::-1] * (SPAN_S * 1e9 / count)).astype(np.int64)
    index = np.searchsorted(t_ns, times_ns, side="right") - 1
    there = (index >= 0) & (times_ns - t_ns[index] <= VALID_S * 1e9)

    def series(values: list[float | None]) -> np.ndarray:
        return np.where(there, np.array([np.nan if v is None else v for v in values])[index], np.nan)

    measured = np.array([sample.measured for sample in drawn])[index] & there
    return series([sample.power_w for sample in drawn]), series([sample.sensor_w for sample in drawn]), measured


def _ceiling(watts: float) -> float:
    """Return a round number at or above a power, for the upper end of the axis."""
    power = 10.0 ** np.floor(np.log10(watts or 1.0))
    return float(next(power * f for f in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * f >= watts))
