"""Writes a set of files into a folder: all of them, complete, or none, and then no new folder either."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from memtui.core.errors import UserError
from memtui.core.os_errors import WRITE, refused

Write = Callable[[BinaryIO], Any]
_GZIP_LEVEL = 6  # 9 takes three times as long for a file hardly smaller


class FileSet:
    """Files that are about to be written into one folder.

    Every file is written under another name first; existing files stay as they are until all new ones are complete.
    """

    def __init__(self, folder: Path, force: bool, packed: bool = False) -> None:
        """Start without a file.

        Args:
            folder: of the files; need not be there.
            force: existing files of these names may be replaced.
            packed: pack each file by gzip; its name ends in ``.gz``.
        """
        self._folder, self._force, self._packed = folder, force, packed
        self._created: list[Path] = []  # folders that were not there before, the outermost first
        self._drafts: dict[Path, Path] = {}  # by final path

    def write(self, name: str, write: Write) -> None:
        """Have ``write`` write one file. Raises UserError where the name may not be used, and OSError."""
        target = self._folder / (f"{name}.gz" if self._packed else name)
        self._check(target)
        self._created += make_folder(self._folder)
        draft = self._folder / f".memtui-{os.getpid()}-{len(self._drafts)}.new"
        with open(draft, "xb", opener=_private) as file:
            self._drafts[target] = draft
            if self._packed:
                _pack(write, file)
            else:
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
            if not self._force:  # then none of these files was there before
                for target in named:
                    target.unlink(missing_ok=True)
            raise
        self._drafts, self._created = {}, []
        return named

    def abandon(self) -> None:
        """Remove the drafts and the new folders; after ``finish`` there are none."""
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
    """Create a folder, and those above it, where they are missing; return those created. Raises OSError."""
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
    """Undo ``make_folder``; a folder that is not empty any more stays."""
    for folder in reversed(created):
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def all_or_none(folder: Path, *, force: bool, packed: bool = False) -> Iterator[FileSet]:
    """Yield a set to write into a folder; whatever ends it before ``finish`` leaves the folder as it was.

    ``packed``: each file is packed by gzip.

    Raises:
        UserError: a file is in the way, or the folder takes none.
    """
    files = FileSet(folder, force, packed)
    try:
        yield files
    except OSError as error:
        raise refused(folder, error, WRITE, remedy="choose another place with -o") from None
    finally:
        files.abandon()


def _pack(write: Write, file: BinaryIO) -> None:
    # Neither name nor time: the same content gives the same bytes.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=file, mtime=0) as packed:
        write(cast(BinaryIO, packed))


def _private(name: str, flags: int) -> int:
    """Open a file with mode 0600: files made from a session show the layout of addresses, as the session does."""
    return os.open(name, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
