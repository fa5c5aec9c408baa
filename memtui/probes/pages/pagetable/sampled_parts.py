"""Reads a part of a process's memory in each window, and clears the next one (``core.block_sample``)."""

from __future__ import annotations

import time
from dataclasses import replace

from memtui.core.block_sample import BlockSample
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_BYTES
from memtui.probes.pages.pagetable.rearm import Rearmed, Rearmer
from memtui.probes.pages.pagetable.recent_pages import by_blocks_near_files
from memtui.probes.pages.pagetable.tracker_state import AccessedBits, Part, Tracked
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.pagetable.walk_result import Walk

ALL_PAGES = 1 << 40  # more than any process has: clearing a part is then always cheaper than clearing in full


class PartReader:
    """Reads parts with a walker, and clears them with a rearmer."""

    def __init__(self, walker: Walker, rearmer: Rearmer) -> None:
        self._walker, self._rearmer = walker, rearmer

    def read(self, tracked: Tracked, pid: int, sample: BlockSample, *, first: bool) -> AccessedBits:
        """Read the accessed bits of the part that was cleared last, and of the next part, which are to be cleared.

        The bits of the other parts stay as they are, so the target does not have to set them again.
        """
        part = tracked.part
        following = part if first else (part + 1) % sample.parts
        self._walker.take_doubts()  # drop those of clearing after the last window
        walk = self._walker.walk(pid, want_resident=True, parts=(sample, part, following))
        new = walk.address_space != tracked.address_space
        assert walk.resident is not None
        finer = sample.for_blocks(tracked.small_page_blocks)  # its part of this number lies in the walked part
        touched, marked = sample.select(walk.pages, part), finer.select(walk.pages, following)
        noted, doubtful_pages = PageSet.empty(), 0
        if self._walker.reads_young_flags:
            if not (first or new):
                present = sample.select(walk.resident, part)
                restored, _, doubtful_pages = self._notes(pid, present.difference(touched), walk)
                touched = touched.union(restored)
            restored, others, _ = self._notes(pid, finer.select(walk.resident, following).difference(marked), walk)
            noted = restored.union(others)
        if new:
            tracked.record_exec(walk.address_space)
        both = Part(sample.select(walk.resident, part), marked.union(noted), finer, following)
        walk = replace(walk, in_doubt=doubtful_pages)
        return AccessedBits(walk, touched, time.monotonic_ns(), tracked.uncertain, noted, part=both)

    def clear(self, tracked: Tracked, bits: AccessedBits, part: Part, *, shared: bool) -> Rearmed:
        """Flush, and clear the accessed bits of the next part. ``shared``: see ``Rearmer.rearm``."""
        began_ns = time.monotonic_ns()
        done = self._rearmer.rearm(tracked.handle, bits.walk, part.marked, bits.noted, ALL_PAGES, shared=shared)
        tracked.sample, tracked.part = part.sample, part.following
        tracked.record_clear(part.marked, done.flush, done.unknown, time.monotonic_ns() - began_ns)
        return done

    def _notes(self, pid: int, pages: PageSet, walk: Walk) -> tuple[PageSet, PageSet, int]:
        """Ask for the notes of other observers about pages whose accessed bits are clear.

        Returns:
            Pages that were accessed; pages near files, which this process or another one accessed; how many were
            perhaps accessed, those near files and those of large folios, or all where page frames cannot be read.
        """
        if not self._walker.knows_page_frames:
            return PageSet.empty(), PageSet.empty(), pages.size_bytes // PAGE_BYTES
        near_files, elsewhere = by_blocks_near_files(pages, walk.mappings, walk.anonymous)
        restored, others = self._walker.noted(pid, elsewhere), self._walker.noted(pid, near_files)
        return restored, others, others.page_count + self._walker.take_doubts()
