"""hypothesis strategies for the vocabulary."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.readings import GpuMemory, GpuUse, MemoryLimit, MemoryUse, NumaUse, Power, PowerReading
from memtui.core.samples import End, Event, Process, ProcessWindow, Vma, VmaTable, Window

NS = st.integers(0, 2**62)
BYTES = st.integers(0, 2**60)


@st.composite
def page_sets(draw, max_pages: int = 40, max_page: int = 2**36 - 1) -> PageSet:
    """Page sets of 4 KiB pages near each other and far apart, with some huge and giant pages."""
    base = draw(st.integers(0, max_page - 5000))
    pages = draw(st.sets(st.integers(base, base + 4999) | st.integers(0, max_page), max_size=max_pages))
    small = PageSet.from_pages(sorted(pages))
    taken = set(small.blocks.tolist())
    huge = draw(st.sets(st.integers(0, 2**27 - 1).filter(lambda b: b not in taken), max_size=4))
    giant = draw(st.sets(st.integers(0, 2**18 - 1), max_size=2))
    return PageSet.from_blocks(small.blocks, small.bits, sorted(huge), sorted(giant))


def same_pages(a: PageSet | None, b: PageSet | None) -> bool:
    """Equality of two page sets."""
    if a is None or b is None:
        return a is b
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("blocks", "bits", "huge", "giant"))


TEXT = st.text(max_size=30)
PROCESSES = st.builds(Process, NS, NS, NS, NS, NS, TEXT, TEXT)
VMAS = st.builds(Vma, st.integers(0, 2**47), st.integers(0, 2**47), st.sampled_from(("rw-p", "r-xp")), TEXT)
TABLES = st.builds(VmaTable, NS, NS, st.lists(VMAS, max_size=5).map(tuple))
PROCESS_WINDOWS = st.builds(
    ProcessWindow,
    process=NS,
    start_ns=NS,
    end_ns=NS,
    paused_ns=st.none() | NS,
    status=st.sampled_from(("ok", "not paused")),
    reason=TEXT,
    pages=st.none() | page_sets(),
    resident=st.none() | page_sets(),
    rss_bytes=st.none() | BYTES,
    private_bytes=st.none() | BYTES,
    swap_bytes=st.none() | BYTES,
    vma_private_bytes=st.none() | st.lists(st.tuples(BYTES, BYTES), max_size=3).map(tuple),
    vma_shared_bytes=st.none() | st.lists(st.tuples(BYTES, BYTES), max_size=3).map(tuple),
    parts=st.lists(page_sets(), max_size=2).map(tuple),
    part_lengths_ns=st.lists(NS, max_size=2).map(tuple),
)
PROCESSES_OF_WINDOW = st.lists(PROCESS_WINDOWS, max_size=3).map(tuple)
MAYBE_NS, MAYBE_BYTES = st.none() | NS, st.none() | BYTES
WINDOWS = st.builds(
    Window,
    NS,
    NS,
    NS,
    NS,
    NS,
    PROCESSES_OF_WINDOW,
    shared_excess_bytes=MAYBE_BYTES,
    budgeted_ns=MAYBE_NS,
    next_ns=MAYBE_NS,
    lost_ns=MAYBE_NS,
    set_again_ns=MAYBE_NS,
)
READINGS = st.builds(PowerReading, NS, TEXT, TEXT, TEXT, st.none() | st.floats(0, 1e6), st.none() | st.floats(0, 1e12))
USED = st.builds(GpuUse, NS, NS, st.none() | st.floats(0, 64), TEXT, TEXT)
LIMITS = st.builds(
    MemoryLimit,
    *(NS, TEXT, BYTES, BYTES, BYTES, BYTES, TEXT, st.none() | NS, st.none() | NS),
    *(st.none() | NS, st.none() | st.integers(-1000, 1000)),
)
USES = st.builds(MemoryUse, NS, NS, BYTES, st.none() | BYTES)
NODES = st.builds(NumaUse, NS, NS, NS, NS, NS)
HELD = st.builds(GpuMemory, NS, NS, st.none() | BYTES, TEXT, TEXT)
MESSAGES = st.one_of(
    PROCESSES,
    TABLES,
    WINDOWS,
    st.builds(
        Power,
        st.lists(READINGS, max_size=3).map(tuple),
        st.lists(HELD, max_size=3).map(tuple),
        st.lists(USED, max_size=3).map(tuple),
        st.lists(LIMITS, max_size=1).map(tuple),
        st.lists(USES, max_size=1).map(tuple),
        st.lists(NODES, max_size=3).map(tuple),
    ),
    st.builds(Event, NS, TEXT, TEXT),
    st.builds(End, NS, TEXT, TEXT),
)
