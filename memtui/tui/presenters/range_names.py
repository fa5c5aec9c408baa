"""Names of ranges: of their file, of the kernel, or of the use of anonymous memory."""

from __future__ import annotations

from collections.abc import Mapping

from memtui.analysis.vma_filter import SHARED_ANONYMOUS, is_anonymous
from memtui.core.units import short_size
from memtui.session.vma_row import VmaRow


def name_of(row: VmaRow, uses: Mapping[int, str] | None = None) -> str:
    """Return the name of a range in the table: its file, its kernel name, or ``anon`` with its use or address."""
    if row.name == SHARED_ANONYMOUS:
        return f"shared anon {row.start:012x}"
    if row.name.startswith("/"):
        return row.name.rpartition("/")[2] or row.name
    if row.name and not is_anonymous(row.name):
        return row.name
    if not row.name and (use := (uses or {}).get(row.id)):
        return f"anon ({use})"
    return f"{row.name or 'anon'} {row.start:012x}"


def short_label(row: VmaRow, uses: Mapping[int, str] | None = None) -> str:
    """Return the name of a range in the heat map: short, with the size where there is no name."""
    if row.name == SHARED_ANONYMOUS:
        return f"shared {_whole(row.end - row.start)}"
    if row.name.startswith("/"):
        return (row.name.rpartition("/")[2] or row.name).split(".so")[0]
    if row.name and not is_anonymous(row.name):
        return row.name
    if not row.name and (use := (uses or {}).get(row.id)):
        return use
    return f"anon {_whole(row.end - row.start)}"


def _whole(size_bytes: int) -> str:
    """Return a size in few digits: a name has little room, and a range that grows keeps it for longer."""
    return short_size(size_bytes if size_bytes < 10 << 20 else round(size_bytes / (1 << 20)) << 20)
