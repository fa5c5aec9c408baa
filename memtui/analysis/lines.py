"""A line: values at rising places of an axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Values at rising positions of an axis; each value holds up to the next, and nan is not known."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
