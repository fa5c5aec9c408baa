"""What means over windows by tensor and by call stack have in common."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import distinct

COLD_SHARE = 0.5  # touched in a window, and less: cold
LISTED = 10  # in the document; exports have all
_WINDOWS = 64  # a page set takes a millisecond or more to decode


def spread(windows: int, most: int = _WINDOWS) -> NDArray[np.int64]:
    """Return the indices of at most ``most`` windows of so many, the first and the last among them."""
    return distinct(np.linspace(0, max(windows - 1, 0), most).astype(np.int64))[:windows]
