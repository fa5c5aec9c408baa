"""Infer kinds of memory from the lifetime of blocks, for files with phases but without kinds."""

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


def with_kinds(trace: StepTrace, optimiser_ns: Sequence[int] | NDArray[np.int64] = ()) -> StepTrace:
    """Return the trace with a kind for each allocated block whose kind is unknown.

    Blocks allocated in the forward pass and alive when the next backward pass begins are activations. Blocks allocated
    in the backward pass and alive when the optimiser begins are gradients. All other blocks that were freed are
    temporaries. A block that stays is unknown: it may be a state, or anything. Without a backward pass the trace stays
    as it is.

    Args:
        trace: a whole file.
        optimiser_ns: start of each step of the optimiser, rising; without it, the rows of the optimiser's phase count.
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
    activations = (trace.phase[born] == _FORWARD) & (died >= _next(backward, born, n))
    gradients = (trace.phase[born] == _BACKWARD) & (died >= _next(optimiser, born, n))
    kind = np.where(died < n, _TEMPORARIES, _UNKNOWN)
    kind[activations] = _ACTIVATIONS
    kind[gradients] = _GRADIENTS
    of_block = np.full(n, -1)
    of_block[trace.block[born]] = kind
    kinds = of_block[trace.block]
    return replace(trace, category=np.where(kinds >= 0, kinds, trace.category))


def _next(rows: NDArray[np.int64], born: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return the first of some rows after each birth; a number beyond all rows where there is no such row."""
    index = np.searchsorted(rows, born, side="right")
    return np.append(rows, n + 1)[index]
