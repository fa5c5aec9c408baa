"""VMA rows of the processes that are looked at: of a growing session only what may have changed is read again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from memtui.session.vma_row import VmaRow

_AT_ONCE = 1000  # ids in a question


class HeldVmas:
    """Rows by process. The rows of a process that ended and is asked for no more are let go."""

    def __init__(self, read: Callable[..., list[VmaRow]], newest: Callable[[], tuple[int, int]]) -> None:
        """Begin.

        Args:
            read: the rows that a condition in SQL is true of.
            newest: the highest number of a row, and of a process that has any; asked once, as it looks at all rows.
        """
        self._read, self._ask_newest = read, newest
        self._rows: dict[int, dict[int, VmaRow]] = {}  # by process and id; all rows of each
        self._newest = self._highest = -1  # numbers of a row and of a process, of all that were looked at

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def of(self, wanted: Collection[int]) -> list[VmaRow]:
        """All rows of some processes, as they are now, by process and address."""
        before = self._newest
        if before < 0:
            self._newest, self._highest = self._ask_newest()
        else:
            self._take_new()
        # Those of a process of which nothing is mapped any more stay as they are, and new ones have just been read.
        living = [own for own in self._rows.values() if any(row.open for row in own.values())]
        held = tuple(row for own in living for row in own if row <= before)
        if missing := set(wanted) - self._rows.keys():
            self._rows.update({process: {} for process in missing})
            self._take(self._read(f"vma.process IN ({_listed(missing)})"))
        for at in range(0, len(held), _AT_ONCE):
            ids = held[at : at + _AT_ONCE]
            there = self._read(f"vma.id IN ({_listed(ids)})")
            gone = set(ids) - {row.id for row in there}  # merged into another one
            for own in living if gone else ():
                for one in gone & own.keys():
                    del own[one]
            self._take(there)
        for process in self._rows.keys() - set(wanted):
            if not any(row.open for row in self._rows[process].values()):
                del self._rows[process]
        return [
            row
            for process in sorted(self._rows.keys() & set(wanted))
            for row in sorted(self._rows[process].values(), key=lambda row: row.start)
        ]

    def _take_new(self) -> None:
        """Take in what has come since, also of processes that nobody has asked for yet: soon they will be."""
        new = self._read("vma.id > ?", self._newest)
        for row in new:
            if row.process in self._rows or row.process > self._highest:
                self._rows.setdefault(row.process, {})[row.id] = row
        self._newest = max((row.id for row in new), default=self._newest)
        self._highest = max(self._highest, max((row.process for row in new), default=0))

    def _take(self, rows: Iterable[VmaRow]) -> None:
        for row in rows:
            self._rows[row.process][row.id] = row


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
