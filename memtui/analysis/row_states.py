"""What a row of address ranges was in each window: left out by a filter, or stored, with which rights and name.

A row holds several VMAs, and others in another window. It is left out in a window when all that it holds in that window
is; what one of its VMAs is says nothing of the others, nor of another window. Nor is its name: a file may be mapped
where anonymous memory was before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

DELETED = " (deleted)"
MOST_NAMES = 64  # states of a row that are told apart by their name: a data loader maps thousands of files in one place


class RowState(NamedTuple):
    """A row from window ``sample`` on.

    Attributes:
        sample: the first window of which this is true.
        perms: rights of its largest VMA, as in /proc/PID/maps.
        left_out: the filter's terms that left all of it out, joined by commas; empty where pages of it are stored.
        name: of the same VMA.
    """

    sample: int
    perms: str
    left_out: str
    name: str

    def filters_alike(self, other: RowState) -> bool:
        """Whether no filter can tell them apart: there is no term about the rights to read and to write alone."""
        return self.left_out == other.left_out and ("x" in self.perms) == ("x" in other.perms)

    def says_the_same(self, other: RowState) -> bool:
        """Whether no filter can tell them apart, and they have the same name."""
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

    def take(self, sample: int, parts: Iterable[Part], merged: Mapping[int, int]) -> set[int]:
        """Take a table that is valid from window ``sample`` on.

        Args:
            sample: not below that of the table before.
            parts: its VMAs.
            merged: row that went into another one since the table before -> that row.

        Returns:
            the rows that are not what they were before, new ones included.
        """
        for old, heir in merged.items():
            self._merge(old, heir)
        here = _rows_of(parts)
        changed = set(merged.values())
        for row, (_, perms, left_out, name) in here.items():
            if self._note(row, RowState(sample, perms, left_out, name)):
                changed.add(row)
            if not left_out:
                self._stored.add(row)
        for row in self._mapped - here.keys():
            self._put(row, sample, None)
        self._mapped = set(here)
        return changed

    def left_out(self, row: int) -> str:
        """Return the terms that left it out when it was mapped last, where it was left out in every window.

        Return an empty text otherwise.
        """
        if row in self._stored:
            return ""
        return next((state.left_out for state in reversed(self._history.get(row, ())) if state is not None), "")

    def history(self, row: int) -> list[RowState]:
        """Return what it was from its first window on, one for each change.

        It holds for the windows it was mapped in.
        """
        found: list[RowState] = []
        for state in self._history.get(row, ()):
            if state is not None and not (found and found[-1].says_the_same(state)):
                found.append(state)
        return found

    def _note(self, row: int, state: RowState) -> bool:
        """Note what a row is from now on; False where it was the same when it was mapped last."""
        states = self._history.setdefault(row, [])
        same = RowState.says_the_same if len(states) < MOST_NAMES else RowState.filters_alike
        known = states[-1] if states else None
        if known is not None and same(known, state):
            return False
        if known is None and len(states) > 1:
            known = states[-2]
        self._put(row, state.sample, state)
        return known is None or not same(known, state)

    def _put(self, row: int, sample: int, state: RowState | None) -> None:
        states, since = self._history.setdefault(row, []), self._since.setdefault(row, [])
        if since and since[-1] == sample:  # another table of the same window: it is the one that counts
            states.pop()
            since.pop()
        states.append(state)
        since.append(sample)

    def _merge(self, old: int, heir: int) -> None:
        """Make one history of two: it was left out where both were, or the only one that was mapped."""
        both = [(self._since.pop(row, []), self._history.pop(row, [])) for row in (old, heir)]
        self._mapped.discard(old)
        if old in self._stored:
            self._stored.add(heir)
        for sample in sorted({moment for moments, _ in both for moment in moments}):
            found = [known for moments, states in both if (known := _at(moments, states, sample)) is not None]
            self._put(heir, sample, _together(sample, found) if found else None)


def state_at(states: Sequence[RowState], sample: int) -> RowState | None:
    """Find what is true in a window; None before the first one."""
    place = bisect_right(states, sample, key=lambda state: state.sample)
    return states[place - 1] if place else None


def _rows_of(parts: Iterable[Part]) -> dict[int, tuple[int, str, str, str]]:
    """Return (size of the largest VMA, its rights, what leaves all of it out, its name) by row."""
    found: dict[int, tuple[int, str, str, str]] = {}
    for row, size_bytes, perms, term, name in parts:
        known = found.get(row)
        left_out = term or ""
        if known is not None:
            left_out = _joined(known[2], left_out) if known[2] and left_out else ""
            if known[0] >= size_bytes:
                size_bytes, perms, _, name = known
        found[row] = size_bytes, perms, left_out, name
    return found


def _together(sample: int, found: Sequence[RowState]) -> RowState:
    """Return the state of a row that is made of others."""
    stored = [state for state in found if not state.left_out]
    left_out = "" if stored else _joined(*(state.left_out for state in found))
    one = (stored or found)[0]
    return RowState(sample, one.perms, left_out, one.name)


def _joined(*terms: str) -> str:
    return ",".join(sorted({term for some in terms for term in some.split(",")}))


def _at(moments: Sequence[int], states: Sequence[RowState | None], sample: int) -> RowState | None:
    place = bisect_right(moments, sample)
    return states[place - 1] if place else None
