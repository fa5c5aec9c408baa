"""What lies in a folder."""

from __future__ import annotations

from pathlib import Path


def names_in(folder: Path | str) -> list[str]:
    """Return the names of the entries, in alphabetical order."""
    return sorted(entry.name for entry in Path(folder).iterdir())
