"""What lies in a folder, and files that are put there."""

from __future__ import annotations

from pathlib import Path


def names_in(folder: Path | str) -> list[str]:
    """Return the names of the entries, in alphabetical order."""
    return sorted(entry.name for entry in Path(folder).iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def put(path: Path, text: str) -> Path:
    """Write a file, with the folders that it lies in; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
