"""Charts, tables and findings of a study, a comparison or a benchmark as values, without a way of drawing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any] | Sequence[float]
"""Numbers along a line."""
HEAT_TICKS = (0.0, 0.05, 0.25, 1.0)
"""Touched shares that are named beside the colours of a heat map; colours go by the root of a share."""


@dataclass(frozen=True, slots=True, eq=False)
class ChartLine:
    """A line of a chart.

    Attributes:
        until: second bound of the line; the area between both is shaded.
        points: whether its points have markers.
        bars: (low, high) around each point, drawn where they are known.
    """

    name: str
    x: Values
    y: Values
    until: Values | None = None
    points: bool = False
    bars: Sequence[tuple[float, float]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """Lines on two axes.

    Attributes:
        name: part of the file name, and anchor.
        title: subject of the chart, with the length of its windows.
        x_name: name of the axis with its unit, as ``y_name``.
        lines: lines, drawn one over the other, or (``stacked``) each in a panel of its own.
        y_log: whether the axis is logarithmic, of base 2.
        x_ticks: positions of the ticks; None: automatic.
        limits: (low, high) of the horizontal axis; None: automatic.
        note: explanation for the reader.
    """

    name: str
    title: str
    x_name: str
    y_name: str
    lines: Sequence[ChartLine]
    y_log: bool = False
    x_log: bool = False
    x_ticks: Sequence[float] | None = None
    limits: tuple[float, float] | None = None
    from_zero: bool = False
    stacked: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class HeatRegion:
    """Neighbouring rows of a heat map that belong together.

    Attributes:
        name: name of the memory.
        start: first row.
        end: row after the last one.
    """

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class HeatChart:
    """A picture of accesses by address and time.

    Attributes:
        share: f4[rows, n] with the lowest address first.
        vlines: columns with a vertical line.
        until: end of the last column on an axis that starts with 0; None: the axis counts columns.
        limit: end of that axis, where several charts are compared.
        regions: named rows, by rising address; the others have no name.
    """

    name: str
    title: str
    x_name: str
    y_name: str
    share: np.ndarray
    vlines: Sequence[float] = ()
    note: str = ""
    until: float | None = None
    limit: float | None = None
    regions: Sequence[HeatRegion] = ()


@dataclass(frozen=True, slots=True)
class BarAxis:
    """One panel of bars.

    Attributes:
        name: quantity of the axis, without its unit.
        unit: unit of the values, without a prefix: ``s``, ``W``, ``J``.
    """

    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One value of a row.

    Attributes:
        value: length of the bar; None: not known, and ``text`` says so.
        text: the value with its unit.
        low: lower end of the interval around the value; None: not known.
        high: upper end.
        start: position where the bar begins.
        mark: another value to compare with.
    """

    value: float | None
    text: str
    low: float | None = None
    high: float | None = None
    start: float = 0.0
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class BarRow:
    """The values of one thing.

    Attributes:
        name: name, which is never cut.
        bars: one for each axis; () with a ``reason``.
        reason: why there are no values.
        main: whether the row stands out from the others.
    """

    name: str
    bars: tuple[Bar, ...]
    reason: str = ""
    main: bool = False


@dataclass(frozen=True, slots=True)
class BarChart:
    """Rows with a name and a bar in each of several panels.

    Attributes:
        name: part of the file name.
        title: subject of the chart.
        subtitle: sentences below the title.
        names: heading of the names.
        axes: panels, from left to right.
        rows: rows, from above.
        notes: sentences below the panels.
    """

    name: str
    title: str
    subtitle: Sequence[str]
    names: str
    axes: Sequence[BarAxis]
    rows: Sequence[BarRow]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted value beside the measured one.

    Attributes:
        measured: measured value.
        predicted: predicted value.
        low: lower end of the range of the prediction.
        high: upper end.
        outside: whether the model extrapolates there.
    """

    measured: float
    predicted: float
    low: float
    high: float
    outside: bool = False


@dataclass(frozen=True, slots=True)
class PredictionChart:
    """Predicted against measured values, with the diagonal.

    Attributes:
        name: part of the file name.
        title: subject of the chart.
        subtitle: sentences below the title.
        axis: the quantity and its unit.
        groups: predictions by name of their group.
        error: the 90 % quantile of the error by the measured value.
        notes: sentences below the panels.
    """

    name: str
    title: str
    subtitle: Sequence[str]
    axis: BarAxis
    groups: Mapping[str, Sequence[Prediction]]
    error: float
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, below their heads."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """The results of a study.

    Attributes:
        numbers: numbers for JSON, with units in their names.
        conclusion: sentences that follow from the numbers and could have come out differently.
        charts: charts in the order of the report.
        tables: tables in the order of the report.
        doubts: reasons to doubt the numbers.
    """

    numbers: dict[str, Any]
    conclusion: list[str]
    charts: Sequence[Chart | HeatChart]
    tables: list[Table] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
