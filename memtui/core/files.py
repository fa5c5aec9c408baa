"""Atomic replacement of files, checks of where files may be written, and TOML files of users.

A file is written under another name in its folder, synced to the disk, and renamed: a crash leaves the old or the new.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

from memtui.core.errors import UserError
from memtui.core.os_errors import CREATE, WRITE, refused
from memtui.core.small_file import read_small


def write_atomically(path: Path, text: str, mode: int = 0o666) -> None:
    """Replace a file atomically: a reader, at any time and after any crash, sees the old text or the new one.

    Args:
        path: the file; its folder is there.
        text: all of it.
        mode: permissions, less the umask.

    Raises:
        OSError: the file is unchanged.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    try:
        with open(draft, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the values of a TOML file. Raises UserError, with the line where it is not TOML."""
    import tomllib  # 7 ms, and most users have no such file

    try:
        return tomllib.loads(read_small(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is not TOML: {error}") from None


_REMEDY = "name another folder with -o"
ANOTHER_FILE = "name another file"


def check_place(path: Path, *, force: bool) -> None:
    """Raise UserError where a file of that name cannot be written, or exists already and may not be overwritten."""
    try:
        if not stat.S_ISDIR(path.parent.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except FileNotFoundError:
        raise UserError(f"{path}: cannot be written: there is no folder {path.parent}; {ANOTHER_FILE}") from None
    except OSError as error:
        raise unwritable(path, error, "") from None
    try:
        there = path.stat().st_mode
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
    """Raise UserError where this user may not create files in an existing folder. ``path``: the path to name then."""
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise unwritable(path or folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "")


def write_safely(path: Path, text: str, remedy: str = _REMEDY) -> None:
    """Replace a file atomically, with mode 0600. Raises UserError, whose text ends with ``remedy``."""
    try:
        write_atomically(path, text, 0o600)
    except OSError as error:
        raise unwritable(path, error, remedy) from None


def ensure_folder(path: Path, remedy: str = _REMEDY) -> Path:
    """Create a folder with mode 0700 where it is missing, and return it. Raises UserError with the remedy."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise refused(path, error, CREATE, remedy=remedy) from None
    return path


def unwritable(path: Path, error: OSError, remedy: str = _REMEDY) -> UserError:
    """Return the error for a path where no file can be written."""
    return refused(path, error, WRITE, remedy=remedy)
