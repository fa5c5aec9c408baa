"""Memory that a process released inside a window (munmap, MADV_DONTNEED): reading at its end cannot see its accesses.

Pages come by page faults and go when they are released, so the released pages are the faulted pages less the growth of
RSS. That bounds from above what a working set lacks: a page may have gone untouched, or come and gone several times in
one window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from memtui.core.page_sizes import PAGE_BYTES

NOTABLE_RELEASED = 0.01  # of a working set


def released_bytes(rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return an upper bound on the bytes released in each window, of all processes together; in pages of 4 KiB.

    A fault that brings a huge page or a large folio counts as one page, so for such memory the bound is too low. Write
    faults that bring no page (copies after a fork, soft-dirty bits, NUMA hints) make the bound too high.

    Args:
        rows: of processes by rising sample: ``sample``, ``process``, ``rss_bytes``, ``minor_faults``, ``major_faults``
            (since the process began), ``faulted_in_bytes`` (pages of files that came without a fault of their own).

    Returns:
        Bytes by sample; a process counts only where the window before is known too, and a sample without any process is
        left out.
    """
    last: dict[int, tuple[int, int]] = {}  # sample, and pages that came less those that are there
    released_by_sample: dict[int, int] = {}
    for row in rows:
        parts = row["minor_faults"], row["major_faults"], row["rss_bytes"]
        if None in parts:
            continue
        minor, major, rss_bytes = parts
        sample, process, surplus = row["sample"], row["process"], (minor + major) * PAGE_BYTES - rss_bytes
        if (before := last.get(process)) and before[0] == sample - 1:
            size_bytes = max(surplus - before[1] + (row["faulted_in_bytes"] or 0), 0)
            released_by_sample[sample] = released_by_sample.get(sample, 0) + size_bytes
        last[process] = sample, surplus
    return released_by_sample
