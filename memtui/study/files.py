"""What a study writes into its folder."""

from __future__ import annotations

from pathlib import Path

from memtui.errors import UserError
from memtui.whole_file import replace_whole


def write_safely(path: Path, text: str) -> None:
    """Replace a file, mode 0600; it is never there in part. Raises UserError."""
    try:
        replace_whole(path, text, 0o600)
    except OSError as error:
        raise unwritable(path, error) from None


def made_folder(path: Path) -> Path:
    """A folder that is there, mode 0700 where it was not. Raises UserError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None
    return path


def unwritable(path: Path, error: OSError) -> UserError:
    """What is told of a place that takes no files."""
    return UserError(f"{path}: cannot be written: {error.strerror}; name another folder with -o")
