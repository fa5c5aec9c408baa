"""Charts, tables and findings as values: what a study or a comparison shows, for somebody else to draw."""

from __future__ import annotations

from collections.abc import Sequence
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
        until: its other bound, where there is one: the area between them is shaded.
        points: marks at its points.
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
        name: for the file and as an anchor.
        title: says what it shows, with the length of its windows.
        x_name: axis with its unit, as ``y_name``.
        lines: drawn one over the other, or (``stacked``) each in a panel of its own.
        y_log: a logarithmic axis of base 2.
        x_ticks: where ticks are, where that is given.
        limits: (low, high) of the horizontal axis, where given.
        note: what the reader has to know about it.
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


@dataclass(frozen=True, slots=True, eq=False)
class HeatChart:
    """A picture of where and when.

    Attributes:
        share: f4[rows, n] with the lowest address first.
        vlines: columns with a vertical line.
        until: where its last column ends on an axis that begins with 0; None: the axis counts columns.
        limit: the end of that axis, where others have to be held against it.
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


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, below their heads."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """What a study came to.

    Attributes:
        numbers: for JSON, with units in their names.
        conclusion: sentences; each follows from the numbers and could have come out otherwise.
        charts: in the order of the report.
        tables: likewise.
        doubts: what makes the numbers less than they seem.
    """

    numbers: dict[str, Any]
    conclusion: list[str]
    charts: Sequence[Chart | HeatChart]
    tables: list[Table] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
