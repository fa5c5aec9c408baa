"""Kinds of memory by what became of it, for files that name phases and no kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES, PHASES, StepTrace

_FORWARD, _BACKWARD, _OPTIMISER = (PHASES.index(name) for name in ("forward", "backward", "optimiser"))
_ACTIVATIONS, _GRADIENTS, _TEMPORARIES, _UNKNOWN = (
    CATEGORIES.index(name) for name in ("activations", "gradients", "temporaries", "unknown")
)


def with_kinds(trace: StepTrace, optimiser_ns: Sequence[int] = ()) -> StepTrace:
    """Return the trace with a kind for each block that came within it and is of none yet.

    Allocated in the forward pass and alive when the next backward pass begins: activations. Allocated in the backward
    pass and alive when the optimiser begins: gradients. Everything else that came and went: temporaries. What stays is
    unknown: it may be a state, or anything. Nothing is told apart where there is no backward pass.

    Args:
        trace: a whole file.
        optimiser_ns: when steps of the optimiser begin, rising; without any, its first rows say so.
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
    optimiser = np.flatnonzero(trace.phase == _OPTIMISER)
    if len(optimiser_ns):
        optimiser = np.searchsorted(trace.t_ns, optimiser_ns)
    kept = (trace.phase[born] == _FORWARD) & (died >= _next(backward, born, n))
    gradients = (trace.phase[born] == _BACKWARD) & (died >= _next(optimiser, born, n))
    kind = np.where(died < n, _TEMPORARIES, _UNKNOWN)
    kind[kept] = _ACTIVATIONS
    kind[gradients] = _GRADIENTS
    of_block = np.full(n, -1)
    of_block[trace.block[born]] = kind
    found = of_block[trace.block]
    return replace(trace, category=np.where(found >= 0, found, trace.category))


def _next(rows: NDArray[np.int64], born: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return the first of some rows after each birth; beyond all of them where there is none."""
    place = np.searchsorted(rows, born, side="right")
    return np.append(rows, n + 1)[place]
