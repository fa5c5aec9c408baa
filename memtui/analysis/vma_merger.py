"""Rows of address ranges that outlive the VMA tables they come from.

The kernel splits, grows, merges and replaces VMAs all the time. A row is what a reader of the screen would call the
same range through all of that. Feed one ``RangeMerger`` per process and address-space generation with every table.

Rules, and why:

* *Overlap makes a row.* A VMA joins the row that owned some of its addresses before, so growth, shrinking and splits
  make no new rows, and a VMA that spans several rows joins them (the lowest id survives, ``aliases`` has the others).
  Adjacency does not: two neighbours stay two rows until some VMA spans both.
* *Only like joins like*: same name (without " (deleted)"), and both executable or both not. Otherwise the program
  loader, which first maps a library as one range and then puts its segments over it, would glue code and data into
  one row if and only if a sample met that moment; and a filter could not tell them apart.
* *A vacant row is taken over* by a VMA that overlaps it and has no like row: it gets the new name. A data loader that
  maps ten thousand shared-memory files one after the other at the same addresses makes one row, not ten thousand; a
  JIT that flips pages between writable and executable keeps its row. A row is vacant when the new table has nothing
  else in it, so two files present at once never share a row that has one name.
* *PROT_NONE lives apart.* Reservations (malloc arenas of 64 MiB, CUDA's and a JVM's gigabytes) change hands with the
  memory carved out of them at every heap growth. Inaccessible VMAs make rows among themselves only, and never take
  addresses from a row that was once accessible: what was touched there stays with that row.

An address belongs to the row that mapped it last (``segments``): segments are disjoint. A row's ``start`` and ``end``
are the hull of its segments, which can enclose another row's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtui.core.samples import Vma

_DELETED = " (deleted)"
_Key = tuple[str, bool]


class RangeOverTime(NamedTuple):
    """An address range over the session.

    Attributes:
        id: number in this merger, from 0 in order of appearance; never reused.
        start: lowest address that the row owns, bytes.
        end: end of its highest address, bytes.
        perms: rights of the VMA that joined last (the largest, when several joined at once).
        name: name of the same VMA.
        first_sample: first window in which the row was mapped.
        last_sample: last window in which the row is known to have been mapped.
    """

    id: int
    start: int
    end: int
    perms: str
    name: str
    first_sample: int
    last_sample: int


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Owners of addresses: u8[n] starts and ends in bytes, rising, disjoint, and i8[n] row ids."""

    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    rows: NDArray[np.int64]


class RangeMerger:
    """Assigns VMAs to rows, table by table.

    Attributes:
        aliases: id of every row that was merged away -> id of the row that holds it now.
    """

    def __init__(self) -> None:
        self.aliases: dict[int, int] = {}
        self._open = _Layer()  # accessible
        self._closed = _Layer()  # PROT_NONE
        self._rows: dict[int, _Entry] = {}
        self._table: dict[int, Vma] = {}  # the newest table by start address: cheaper to hash than a whole Vma
        self._present: dict[int, int] = {}  # the row of each
        self._next_id = 0

    def assign(self, vmas: Sequence[Vma], sample: int) -> NDArray[np.int64]:
        """Take the table that is valid from window ``sample`` on.

        Args:
            vmas: disjoint VMAs of the process, in any order.
            sample: number of the window; not below that of the table before.

        Returns:
            i8[len(vmas)], the row id of each VMA. Ids of earlier calls can be stale: ``aliases`` has their successors.
        """
        before, table = self._present, self._table
        present: dict[int, int] = {}
        changed = []
        for vma in vmas:
            start = vma.start
            old = table.get(start)
            if old is not None and old.end == vma.end and old.perms == vma.perms and old.name == vma.name:
                present[start] = before[start]
            else:
                changed.append(vma)
        # A row that is not in the new table was mapped up to the window before it.
        for row in set(before.values()):
            entry = self._rows[row]
            entry.last_sample = max(entry.last_sample, sample - 1)
        self._table = {vma.start: vma for vma in vmas}
        self._present = present
        for layer, closed in ((self._open, False), (self._closed, True)):
            self._assign_layer([vma for vma in changed if _is_closed(vma) == closed], layer, sample)
        ids = np.fromiter((self._present[vma.start] for vma in vmas), np.int64, len(vmas))
        for row in set(self._present.values()):
            self._rows[row].last_sample = sample
        return ids

    def rows(self, sample: int | None = None) -> list[RangeOverTime]:
        """Return all rows, by id.

        Args:
            sample: the newest window; the rows of the newest table have been mapped until then.
        """
        hulls = self._open.hulls() | self._closed.hulls()
        mapped = set(self._present.values()) if sample is not None else set()
        return [
            RangeOverTime(
                row,
                *hulls[row],
                entry.perms,
                entry.name,
                entry.first_sample,
                max(entry.last_sample, sample or 0) if row in mapped else entry.last_sample,
            )
            for row, entry in sorted(self._rows.items())
        ]

    def segments(self, inaccessible: bool = False) -> Segments:
        """Return which row each address belongs to.

        Args:
            inaccessible: the PROT_NONE rows instead of the others. They overlap the others where a mapping changed
                its protection.
        """
        layer = self._closed if inaccessible else self._open
        return Segments(
            np.array(layer.starts, np.uint64), np.array(layer.ends, np.uint64), np.array(layer.owners, np.int64)
        )

    def _assign_layer(self, changed: list[Vma], layer: _Layer, sample: int) -> None:
        """Put new or changed VMAs of one layer into rows."""
        changed.sort(key=lambda vma: vma.end - vma.start)  # the largest comes last and names the row
        left = []
        for vma in changed:
            key = _key_of(vma)
            alike = {row for row in layer.owners_of(vma) if self._rows[row].key == key}
            if alike:
                self._put(vma, self._join(alike, layer), layer)
            else:
                left.append(vma)
        occupied = set(self._present.values())
        for vma in sorted(left, key=lambda vma: vma.start):  # ids rise with addresses
            key = _key_of(vma)
            owners = layer.owners_of(vma)
            alike = {row for row in owners if self._rows[row].key == key}  # a row that was taken over just now
            vacant = owners - occupied
            if alike:
                row = self._join(alike, layer)
            elif vacant:
                row = min(vacant)
            else:
                row = self._next_id
                self._next_id += 1
                self._rows[row] = _Entry(first_sample=sample, last_sample=sample)
            occupied.add(row)
            self._put(vma, row, layer)

    def _put(self, vma: Vma, row: int, layer: _Layer) -> None:
        entry = self._rows[row]
        entry.perms, entry.name, entry.key = vma.perms, vma.name, _key_of(vma)
        self._present[vma.start] = row
        for bare in layer.claim(vma, row):
            self._retire(bare, row)

    def _join(self, rows: set[int], layer: _Layer) -> int:
        """Merge several rows; the lowest id survives."""
        first, *others = sorted(rows)
        if others:
            layer.rename(set(others), first)
            for other in others:
                self._retire(other, first)
        return first

    def _retire(self, row: int, heir: int) -> None:
        """Alias a row without addresses to another row."""
        gone, entry = self._rows.pop(row), self._rows[heir]
        entry.first_sample = min(entry.first_sample, gone.first_sample)
        entry.last_sample = max(entry.last_sample, gone.last_sample)
        self.aliases[row] = heir
        for alias, target in self.aliases.items():
            if target == row:
                self.aliases[alias] = heir
        for start, target in self._present.items():
            if target == row:
                self._present[start] = heir


