"""Has the kernel move pages that were just faulted in to its lists of reclaim (``lru_add_drain_all``).

Until then a page waits in a batch of its CPU, with up to 30 others, and MADV_COLD skips pages that are in no list.
POSIX_FADV_DONTNEED on a page of a file that is in use has the kernel drain the batches of all CPUs before it tries once
more to drop the page (mm/fadvise.c). It does nothing else: the page stays. That takes some 25 us (measured, 2 CPUs).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path


class LruDrain:
    """Has a file open of which this process has mapped the first page: its C library."""

    def __init__(self) -> None:
        self._fd = -1
        try:
            with Path("/proc/self/maps").open(encoding="utf-8", errors="surrogateescape") as maps:
                mapped = [line.split(None, 5) for line in maps]
            start, path = next(
                (int(where.partition("-")[0], 16), name[0].rstrip("\n"))
                for where, _, offset, _, _, *name in mapped
                if int(offset, 16) == 0 and name and name[0].rpartition("/")[2].startswith(("libc.so", "libc-"))
            )
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            ctypes.string_at(start, 1)  # now the page is mapped
        except (OSError, StopIteration, ValueError):
            pass  # the accessed bits of some pages will stay set; those pages are counted as unknown

    def drain(self) -> None:
        """Drain the batches of all CPUs."""
        if self._fd >= 0:
            os.posix_fadvise(self._fd, 0, mmap.PAGESIZE, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
