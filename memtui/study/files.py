"""Files that a study or a command writes: whole, and only where they may be."""

from __future__ import annotations

import os
from pathlib import Path

from memtui.errors import UserError
from memtui.whole_file import replace_whole

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
    """Replace a file, mode 0600; it is never there in part. Raises UserError, which ends with ``remedy``."""
    try:
        replace_whole(path, text, 0o600)
    except OSError as error:
        raise unwritable(path, error, remedy) from None


def made_folder(path: Path) -> Path:
    """A folder that is there, mode 0700 where it was not. Raises UserError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None
    return path


def unwritable(path: Path, error: OSError, remedy: str = _REMEDY) -> UserError:
    """What is told of a place that takes no files."""
    return UserError(f"{path}: cannot be written: {error.strerror}; {remedy}")
