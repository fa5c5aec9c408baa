"""VMA rows that were merged into others: what was stored of them belongs to these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import ranked
from memtui.session.connection import SessionFile
from memtui.session.tables.vmas import VmaAliasRecord


class VmaAliases:
    """Finds the row that a merged row belongs to now. The methods raise SessionError."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._rows: dict[int, int] = {}  # the row that took another one in
        self._count = 0  # of rows in the table that were read
        self._fresh = False

    def refresh(self) -> None:
        """Check for new aliases before the next answer. Aliases are never removed: without new ones nothing is read."""
        self._fresh = False

    def resolve(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Replace ids of merged rows by the row that took them in."""
        if not self._fresh:
            self._read()
        if not self._rows:
            return ids
        values, index = ranked(ids)
        return np.array([self._follow(int(row)) for row in values], np.int64)[index]

    def _read(self) -> None:
        ((count,),) = self._file.query("SELECT count(*) FROM vma_alias", "i")
        if count != self._count:
            self._count, self._rows = count, dict(self._file.rows(VmaAliasRecord, names=["id", "row"]))
        self._fresh = True

    def _follow(self, row: int) -> int:
        aliases, path = self._rows, []
        while row in aliases:
            path.append(row)
            row = aliases[row]
            if len(path) > len(aliases):
                raise self._file.damaged("ranges were merged in a circle")
        aliases.update(dict.fromkeys(path[:-1], row))  # the next lookup takes one step
        return row
