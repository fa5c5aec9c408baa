"""Files that a crash leaves whole: written beside themselves, brought to the disk, and renamed."""

from __future__ import annotations

import os
from pathlib import Path

from memtui.errors import UserError

_REMEDY = "name another folder with -o"
ANOTHER_FILE = "name another file"


def check_place(path: Path, *, force: bool) -> None:
    """Raise UserError where a file of that name cannot be written, or is there already and may not be overwritten."""
    if not path.parent.is_dir():
        raise UserError(f"{path}: cannot be written: there is no folder {path.parent}; {ANOTHER_FILE}")
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name a file")
    if os.path.lexists(path) and not force:
        raise UserError(f"{path}: exists already; choose another file or add --force")


def write_safely(path: Path, text: str, remedy: str = _REMEDY) -> None:
    """Replace a file, mode 0600: whoever looks, at any time and after any crash, sees the old text or the new one.

    Raises UserError, which ends with ``remedy``.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.unlink(missing_ok=True)
        with open(beside, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(beside, path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise unwritable(path, error, remedy) from None


def unwritable(path: Path, error: OSError, remedy: str = _REMEDY) -> UserError:
    """What is told of a place that takes no files."""
    return UserError(f"{path}: cannot be written: {error.strerror}; {remedy}")
