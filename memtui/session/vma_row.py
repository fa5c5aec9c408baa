"""A row of the table of VMAs."""

from __future__ import annotations

from typing import NamedTuple

from memtui.analysis.row_states import RowState, state_at


class VmaRow(NamedTuple):
    """A VMA, overlap-merged over the session.

    ``filtered`` names the terms of the filter that left all of it out in every window it was mapped in; ``open``: still
    mapped, so ``last_sample`` goes on; ``states``: what it was in which windows, where that changed.
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

    def at(self, sample: int) -> VmaRow:
        """Return it as it was in a window: with the rights and the name that it had then."""
        state = state_at(self.states, sample)
        return self if state is None else self._replace(perms=state.perms, name=state.name)

    def filtered_at(self, sample: int) -> str:
        """Return the terms that left all of it out in a window; empty where pages of it were stored."""
        state = state_at(self.states, sample)
        return self.filtered if state is None else state.left_out
