"""Steps as a traced program reports them."""

from __future__ import annotations

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.core.tracer_messages import AllocationStep

WEIGHTS, ACTIVATIONS, TEMPORARIES = (CATEGORIES.index(name) for name in ("weights", "activations", "temporaries"))


def step(number: int = 7, **changes) -> AllocationStep:
    """Weights of 1000 bytes; an activation and, while it is there, a temporary: the peak is at the third row."""
    columns = np.array(
        [
            [100, 110, 120, 130, 140],  # t_ns
            [1000, 400, 64, -64, -400],  # delta_bytes
            [0, 1, 2, 2, 1],  # block
            [WEIGHTS, ACTIVATIONS, TEMPORARIES, TEMPORARIES, ACTIVATIONS],
            [3, 0, 0, 0, 1],  # phase
            [-1, 0, 1, -1, 2],  # op
            [-1, 3, 3, -1, -1],  # layer
        ],
        np.int64,
    )
    names = ("aten::linear/aten::addmm", "aten::relu", "autograd::engine/aten::mm", "features.0")
    fields = {"existing": 1, "names": names, "columns": columns, "cost_ns": 5_000_000}
    return AllocationStep(1, number, 100, 150, **(fields | changes))
