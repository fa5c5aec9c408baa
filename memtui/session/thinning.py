"""Keeps a session below a size: the oldest page sets are thinned first, then bytes by range; scalars all stay.

Thinned is every second sample of the older half of what is left, again and again, so that the past gets coarser the
further back it lies. Rows go as fast as new ones come, a few with every commit; SQLite fills the room they leave.
"""

from __future__ import annotations

from array import array
from collections import deque

from memtui.session.file_format import row_id
from memtui.session.schema import PageSetRecord, VmaRssRecord, VmaSharedRecord, VmaWssRecord
from memtui.session.writer import SessionWriter

_RESERVE = 8 << 20  # for the log, which holds a commit or two
_FEWEST = 8  # samples of a table that are left in any case
_BATCH = 16  # samples between two looks at how much room there is now
STAGES = ((PageSetRecord,), (VmaWssRecord, VmaRssRecord, VmaSharedRecord))


class Thinner:
    """Makes room in a session that grows beyond ``max_bytes``."""

    def __init__(self, writer: SessionWriter, max_bytes: int) -> None:
        self._writer, self.max_bytes = writer, max_bytes
        self._budget = max_bytes - max(_RESERVE, max_bytes // 16)
        self._kept = [array("q") for _ in STAGES]
        self._due: list[deque[int]] = [deque() for _ in STAGES]
        self.thinned = 0  # samples without page sets now

    def note(self, sample: int) -> None:
        """Take note that a sample was stored."""
        for kept in self._kept:
            kept.append(sample)

    def make_room(self) -> bool:
        """Delete until the session fits; False when nothing is left that may go."""
        while self._writer.used_bytes > self._budget:
            batch = [found for _ in range(_BATCH) if (found := self._next()) is not None]
            if not batch:
                return False
            for stage, sample in batch:
                self.thinned += stage == 0
                for record in STAGES[stage]:
                    self._writer.delete_between(record, row_id(sample, 0), row_id(sample + 1, 0))
        return True

    def _next(self) -> tuple[int, int] | None:
        """(stage, sample) of what goes next."""
        for stage, (kept, due) in enumerate(zip(self._kept, self._due, strict=True)):
            if not due:
                if len(kept) < 2 * _FEWEST:
                    continue
                half = len(kept) // 2
                due.extend(kept[1:half:2])
                self._kept[stage] = kept[0:half:2] + kept[half:]
            return stage, due.popleft()
        return None
