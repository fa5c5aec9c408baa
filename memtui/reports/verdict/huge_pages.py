"""Rule ``huge-pages``: much memory is used in pages of 4 KiB where pages of 2 MiB would fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.core.page_set import PageSet
from memtui.core.page_sizes import BLOCK_BYTES
from memtui.core.units import size, span
from memtui.reports.verdict.recent import Check, Finding, Recent, is_anonymous
from memtui.session.vma_row import VmaRow

RULE = "huge-pages"
LEAST_BYTES = 256 << 20  # from here on training was faster with huge pages (docs/guide/verdicts.md)
MOST_HUGE = 0.5  # of what is used densely: more of it in huge pages already, and the program has seen to it
FULL_PAGES = 461  # of the 512 of a block: 90 %, so a huge page takes hardly more memory
LOOKED_S, LEAST_S = 300.0, 20.0  # windows of much memory come half a minute apart
MOST_WINDOWS, LEAST_WINDOWS = 5, 3
LEAST_CPUS = 0.5  # that the process keeps busy: one that rests most of the time waits for no translations

_ACTIONS = {
    "never": "Have an administrator allow them: write madvise to /sys/kernel/mm/transparent_hugepage/enabled.",
    "always": "The kernel allows them and gave none: memory is in small pieces, or the program declines them (prctl).",
}
_TRY = (
    "Try THP_MEM_ALLOC_ENABLE=1 (PyTorch), GLIBC_TUNABLES=glibc.malloc.hugetlb=1 (malloc), or madvise(MADV_HUGEPAGE) "
    "in a program that maps memory itself, and compare its speed; one that forbids them (MADV_NOHUGEPAGE) has a reason."
)


def huge_pages(recent: Recent) -> Check:
    """Return how much of what the busiest process touches fills blocks of 2 MiB, and is in pages of 4 KiB."""
    subject = "huge pages that would fit"
    source = recent.source
    if source.hello.tracker != "pagetable":
        return Check(RULE, f"{subject}: this tracker knows no sizes of pages", measured=False)
    touched = {key: row["stored_bytes"] for key, row in recent.processes.items() if row["stored_bytes"] is not None}
    if not touched:
        return Check(RULE, f"{subject}: what was touched last is not known", measured=False)
    busiest = max(touched, key=touched.__getitem__)
    if touched[busiest] < LEAST_BYTES:
        return Check(RULE, f"{subject}: its busiest process touched only {size(touched[busiest])} in the last window")
    samples = source.samples
    looked_at = recent.windows.start + int(np.searchsorted(recent.t_s, -LOOKED_S))
    first = max(looked_at, recent.windows.stop - MOST_WINDOWS)
    sets = [recent.touched_pages(busiest, [sample]) for sample in samples.sample[first : recent.windows.stop].tolist()]
    stored = [pages for pages in sets if pages is not None]
    if len(stored) < LEAST_WINDOWS or recent.span_s < LEAST_S:
        enough = f"from {LEAST_WINDOWS} windows and {span(LEAST_S)} on"
        return Check(RULE, f"{subject}: {len(stored)} windows in {span(recent.span_s)}: {enough}", measured=False)
    rows = [row for row in source.drawn_rows(busiest) if is_anonymous(row) and not row.filtered_at(recent.sample)]
    counts = np.array([_filled_bytes(pages, rows) for pages in stored])
    small_bytes, huge_bytes = (int(value) for value in np.median(counts, axis=0))
    what = f"{size(small_bytes)} in 4 KiB pages fill blocks of 2 MiB, {size(huge_bytes)} are in huge pages"
    if small_bytes < LEAST_BYTES or huge_bytes > MOST_HUGE * (small_bytes + huge_bytes):
        return Check(RULE, f"{subject}: {what}")
    if (cpus := _busy_cpus(recent, busiest, int(samples.sample[first]))) is not None and cpus < LEAST_CPUS:
        return Check(RULE, f"{subject}: {what}; it keeps {cpus:.2f} CPUs busy")
    allowed = source.hello.host.huge_pages
    finding = Finding(
        f"{size(small_bytes)} of what it touches lie in pages of 4 KiB, where pages of 2 MiB would fit: a program "
        "that touches so much may be a quarter faster with them.",
        f"Huge pages would fit {size(small_bytes)} of its memory.",
        _ACTIONS.get(allowed, _TRY),
        (
            f"in the median of {len(stored)} windows of pid {rows[0].pid}: {what}",
            f"transparent huge pages of this machine: {allowed or 'not read'}",
        ),
    )
    return Check(RULE, f"{subject}: {what}", finding=finding)


def _busy_cpus(recent: Recent, process: int, first_sample: int) -> float | None:
    """Return how many CPUs a process kept busy since a sample; None where that was not measured."""
    rows = recent.source.process_samples(first_sample, recent.sample)
    read = [(row["end_ns"], row["cpu_ns"]) for row in rows if row["process"] == process and row["cpu_ns"] is not None]
    if len(read) < 2:
        return None
    (first_ns, before_ns), (last_ns, after_ns) = read[0], read[-1]
    return (after_ns - before_ns) / (last_ns - first_ns)


def _filled_bytes(pages: PageSet, rows: list[VmaRow]) -> tuple[int, int]:
    """Return the bytes of blocks of 2 MiB in rows that were touched nearly whole: in 4 KiB pages, in huge pages."""
    edges = np.array([(row.start, row.end) for row in rows], np.uint64).reshape(-1, 2)
    filled = pages.blocks[np.bitwise_count(pages.bits).sum(axis=1) >= FULL_PAGES]
    return _whole_blocks_bytes(filled, edges), _whole_blocks_bytes(pages.huge, edges)


def _whole_blocks_bytes(blocks: NDArray[np.uint64], edges: NDArray[np.uint64]) -> int:
    """Return the bytes of the blocks that lie whole in one of the ranges, u8[n, 2], whose starts and ends rise."""
    if not len(edges):
        return 0
    start = blocks * np.uint64(BLOCK_BYTES)
    row = np.searchsorted(edges[:, 0], start, side="right") - 1
    inside = (row >= 0) & (start + np.uint64(BLOCK_BYTES) <= edges[np.maximum(row, 0), 1])
    return int(inside.sum()) * BLOCK_BYTES
