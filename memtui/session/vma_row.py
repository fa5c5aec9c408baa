"""A row of the table of VMAs."""

from __future__ import annotations

import sys
from typing import NamedTuple

from memtui.analysis.row_states import RowState, state_at
from memtui.session.tables.vmas import VmaRecord


class VmaRow(NamedTuple):
    """A VMA, overlap-merged over the session.

    ``filtered`` names the terms of the filter that left all of it out in every window it was mapped in; ``open``: still
    mapped, so ``last_sample`` goes on; ``states``: its states over the windows, where they changed.
    """

    id: int
    process: int
    pid: int
    start: int
    end: int
    perms: str
    name: str
    first_sample: int
    last_sample: int
    filtered: str
    open: bool = False
    states: tuple[RowState, ...] = ()

    @property
    def file_name(self) -> str:
        """The name of the mapped file without its folder, also after it was deleted; empty for other memory."""
        if not self.name.startswith("/"):
            return ""
        return self.name.removesuffix(" (deleted)").rpartition("/")[2] or self.name

    @classmethod
    def of(cls, vma: VmaRecord, pid: int, newest_sample: int, states: tuple[RowState, ...]) -> VmaRow:
        """Return the row of a record. A VMA that is still mapped was mapped in the newest sample."""
        last = newest_sample if vma.last_sample is None else vma.last_sample
        perms, name, filtered = map(sys.intern, (vma.perms, vma.name, vma.filtered))  # most are those of other rows
        return cls(
            *(vma.id, vma.process, pid, vma.start, vma.end, perms, name, vma.first_sample, last, filtered),
            open=vma.last_sample is None,
            states=states,
        )

    def at(self, sample: int) -> VmaRow:
        """Return the row with the permissions and the name that it had in a window."""
        state = state_at(self.states, sample)
        return self if state is None else self._replace(perms=state.perms, name=state.name)

    def filtered_at(self, sample: int) -> str:
        """Return the terms that left the whole row out in a window; empty where pages of it were stored."""
        state = state_at(self.states, sample)
        return self.filtered if state is None else state.left_out
