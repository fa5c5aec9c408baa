"""The flush of trackers that cannot choose pages for MADV_COLD: writing 4 to ``clear_refs`` (see ``tlb_flush.py``)."""

from __future__ import annotations

from collections.abc import Callable

from memtui.core.samples import Capability
from memtui.probes.pages.tlb_flush import OFF, SOFT_DIRTY, UNFLUSHED, soft_dirty_is_tracked
from memtui.probes.pages.tracker import TrackerError


class SoftDirtyFlush:
    """The flush of one tracker, and its notice for the user."""

    def __init__(self, tracker: str, requested: str, prove: Callable[[], Capability]) -> None:
        """Choose a flush; ``auto`` proves it.

        Args:
            tracker: name of the tracker.
            requested: ``auto``, ``soft-dirty`` or ``off``.
            prove: proves that the flush works here.

        Raises:
            TrackerError: the tracker has no such flush, or the flush does not work here.
        """
        proof = prove() if requested in ("auto", SOFT_DIRTY) else Capability(requested, True)
        if requested not in ("auto", SOFT_DIRTY, OFF) or (requested == SOFT_DIRTY and not proof.ok):
            why = proof.reason or f"the {tracker} tracker cannot choose pages for it"
            raise TrackerError(f"flush {requested} does not work with the {tracker} tracker: {why}; auto and off would")
        self.choice = OFF if requested == OFF or not proof.ok else SOFT_DIRTY
        self._tracker, self._reported = tracker, False

    @property
    def doubt(self) -> str:
        """Why every window is approximate; empty where the flush works."""
        return UNFLUSHED if self.choice == OFF else ""

    def notice(self) -> str:
        """Return, once, what the flush costs, or what its absence does."""
        if self._reported:
            return ""
        self._reported = True
        if self.choice == OFF:
            return UNFLUSHED
        return costly(self._tracker) if soft_dirty_is_tracked() else ""


def costly(tracker: str) -> str:
    """Return what the flush does to the target where the kernel tracks soft-dirty pages."""
    return (
        f"this kernel tracks soft-dirty pages, so the flush of the {tracker} tracker write-protects every page of the "
        "target: it pays one minor fault (about 1 us) for each page it writes in a window, and others (CRIU) lose "
        "their soft-dirty marks; --flush off avoids it and misses pages that stay hot in the TLB"
    )
