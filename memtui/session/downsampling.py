"""Keeps a session below a size: the oldest page sets are downsampled first, then bytes by range; scalars all stay.

Every second sample of the older half of what is left is deleted, again and again, so that the past gets coarser the
further back it lies. Rows are deleted as fast as new ones come, a few with every commit; SQLite reuses their space.
"""

from __future__ import annotations

from array import array
from collections import deque

from memtui.session.file_format import row_id
from memtui.session.tables.samples import PageSetRecord, ResidentSetRecord
from memtui.session.tables.vmas import VmaRssRecord, VmaSharedRecord, VmaWssRecord
from memtui.session.writer import SessionWriter

_RESERVE = 8 << 20  # for the log, which contains a commit or two
_FEWEST = 8  # samples of a table that are never deleted
_BATCH = 16  # samples between two checks of the size
STAGES = ((PageSetRecord, ResidentSetRecord), (VmaWssRecord, VmaRssRecord, VmaSharedRecord))


class Downsampler:
    """Makes room in a session that grows beyond ``max_bytes``."""

    def __init__(self, writer: SessionWriter, max_bytes: int) -> None:
        self._writer, self.max_bytes = writer, max_bytes
        self._budget = max_bytes - max(_RESERVE, max_bytes // 16)
        self._stored = [array("q") for _ in STAGES]
        self._due: list[deque[int]] = [deque() for _ in STAGES]
        self.downsampled = 0  # samples without page sets now

    def add_sample(self, sample: int) -> None:
        """Note that a sample was stored."""
        for stored in self._stored:
            stored.append(sample)

    def make_room(self) -> bool:
        """Delete until the session fits; return False when nothing is left that may be deleted."""
        while self._writer.used_bytes > self._budget:
            batch = [item for _ in range(_BATCH) if (item := self._next()) is not None]
            if not batch:
                return False
            for stage, sample in batch:
                self.downsampled += stage == 0
                for record in STAGES[stage]:
                    self._writer.delete_between(record, row_id(sample, 0), row_id(sample + 1, 0))
        return True

    def _next(self) -> tuple[int, int] | None:
        """Return (stage, sample) of what is deleted next."""
        for stage, (stored, due) in enumerate(zip(self._stored, self._due, strict=True)):
            if not due:
                if len(stored) < 2 * _FEWEST:
                    continue
                half = len(stored) // 2
                due.extend(stored[1:half:2])
                self._stored[stage] = stored[0:half:2] + stored[half:]
            return stage, due.popleft()
        return None
