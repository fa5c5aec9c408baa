"""Lines of several sessions on one pair of axes, as a widget draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LETTERS = "ABCDEFGH"
MOST = len(LETTERS)  # more lines than that nobody tells apart


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Values at rising places of an axis; each holds to the next, and nan is not known."""

    x: Floats
    y: Floats


@dataclass(frozen=True, slots=True, eq=False)
class OverlayView:
    """Lines of several sessions on one pair of axes.

    Attributes:
        title: what the values are.
        lines: one for each session, in their order; empty where it has none.
        unit: of the values: "bytes", "%" or "" (plain numbers).
        across: what the other axis counts: "iterations", "s", "%" of the allocations and frees of one iteration,
            "share" (percent of the session), or "bytes" of memory.
    """

    title: str
    lines: tuple[Line, ...]
    unit: str
    across: str


def letters(places: Sequence[int]) -> str:
    """``A, B and C``."""
    names = [LETTERS[place] for place in places]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
