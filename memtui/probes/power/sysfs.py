"""Small files of sysfs."""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str:
    """Return the text of a file without white space around it; "" where it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def number_of(path: Path) -> int | None:
    """Return the whole number, 0 or above, in a file; None where there is none."""
    text = text_of(path)
    return int(text) if text.isascii() and text.isdigit() else None
