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
AROUND_BYTES = 64 << 10  # that one fault of a mapped file brings (fault_around_bytes)


def released_bytes(rows: Iterable[Mapping[str, Any]], *, least: bool = False) -> dict[int, int]:
    """Return an upper bound on the bytes released in each window, of all processes together; in pages of 4 KiB.

    A fault that brings a huge page or a large folio counts as one page, so for such memory the bound is too low. It may
    be too low, too, for pages of files that came and went inside a window while others of the same files stayed. Write
    faults that bring no page (copies after a fork, soft-dirty bits, NUMA hints) make the bound too high. How many of
    the faults were of files is not known: at least one for every 64 KiB that came of them (what the kernel maps
    around a fault), and all that waited for a disk where nothing is swapped out.

    Args:
        rows: of processes by rising sample: ``sample``, ``process``, ``rss_bytes``, ``minor_faults``, ``major_faults``
            (since the process began), ``faulted_in_bytes`` (pages of files that came, most without a fault of their
            own), ``swap_bytes``.
        least: return a lower bound. It takes every page of a file to have come by a fault of its own, as long as there
            were that many faults.

    Returns:
        Bytes by sample; a process counts only where the window before is known too, and a sample without any process is
        left out.
    """
    last: dict[int, Mapping[str, Any]] = {}
    released_by_sample: dict[int, int] = {}
    for row in rows:
        if None in (row["minor_faults"], row["major_faults"], row["rss_bytes"]):
            continue
        sample, before = row["sample"], last.get(row["process"])
        if before is not None and before["sample"] == sample - 1:
            released_by_sample[sample] = released_by_sample.get(sample, 0) + _released_bytes(before, row, least)
        last[row["process"]] = row
    return released_by_sample


def _released_bytes(before: Mapping[str, Any], row: Mapping[str, Any], least: bool) -> int:
    grown_bytes, minor, major = (row[name] - before[name] for name in ("rss_bytes", "minor_faults", "major_faults"))
    of_files_bytes = row["faulted_in_bytes"] or 0
    file_faults = of_files_bytes // (PAGE_BYTES if least else AROUND_BYTES)
    if row.get("swap_bytes") == 0:
        file_faults = max(file_faults, min(major, of_files_bytes // PAGE_BYTES))
    others = max(minor + major - file_faults, 0)
    return max(others * PAGE_BYTES + of_files_bytes - grown_bytes, 0)
