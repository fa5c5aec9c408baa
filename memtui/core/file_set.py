"""Files that come into a folder together: all of them, whole, or none, and then no folder that was not there before."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from memtui.core.errors import UserError
from memtui.core.os_errors import WRITE, refused

Write = Callable[[BinaryIO], Any]


class FileSet:
    """What is about to be written into one folder.

    Every file is written under another name first; what lies there already stays as it is until all are whole.
    """

    def __init__(self, folder: Path, force: bool) -> None:
        """``force``: files of these names that are there may be replaced."""
        self._folder, self._force = folder, force
        self._created: list[Path] = []  # folders that were not there before, the outermost first
        self._drafts: dict[Path, Path] = {}  # by what they are to be called

    def write(self, name: str, write: Write) -> None:
        """Let one file be written. Raises UserError where it may not be called so, and OSError."""
        target = self._folder / name
        self._check(target)
        self._created += make_folder(self._folder)
        draft = self._folder / f".memtui-{os.getpid()}-{len(self._drafts)}.new"
        with open(draft, "xb", opener=_private) as file:
            self._drafts[target] = draft
            write(file)

    def finish(self) -> list[Path]:
        """Give all files their names, in the order they were written. Raises UserError and OSError."""
        for target in self._drafts:
            self._check(target)
        named: list[Path] = []
        try:
            for target, draft in self._drafts.items():
                draft.rename(target)  # in place of a link, and not through it
                named.append(target)
        except OSError:
            if not self._force:  # then none of them was there before
                for target in named:
                    target.unlink(missing_ok=True)
            raise
        self._drafts, self._created = {}, []
        return named

    def abandon(self) -> None:
        """Take away what was begun, and nothing else; after ``finish`` there is nothing."""
        for draft in self._drafts.values():
            with suppress(OSError):
                draft.unlink(missing_ok=True)
        take_away(self._created)

    def _check(self, target: Path) -> None:
        if not os.path.lexists(target):
            return
        if not self._force:
            raise UserError(f"{target}: exists already; choose another folder or add --force")
        if target.is_dir() and not target.is_symlink():
            raise UserError(f"{target}: is a folder; choose another place")


def make_folder(folder: Path) -> list[Path]:
    """Make a folder, and those above it, where it is missing; those that were made. Raises OSError."""
    missing = [folder, *folder.parents]
    missing = missing[: next(index for index, ancestor in enumerate(missing) if os.path.lexists(ancestor))]
    created: list[Path] = []
    try:
        for ancestor in reversed(missing):
            ancestor.mkdir(mode=0o700)
            created.append(ancestor)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    except OSError:
        take_away(created)
        raise
    return created


def take_away(created: list[Path]) -> None:
    """Undo ``make_folder``; a folder that somebody has put something into meanwhile stays."""
    for folder in reversed(created):
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def all_or_none(folder: Path, *, force: bool) -> Iterator[FileSet]:
    """Yield a set to write into a folder; whatever ends it before ``finish`` leaves the folder as it was.

    Raises:
        UserError: a file is in the way, or the folder takes none.
    """
    files = FileSet(folder, force)
    try:
        yield files
    except OSError as error:
        raise refused(folder, error, WRITE, remedy="choose another place with -o") from None
    finally:
        files.abandon()


def _private(name: str, flags: int) -> int:
    """Return the file's mode: what is made of a session tells the layout of addresses as the session does."""
    return os.open(name, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
