"""What the screen of a placement profile shows, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

HERE_FAST, HERE_SLOW, NOT_HERE = "FS "  # where a tensor is while an op runs


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One op in one configuration.

    Attributes:
        label: the configuration.
        time_ns: typical; None: not measured.
        ratio: to everything in fast memory; None: not known.
    """

    label: str
    time_ns: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """An op: its name, what it computes, and its configurations, everything in fast memory first."""

    op: str
    kind: str
    cells: tuple[MatrixCell, ...]


@dataclass(frozen=True, slots=True)
class MatrixView:
    """All ops in one way of timing, with one slow pool."""

    rows: tuple[MatrixRow, ...]
    mode: str
    slow: str
    measured: int
    of: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """One op and configuration, timed in two ways; what is below the noise floor is not judged."""

    label: str
    x_ns: float
    y_ns: float
    judged: bool
    outlier: bool


@dataclass(frozen=True, slots=True)
class ScatterView:
    """Two ways of timing: ``across`` is the reference, ``up`` the way compared with it.

    ``verdict``: forms of the same sentence, the longest first.
    """

    across: str
    up: str
    points: tuple[ScatterPoint, ...]
    verdict: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A tensor that may be placed.

    Attributes:
        name: of its memory.
        size_bytes: in whole pages.
        where: a character for each op: ``HERE_FAST``, ``HERE_SLOW`` or ``NOT_HERE``.
        moves: (op, into fast memory, while the op runs) of each copy.
    """

    name: str
    size_bytes: int
    where: str
    moves: tuple[tuple[int, bool, bool], ...]


@dataclass(frozen=True, slots=True)
class TimelineView:
    """A plan over the ops. ``sentences``: forms of the same sentence, the longest first."""

    title: str
    sentences: tuple[str, ...]
    ops: tuple[str, ...]
    rows: tuple[TimelineRow, ...]
    fast_bytes: tuple[int, ...]
    limit_bytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Limit of fast memory, time of the plan, its gap, and the baseline where it is known."""

    limit_bytes: int
    plan_ns: float
    gap: float | None
    touch_ns: float | None


@dataclass(frozen=True, slots=True)
class CurveView:
    """The curve of one formulation."""

    title: str
    points: tuple[CurvePoint, ...]
    all_fast_ns: float | None
    note: str = ""
