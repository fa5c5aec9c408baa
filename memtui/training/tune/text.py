"""Runs of a grid as text, the same on the screen and on standard output."""

from __future__ import annotations

from memtui.core.units import duration, size, span
from memtui.training.tune.results import TuneRow

NONE = "–"
_SHORT_S = 9.95  # shorter times are printed more precisely
COLUMNS = (("accuracy", 9), ("loss", 8), ("peak", 9), ("above", 9), ("time", 8))


def cells(row: TuneRow) -> tuple[str, ...]:
    """Return the figures of a row, in the order of ``COLUMNS``."""
    return figures(row.accuracy, row.loss, row.peak_bytes, row.peak_above_start_bytes, row.seconds)


def figures(
    accuracy: float | None,
    loss: float | None,
    peak_bytes: int | None,
    peak_above_start_bytes: int | None,
    seconds: float | None,
) -> tuple[str, ...]:
    """Return the figures of single numbers: percent, the loss, bytes twice, seconds."""
    return (
        NONE if accuracy is None else f"{accuracy:.2f} %",
        NONE if loss is None else f"{loss:.4g}",
        NONE if peak_bytes is None else size(peak_bytes),
        NONE if peak_above_start_bytes is None else size(peak_above_start_bytes),
        NONE if seconds is None else duration(seconds) if seconds < _SHORT_S else span(seconds),
    )


def head() -> str:
    """Return the line above the rows."""
    return "  ".join(f"{name:>{width}}" for name, width in COLUMNS) + "  run"


def line(label: str, row: TuneRow) -> str:
    """Return one row, followed by why it failed or stopped."""
    text = "  ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells(row), COLUMNS, strict=True))
    return f"{text}  {label}" + (f": {remark}" if (remark := remark_of(row)) else "")


def remark_of(row: TuneRow) -> str:
    """Return the remark about a row besides its figures; "" for a finished run."""
    if row.error:
        return f"failed: {row.error}"
    return f"stopped early: {row.stopped}" if row.stopped else ""
