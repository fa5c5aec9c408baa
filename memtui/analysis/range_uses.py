"""Uses of anonymous memory that its layout gives away.

Three layouts are telling:

* glibc's malloc gives the arena of a thread heaps of 64 MiB, which begin at multiples of 64 MiB and are reserved
  (PROT_NONE) up to the next one.
* A thread's stack has a page that cannot be accessed below it, and a size that is a power of two with or without that
  page.
* Python since 3.10 has its objects of up to 512 bytes in arenas of 1 MiB (Objects/obmalloc.c), some of which the kernel
  lays side by side into one range. Allocators of C map a page more than was asked for, or begin at multiples of 2 MiB,
  as Linux since 6.7 does for mappings of that size; stacks and large buffers are multiples of 8 MiB. What is left is
  *probably* Python's. A page of its own right below is malloc's, of a buffer for which numpy wants huge pages
  (madvise, which splits what malloc mapped). Arenas beside memory of another kind are one range with it, which is not
  recognized.

A range that fits none of these is anonymous memory and nothing more.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from memtui.core.page_sizes import PAGE_BYTES

HEAP_BYTES = 64 << 20  # of malloc, on 64-bit machines: HEAP_MAX_SIZE
LEAST_STACK_BYTES = 64 << 10
USUAL_STACK_BYTES = 8 << 20  # stacks whose guard is no mapping of its own (glibc since 2.42) may lie side by side
ARENA_BYTES = 1 << 20  # of Python: ARENA_SIZE
HUGE_BYTES = 2 << 20
_PYTHON = re.compile(r"(?:lib)?python3\.(\d+)(?:\.so[.\d]*)?(?: \(deleted\))?")  # not 3.13t, which has mimalloc


def uses_of(rows: Sequence[Any]) -> dict[int, str]:
    """Return the use of anonymous ranges by row, where their layout tells; numbers in order of appearance."""
    by_process: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        by_process[row.process].append(row)
    uses: dict[int, str] = {}
    for own in by_process.values():
        ends, reserved = _reserved(own)
        pages = {row.end: row for row in own if not row.name and row.perms == "rw-p" and _size(row) == PAGE_BYTES}
        glibc = any(row.name.rpartition("/")[2].startswith(("libc.so.6", "libc-2.")) for row in own)
        python = any("python3." in row.name and _has_arenas_of_1_mib(row.name) for row in own)
        stacks = heaps = objects = 0
        for row in sorted(own, key=lambda row: row.id):
            if row.name or row.perms[:2] != "rw":
                continue
            if (
                glibc
                and row.start % HEAP_BYTES == 0
                and _together(row, ends.get(row.start + HEAP_BYTES), address=row.end)
            ):
                heaps += 1
                uses[row.id] = f"malloc heap {heaps}"
            elif _together(row, guard := reserved.get(row.start)) and _is_stack(row, guard):
                stacks += 1
                uses[row.id] = f"thread stack {stacks}"
            elif python and _is_arenas(row) and not _together(row, pages.get(row.start)):
                objects += 1
                uses[row.id] = f"probably Python heap {objects}"
    return uses


def _reserved(rows: Sequence[Any]) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return the inaccessible ranges by their end: all of them, and those of one page."""
    closed = [row for row in rows if not row.name and row.perms.startswith("---")]
    return (
        {row.end: row for row in closed},
        {row.end: row for row in closed if _size(row) == PAGE_BYTES},
    )


def _together(row: Any, other: Any, address: int | None = None) -> bool:
    """Whether another row was mapped at the same time and, for ``address``, starts at that address or below."""
    return (
        other is not None
        and other.first_sample <= row.last_sample
        and row.first_sample <= other.last_sample
        and (address is None or row.start < other.start <= address)
    )


def _size(row: Any) -> int:
    return int(row.end - row.start)


def _has_arenas_of_1_mib(name: str) -> bool:
    python = _PYTHON.fullmatch(name.rpartition("/")[2])
    return python is not None and int(python[1]) >= 10


def _is_arenas(row: Any) -> bool:
    size = _size(row)
    others = size % USUAL_STACK_BYTES == 0 or row.start % HUGE_BYTES == 0
    return row.perms == "rw-p" and size % ARENA_BYTES == 0 and not others


def _is_stack(row: Any, guard: Any) -> bool:
    sizes = _size(row), row.end - guard.start
    return sizes[0] >= LEAST_STACK_BYTES and any(size & (size - 1) == 0 for size in sizes)
