"""Memory that a process gave back inside a window (munmap, MADV_DONTNEED): no look at its end can see who touched it.

Pages come by page faults and go when they are given back, so what went is what came less the growth of RSS. That bounds
what a working set lacks from above: a page may have gone untouched, or come and gone several times in one window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from memtui.core.page_set import PAGE_BYTES

NOTABLE_GIVEN_BACK = 0.01  # of a working set


def given_back_bytes(rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return what went in each window, of all processes together, at most; in pages of 4 KiB.

    A fault that brings a huge page or a large folio counts as one page, so of such memory this is too low. Write faults
    that bring no page (copies after a fork, soft-dirty marks, NUMA hints) make it too high.

    Args:
        rows: of processes by rising sample: ``sample``, ``process``, ``rss_bytes``, ``minor_faults``, ``major_faults``
            (since the process began), ``faulted_in_bytes`` (pages of files that came without a fault of their own).

    Returns:
        Bytes by sample; of a process whose window before it is not known nothing is in it, and without any process no
        sample.
    """
    last: dict[int, tuple[int, int]] = {}  # sample, and pages that came less those that are there
    found: dict[int, int] = {}
    for row in rows:
        parts = row["minor_faults"], row["major_faults"], row["rss_bytes"]
        if None in parts:
            continue
        minor, major, rss_bytes = parts
        sample, process, surplus = row["sample"], row["process"], (minor + major) * PAGE_BYTES - rss_bytes
        if (before := last.get(process)) and before[0] == sample - 1:
            went = max(surplus - before[1] + (row["faulted_in_bytes"] or 0), 0)
            found[sample] = found.get(sample, 0) + went
        last[process] = sample, surplus
    return found
