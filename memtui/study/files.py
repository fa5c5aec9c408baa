"""Files that a study or a command writes: whole, and only where they may be."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from memtui.errors import UserError
from memtui.os_errors import WRITE, refused
from memtui.whole_file import replace_whole

_REMEDY = "name another folder with -o"
ANOTHER_FILE = "name another file"


def check_place(path: Path, *, force: bool) -> None:
    """Raise UserError where a file of that name cannot be written, or is there already and may not be overwritten."""
    try:
        if not stat.S_ISDIR(os.stat(path.parent).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except FileNotFoundError:
        raise UserError(f"{path}: cannot be written: there is no folder {path.parent}; {ANOTHER_FILE}") from None
    except OSError as error:
        raise unwritable(path, error, "") from None
    try:
        there = os.stat(path).st_mode
    except FileNotFoundError:  # or a link to nothing, which is replaced
        there = stat.S_IFREG
    except OSError as error:
        raise unwritable(path, error, "") from None
    if stat.S_ISDIR(there):
        raise UserError(f"{path}: is a folder; name a file")
    if not stat.S_ISREG(there):
        raise UserError(f"{path}: is a pipe or a device, which is not replaced; {ANOTHER_FILE}")
    if os.path.lexists(path) and not force:
        raise UserError(f"{path}: exists already; choose another file or add --force")
    check_folder(path.parent, path)


def check_folder(folder: Path, path: Path | None = None) -> None:
    """Raise UserError where this user may make no file in a folder that is there. ``path``: what is then named."""
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise unwritable(path or folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "")


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
    return refused(path, error, WRITE, remedy=remedy)
