"""The swap areas that are switched on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memtui.core.procfs import PROC


@dataclass(frozen=True, slots=True)
class SwapArea:
    """A line of /proc/swaps: a device or file, how large it is, and how much of it is used."""

    name: str
    size_bytes: int
    used_bytes: int


def swap_areas(proc: Path = PROC) -> list[SwapArea]:
    """Return the swap areas of the machine; none where its kernel has no swap, or says nothing of it."""
    try:
        lines = (proc / "swaps").read_text(errors="replace").splitlines()[1:]  # the first one is a heading
    except OSError:
        return []
    # From the right: the kernel escapes blanks in names, and other columns have none.
    rows = [line.rsplit(maxsplit=4) for line in lines]
    return [SwapArea(row[0], int(row[2]) << 10, int(row[3]) << 10) for row in rows]
