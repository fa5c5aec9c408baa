"""Kinds of memory by what became of it, for files that name phases and no kinds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memtui.analysis.step_trace import CATEGORIES, PHASES, StepTrace

_FORWARD, _BACKWARD, _OPTIMISER = (PHASES.index(name) for name in ("forward", "backward", "optimiser"))
_UNKNOWN = CATEGORIES.index("unknown")


def with_kinds(trace: StepTrace) -> StepTrace:
    """The trace with a kind for each block that came within it and is of none yet.

    Allocated in the forward pass and alive when the next backward pass begins: activations. Everything else that came
    and went: temporaries. What stays is unknown: it may be a gradient, a state, or none of these. Nothing is told apart
    where there is no backward pass.
    """
    n = len(trace)
    backward = np.flatnonzero(trace.phase == _BACKWARD)
    if not len(backward):
        return trace
    born = np.flatnonzero(trace.delta_bytes >= 0)
    born = born[(born >= trace.existing) & (trace.category[born] == _UNKNOWN)]
    frees = np.flatnonzero(trace.delta_bytes < 0)
    died_of = np.full(n, n)
    died_of[trace.block[frees]] = frees
    died = died_of[trace.block[born]]
    place = np.searchsorted(backward, born)
    begins = np.where(place < len(backward), backward[np.minimum(place, len(backward) - 1)], n)
    kept = (trace.phase[born] == _FORWARD) & (died >= begins) & (begins < n)
    kind = np.where(kept, CATEGORIES.index("activations"), CATEGORIES.index("temporaries"))
    kind = np.where(~kept & (died == n), _UNKNOWN, kind)
    of_block = np.full(n, -1)
    of_block[trace.block[born]] = kind
    found = of_block[trace.block]
    return replace(trace, category=np.where(found >= 0, found, trace.category))
