"""Files that a crash leaves whole: written beside themselves, brought to the disk, and renamed."""

from __future__ import annotations

import os
from pathlib import Path


def replace_whole(path: Path, text: str, mode: int = 0o666) -> None:
    """Replace a file: whoever looks, at any time and after any crash, sees the old text or the new one.

    Args:
        path: the file; its folder is there.
        text: all of it.
        mode: permissions, less the umask.

    Raises:
        OSError: it is as it was.
    """
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    try:
        with open(beside, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
