"""State of a row of address ranges in each window: left out by a filter, or stored, with its rights and name.

A row consists of several VMAs, which change from window to window. A row is left out in a window when all its VMAs of
that window are left out. Neither the rights nor the name of one VMA say anything about the others, or about another
window: a file may be mapped where anonymous memory was before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

DELETED = " (deleted)"
MOST_NAMES = 64  # states of a row that differ in the name only: a data loader maps thousands of files in one place


class RowState(NamedTuple):
    """State of a row from window ``sample`` on.

    Attributes:
        sample: the first window with this state.
        perms: rights of its largest VMA, as in /proc/PID/maps.
        left_out: the filter's terms that left out the whole row, joined by commas; empty where its pages are stored.
        name: name of the same VMA.
    """

    sample: int
    perms: str
    left_out: str
    name: str

    def filters_alike(self, other: RowState) -> bool:
        """Whether no filter can tell two states apart: no term is about the rights to read and to write alone."""
        return self.left_out == other.left_out and ("x" in self.perms) == ("x" in other.perms)

    def says_the_same(self, other: RowState) -> bool:
        """Whether no filter can tell two states apart, and both have the same name."""
        return self.filters_alike(other) and self.name.removesuffix(DELETED) == other.name.removesuffix(DELETED)


Part = tuple[int, int, str, str | None, str]
"""A VMA in a table: its row, its size in bytes, its rights, the term that leaves it out or None, and its name."""


class RowStates:
    """Follows the rows of one process, table by table. Rows are numbers of a ``RangeMerger``."""

    def __init__(self) -> None:
        self._history: dict[int, list[RowState | None]] = {}  # None: it was not mapped from ``_since`` on
        self._since: dict[int, list[int]] = {}
        self._mapped: set[int] = set()
        self._stored: set[int] = set()  # rows of which pages were stored at any time

    def update(self, sample: int, parts: Iterable[Part], merged: Mapping[int, int]) -> set[int]:
        """Take a table that is valid from window ``sample`` on.

        Args:
            sample: not below that of the table before.
            parts: VMAs of the table.
            merged: row that was merged into another row since the table before -> that row.

        Returns:
            the rows whose state changed, new rows included.
        """
        for old, heir in merged.items():
            self._merge(old, heir)
        here = _rows_of(parts)
        changed = set(merged.values())
        for row, (_, perms, left_out, name) in here.items():
            if self._record(row, RowState(sample, perms, left_out, name)):
                changed.add(row)
            if not left_out:
                self._stored.add(row)
        for row in self._mapped - here.keys():
            self._put(row, sample, None)
        self._mapped = set(here)
        return changed

    def left_out(self, row: int) -> str:
        """Return the terms that left a row out when it was mapped last, if it was left out in every window.

        Return an empty text otherwise.
        """
        if row in self._stored:
            return ""
        return next((state.left_out for state in reversed(self._history.get(row, ())) if state is not None), "")

    def history(self, row: int) -> list[RowState]:
        """Return the states of a row from its first window on, one for each change.

        A state holds for the windows in which the row was mapped.
        """
        changes: list[RowState] = []
        for state in self._history.get(row, ()):
            if state is not None and not (changes and changes[-1].says_the_same(state)):
                changes.append(state)
        return changes

    def _record(self, row: int, state: RowState) -> bool:
        """Store the state of a row from now on; return False where the state was the same when it was mapped last."""
        states = self._history.setdefault(row, [])
        same = RowState.says_the_same if len(states) < MOST_NAMES else RowState.filters_alike
        previous = states[-1] if states else None
        if previous is not None and same(previous, state):
            return False
        if previous is None and len(states) > 1:
            previous = states[-2]
        self._put(row, state.sample, state)
        return previous is None or not same(previous, state)

    def _put(self, row: int, sample: int, state: RowState | None) -> None:
        states, since = self._history.setdefault(row, []), self._since.setdefault(row, [])
        if since and since[-1] == sample:  # another table of the same window: it is the one that counts
            states.pop()
            since.pop()
        states.append(state)
        since.append(sample)

    def _merge(self, old: int, heir: int) -> None:
        """Merge two histories: the row was left out where both were, or the only one that was mapped."""
        both = [(self._since.pop(row, []), self._history.pop(row, [])) for row in (old, heir)]
        self._mapped.discard(old)
        if old in self._stored:
            self._stored.add(heir)
        for sample in sorted({moment for moments, _ in both for moment in moments}):
            mapped = [state for moments, states in both if (state := _state_of(moments, states, sample)) is not None]
            self._put(heir, sample, _together(sample, mapped) if mapped else None)


def state_at(states: Sequence[RowState], sample: int) -> RowState | None:
    """Return the state in a window; None before the first state."""
    index = bisect_right(states, sample, key=lambda state: state.sample)
    return states[index - 1] if index else None


def _rows_of(parts: Iterable[Part]) -> dict[int, tuple[int, str, str, str]]:
    """Return (size of the largest VMA, its rights, terms that leave the whole row out, its name) by row."""
    rows: dict[int, tuple[int, str, str, str]] = {}
    for row, size_bytes, perms, term, name in parts:
        previous = rows.get(row)
        left_out = term or ""
        if previous is not None:
            left_out = _joined(previous[2], left_out) if previous[2] and left_out else ""
            if previous[0] >= size_bytes:
                size_bytes, perms, _, name = previous
        rows[row] = size_bytes, perms, left_out, name
    return rows


def _together(sample: int, parts: Sequence[RowState]) -> RowState:
    """Return the state of a row that others were merged into."""
    stored = [state for state in parts if not state.left_out]
    left_out = "" if stored else _joined(*(state.left_out for state in parts))
    chosen = (stored or parts)[0]
    return RowState(sample, chosen.perms, left_out, chosen.name)


def _joined(*terms: str) -> str:
    return ",".join(sorted({term for some in terms for term in some.split(",")}))


def _state_of(moments: Sequence[int], states: Sequence[RowState | None], sample: int) -> RowState | None:
    index = bisect_right(moments, sample)
    return states[index - 1] if index else None
