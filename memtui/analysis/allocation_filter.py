"""The language of the filter over allocations: which rows of a step, or blocks, are shown.

    WORD        is a part of operator, layer, kind or phase
    op=GLOB     shell pattern on the whole operator or on its last part (aten::mm); so do layer=, kind= and phase=
    >SIZE       the row changes the allocated bytes by more than SIZE, <SIZE: by less

Terms are joined with blanks: a row is shown when all terms match. ``!`` inverts a term. Case does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES, PHASES
from memtui.analysis.trace_index import StepIndex
from memtui.core.units import parse_size

FIELDS = ("op", "layer", "kind", "phase")
Mask = NDArray[np.bool_]
Term = Callable[[StepIndex], Mask]


def parse_row_filter(text: str) -> Callable[[StepIndex], Mask | None]:
    """Return a function from a step to bool[n], the rows that are shown; to None where all rows are shown.

    Raises:
        ValueError: with one line that says what is wrong.
    """
    terms = [_term(word) for word in text.split()]

    def shown(index: StepIndex) -> Mask | None:
        mask: Mask | None = None
        for term in terms:
            mask = term(index) if mask is None else mask & term(index)
        return mask

    return shown


def _term(word: str) -> Term:
    bare = word.removeprefix("!")
    if not bare:
        raise ValueError("! stands before nothing")
    test = _test(bare)
    return test if bare == word else lambda index: ~test(index)


def _test(word: str) -> Term:
    if word[0] in "<>":
        try:
            limit = parse_size(word[1:])
        except ValueError:
            raise ValueError(f"{word} is not a size, as {word[0]}1MiB is") from None
        if word[0] == ">":
            return lambda index: np.abs(index.trace.delta_bytes) > limit
        return lambda index: np.abs(index.trace.delta_bytes) < limit
    field, equals, glob = word.partition("=")
    if not equals:
        part = word.lower()
        return lambda index: _any(index, FIELDS, lambda name: part in name)
    if field not in FIELDS:
        raise ValueError(f"{field}= is none of {', '.join(FIELDS)}")
    if not glob:
        raise ValueError(f"{word} lacks its pattern, as in op=*mm")
    match, between = re.compile(translate(glob.lower())).match, "." if field == "layer" else "/"
    return lambda index: _any(index, [field], lambda name: match(name) or match(name.rpartition(between)[2]))


def _any(index: StepIndex, fields: Iterable[str], test: Callable[[str], object]) -> Mask:
    """Return the rows in which one of some columns passes a test; a name that is not known passes no test."""
    mask = np.zeros(len(index), bool)
    for field in fields:
        names, column = _column(index, field)
        passes = np.array([*(bool(test(name.lower())) for name in names), False])
        if passes.any():
            mask |= passes[column]
    return mask


def _column(index: StepIndex, field: str) -> tuple[Sequence[str], NDArray[np.integer]]:
    """Return the names, and the index into them of each row; -1: not known."""
    trace = index.trace
    match field:
        case "op":
            return trace.names, trace.op
        case "layer":
            return trace.names, index.layer
        case "kind":
            return CATEGORIES, trace.category
        case _:
            return PHASES, trace.phase
