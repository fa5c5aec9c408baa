"""What the page-table tracker keeps of a process between windows, and of a window while it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from memtui.core.block_sample import BlockSample
from memtui.core.page_set import PageSet
from memtui.core.samples import MORE_TOUCHED
from memtui.core.units import size
from memtui.probes.pages.pagetable.first_accesses import FirstAccessReader
from memtui.probes.pages.pagetable.maps_text import MappingTable
from memtui.probes.pages.pagetable.recent_pages import RecentPages
from memtui.probes.pages.pagetable.walk_result import Walk
from memtui.probes.pages.thread_pool import Future
from memtui.probes.pages.tlb_flush import OFF, UNFLUSHED, Handle
from memtui.probes.pages.tracker import is_little
from memtui.probes.proc_maps import read_maps

_FEW_PAGES = 10_000  # below that, the time of clearing does not show what a page costs
_MAPPINGS_IN_PAUSE = 2048  # a table of more mappings is read after the pause; this many take some 2 ms


@dataclass(frozen=True, slots=True, eq=False)
class Uncertain:
    """Pages of whose accessed bits the next window can say less, because of how they were cleared.

    Attributes:
        unknown: their bits could not be cleared: accessed or not, they will look accessed.
        unflushed: their bits were cleared and the TLB was not flushed since: accessed, they may look untouched.
    """

    unknown: PageSet = field(default_factory=PageSet.empty)
    unflushed: PageSet = field(default_factory=PageSet.empty)

    def unflushed_doubt(self, pages: PageSet) -> str:
        """Return a sentence about unflushed pages that are not among those seen; empty where they are few."""
        missing = self.unflushed.difference(pages)
        if is_little(missing.size_bytes, pages):
            return ""
        return f"up to {size(missing.size_bytes)} {MORE_TOUCHED}: {UNFLUSHED}"


@dataclass(slots=True, eq=False)
class Tracked:
    """The state of one process between windows."""

    handle: Handle
    address_space: tuple[int, int]
    mostly_cleared: bool  # most accessed bits were cleared before the first pause
    recent: RecentPages
    first_accesses: FirstAccessReader
    sample: BlockSample | None = None  # the newest, which may have more parts than that of the last window
    small_page_blocks: int = 0  # blocks with a page table, as of the start of the round
    part: int = 0  # the part of the sample whose accessed bits were cleared last
    table: MappingTable = field(default_factory=MappingTable)
    begun: bool = False
    generation: int = 0
    resident_pages: int = 0
    cuts: tuple[int, ...] = ()  # addresses between the parts of several walkers
    uncertain: Uncertain = field(default_factory=Uncertain)
    clear_page_ns: float = 45.0  # recent time of clearing, for each accessed page

    def maps(self, walk: Walk, *, anew: bool) -> Callable[[], bytes]:
        """Return a function that returns the text of /proc/PID/maps, to be called after the pause.

        Reading the table takes a tenth of the pause, so the text is composed from the walk where that is possible. The
        walk does not see that a file was renamed, so ``anew`` has the table read now and then. A long table is read
        after the pause: then its names are those of a moment later.
        """
        mappings, table, pid = walk.mappings, self.table, self.handle.pid
        later = walk.vmas > _MAPPINGS_IN_PAUSE
        if mappings is None:
            return partial(read_maps, pid) if later else partial(bytes, read_maps(pid))
        if not anew and table.knows(mappings):
            return partial(table.text, mappings)
        if later:
            return lambda: table.store_later(mappings, read_maps(pid))
        return partial(table.store, mappings, read_maps(pid))

    def record_exec(self, address_space: tuple[int, int]) -> None:
        """Record a new address space: it begins without accessed bits and without translations."""
        self.address_space = address_space
        self.generation += 1
        self.uncertain = Uncertain()
        self.first_accesses.record_clear()

    def record_resident(self, resident: PageSet) -> None:
        """Forget pages that are not there any more: no translation of them is left."""
        unflushed = self.uncertain.unflushed
        if unflushed.page_count:
            there = unflushed.difference(unflushed.difference(resident))
            self.uncertain = replace(self.uncertain, unflushed=there)

    def record_clear(
        self, pages: PageSet, flush: str, unknown: PageSet, took_ns: int = 0, *, full: bool = False
    ) -> None:
        """Record which accessed bits were to be cleared, the flush that came with it, and which bits stayed set.

        ``took_ns``: how long that took; ``full``: those of all pages were cleared, and the notes of other observers.
        """
        if full:
            self.first_accesses.record_clear()
        if pages.page_count >= _FEW_PAGES:
            self.clear_page_ns = max(took_ns / pages.page_count, self.clear_page_ns / 2)
        unflushed = self.uncertain.unflushed.union(pages) if flush == OFF else PageSet.empty()
        self.uncertain = Uncertain(unknown, unflushed)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The part of the memory whose accessed bits were read, and the one whose bits are to be cleared.

    Attributes:
        present: pages of the part that was read.
        marked: pages of the next part whose accessed bits or notes may be set.
        sample: the newest, with the next part.
        following: its number.
    """

    present: PageSet
    marked: PageSet
    sample: BlockSample
    following: int


@dataclass(frozen=True, slots=True, eq=False)
class AccessedBits:
    """Accessed bits that were read, before they are cleared.

    ``noted``: pages whose bits another observer cleared; ``uncertain``: what the last clear left.
    """

    walk: Walk
    touched: PageSet
    walked_ns: int
    uncertain: Uncertain
    noted: PageSet = field(default_factory=PageSet.empty)
    files: Future[None] | None = None  # clearing of mapped files, where it was started
    part: Part | None = None  # None: these are all

    @property
    def to_clear(self) -> PageSet:
        """The pages whose accessed bits are to be cleared."""
        return self.touched if self.part is None else self.part.marked