@dataclass(slots=True)
class _Entry:
    """Properties of a row besides its addresses."""

    first_sample: int
    last_sample: int
    perms: str = ""
    name: str = ""
    key: _Key = ("", False)


class _Layer:
    """Disjoint intervals, each with an owner, as three parallel rising lists."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.owners: list[int] = []

    def _span(self, vma: Vma) -> tuple[int, int]:
        """Return (first, last): the intervals first..last-1 overlap the VMA."""
        return bisect_right(self.ends, vma.start), bisect_left(self.starts, vma.end)

    def owners_of(self, vma: Vma) -> set[int]:
        first, last = self._span(vma)
        return set(self.owners[first:last])

    def claim(self, vma: Vma, row: int) -> set[int]:
        """Assign all addresses of the VMA to the row; return the rows that have no addresses left."""
        first, last = self._span(vma)
        losers = set(self.owners[first:last]) - {row}
        pieces = []
        if first < last:
            if self.starts[first] < vma.start:
                pieces.append((self.starts[first], vma.start, self.owners[first]))
            pieces.append((vma.start, vma.end, row))
            if self.ends[last - 1] > vma.end:
                pieces.append((vma.end, self.ends[last - 1], self.owners[last - 1]))
        else:
            pieces.append((vma.start, vma.end, row))
        # Touching intervals of one owner become one, or a growing heap would leave a trail of them.
        if first > 0 and self.ends[first - 1] == pieces[0][0] and self.owners[first - 1] == pieces[0][2]:
            first -= 1
            pieces.insert(0, (self.starts[first], self.ends[first], self.owners[first]))
        if last < len(self.starts) and self.starts[last] == pieces[-1][1] and self.owners[last] == pieces[-1][2]:
            pieces.append((self.starts[last], self.ends[last], self.owners[last]))
            last += 1
        pieces = _fuse(pieces)
        self.starts[first:last] = [start for start, _, _ in pieces]
        self.ends[first:last] = [end for _, end, _ in pieces]
        self.owners[first:last] = [owner for _, _, owner in pieces]
        return losers.difference(self.owners) if losers else losers

    def rename(self, old: set[int], new: int) -> None:
        self.owners = [new if owner in old else owner for owner in self.owners]

    def hulls(self) -> dict[int, tuple[int, int]]:
        """Return (start, end) of every owner."""
        hulls: dict[int, tuple[int, int]] = {}
        for start, end, owner in zip(self.starts, self.ends, self.owners, strict=True):
            hulls[owner] = (hulls[owner][0] if owner in hulls else start, end)
        return hulls


def _fuse(pieces: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    fused = pieces[:1]
    for start, end, owner in pieces[1:]:
        if fused[-1][1] == start and fused[-1][2] == owner:
            fused[-1] = (fused[-1][0], end, owner)
        else:
            fused.append((start, end, owner))
    return fused


def _is_closed(vma: Vma) -> bool:
    return vma.perms.startswith("---")


def _key_of(vma: Vma) -> _Key:
    """Return the key; VMAs with equal keys may share a row."""
    return vma.name.removesuffix(_DELETED), "x" in vma.perms
