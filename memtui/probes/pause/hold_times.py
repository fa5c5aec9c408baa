"""How long a window will hold a process, before it is held."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# Of a process of which no window was read yet: the dearest way of clearing the mark of a page, and of meeting a mapping
# (AMD EPYC, docs/internals/cost.md). Its page tables say at most how many pages it has.
_PAGE_NS, _MAPPING_NS = 60, 4000
_PAGES_PER_TABLE_KB = 512 // 4
_DECAY = 0.8  # a window: the next one of a program that works in turns may take as long as the one before the last


@dataclass(frozen=True, slots=True)
class _Size:
    """What the time of a window grows with."""

    mappings: int
    tables_kb: int


class HoldTimes:
    """Of several processes, by what their last windows took and by how much they have grown since."""

    def __init__(self) -> None:
        self._size: dict[int, _Size] = {}
        self._took: dict[int, tuple[float, _Size]] = {}

    def expected_ns(self, pid: int, mappings: int | None) -> int:
        """Return about how long the next window of a process takes. ``mappings``: their number; None: not known."""
        now = self._size[pid] = _Size(mappings or 0, page_tables_kb(pid))
        if pid not in self._took:
            return now.tables_kb * _PAGES_PER_TABLE_KB * _PAGE_NS + now.mappings * _MAPPING_NS
        took_ns, then = self._took[pid]
        grown = (now.mappings / max(then.mappings, 1), now.tables_kb / max(then.tables_kb, 1))
        return int(took_ns * max(1.0, *grown))

    def record(self, pid: int, took_ns: int) -> None:
        """Take in how long the window took of which ``expected_ns`` was asked."""
        before_ns, _ = self._took.get(pid, (0.0, None))
        self._took[pid] = max(took_ns, _DECAY * before_ns), self._size.get(pid, _Size(0, 0))

    def forget(self, pid: int) -> None:
        """Drop a process that ended."""
        self._size.pop(pid, None)
        self._took.pop(pid, None)


def page_tables_kb(pid: int) -> int:
    """Return the size of all page tables of a process, of which each is 4 KiB and covers 2 MiB; 0: it has ended."""
    try:
        match = re.search(r"^VmPTE:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(errors="replace"), re.M)
    except OSError:
        match = None
    return int(match[1]) if match else 0
