"""Errors of the operating system as messages for the user: which file, what failed, why, and what to do.

All such messages are made here. A module that knows what it was about to do raises ``refused``; the command line turns
an ``OSError`` that was not caught into ``unhandled``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from memtui.core.errors import BAD_INPUT, FAILURE, UserError

READ, WRITE, USE, CREATE = "read", "written", "used", "made"
_RIGHTS = (errno.EACCES, errno.EPERM)
# Remedies that do not depend on the path.
_REMEDIES = {
    errno.ENOENT: "check the name",
    errno.EEXIST: "name another one",
    errno.EISDIR: "it is a folder; name a file",
    errno.ENOTDIR: "a part of the name is a file and not a folder; check the name",
    errno.ENOSPC: "make room there, or name another disk",
    errno.EDQUOT: "your quota there is used up; make room, or name another disk",
    errno.EFBIG: "the file system or ulimit -f takes no file that large",
    errno.EROFS: "nothing can be written there; name another place",
    errno.ENAMETOOLONG: "name a shorter one",
    errno.ELOOP: "symbolic links point at one another; name the file itself",
    errno.EINVAL: "the file system does not take such a name; name another one",
    errno.EILSEQ: "the file system does not take such a name; name another one",
    errno.EMFILE: "this process has all the files open that it may; raise ulimit -n",
    errno.ENFILE: "the machine has all the files open that it may; end something",
    errno.ENOMEM: "end something, or ask for less",
    errno.EAGAIN: "no process or thread can be started now; end something, or raise ulimit -u",
    errno.ENXIO: "it is a pipe or a device; name a plain file",
    errno.ENODEV: "it is a device that is not there; name a plain file",
    errno.ESPIPE: "it is a pipe; name a plain file",
    errno.ETXTBSY: "it is a program that runs; name another file",
    errno.EBUSY: "something else uses it; try again, or name another one",
    errno.EIO: "the disk has an error; dmesg may say which",
    errno.ESTALE: "the server of that file system lost it; try again",
    errno.ETIMEDOUT: "the server of that file system does not answer; try again",
}
# By SQLite's code: https://www.sqlite.org/rescode.html. Of those with more than 8 bits the last 8 say what kind it is.
_SQLITE_CANTOPEN, _SQLITE_IOERR_NOMEM = 14, 3082  # the first does not say which errno it was
_OF_SQLITE = {8: errno.EROFS, 10: errno.EIO, 13: errno.ENOSPC, _SQLITE_IOERR_NOMEM: errno.ENOMEM}


def refused(
    path: Path | str, error: BaseException, doing: str = USE, *, remedy: str = "", code: int = BAD_INPUT
) -> UserError:
    """Return the error for a path that cannot be used as intended.

    Args:
        path: as the user knows it.
        error: an ``OSError``, a ``MemoryError``, one of SQLite, or another error whose text says why.
        doing: what could not be done: ``READ``, ``WRITE``, ``USE``, ``CREATE``.
        remedy: what to do, where the caller knows more than the errno says.
        code: ``BAD_INPUT`` for what the user named, ``FAILURE`` for what failed while running.
    """
    return UserError(f"{path}: cannot be {doing}: {why(path, error, remedy)}", code)


def why(path: Path | str, error: BaseException, remedy: str = "") -> str:
    """Return the second half of ``refused``: the reason and, after a semicolon, the remedy."""
    if isinstance(error, MemoryError):
        error = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    number = error.errno if isinstance(error, OSError) else _number_of_sqlite(error)
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    if number in _RIGHTS and (closed := _closed(Path(path))):
        reason += f" ({closed})"
    remedy = remedy or (_of_rights(Path(path)) if number in _RIGHTS else _REMEDIES.get(number or 0, ""))
    if not remedy and getattr(error, "sqlite_errorcode", 0) & 0xFF == _SQLITE_CANTOPEN:
        remedy = "check that the file and its folder are there, and may be read and written"
    return f"{reason}; {remedy}" if remedy else reason


def _number_of_sqlite(error: BaseException) -> int | None:
    """Return the errno that is closest to an error of SQLite; None for other errors."""
    code = getattr(error, "sqlite_errorcode", 0)
    return _OF_SQLITE.get(code) or _OF_SQLITE.get(code & 0xFF)


def unhandled(error: OSError, named: Iterable[str]) -> UserError:
    """Return the error for an ``OSError`` that no module caught.

    Args:
        error: with or without the name of a file.
        named: arguments of the command line that may name files. Where the file is one of them, or lies below or above
            one, the user has to name another: the exit code is 2. Otherwise it is 1.
    """
    if error.filename is None or isinstance(error.filename, int):
        number = error.errno or 0
        reason = error.strerror or str(error) or type(error).__name__
        return UserError("; ".join(filter(None, (reason, _REMEDIES.get(number, "--debug shows where")))), FAILURE)
    path = os.fsdecode(error.filename)
    code = BAD_INPUT if any(_akin(path, word) for word in named) else FAILURE
    return refused(path, error, code=code)


def _akin(path: str, word: str) -> bool:
    """Whether a word names the path, something above it or something below it."""
    for name in (word, word.partition("=")[2], word.rpartition(":")[0]):
        if name and "\0" not in name:
            first, second = os.path.abspath(path), os.path.abspath(name)  # noqa: PTH100 (links are not followed)
            if (
                first == second
                or second.startswith(f"{first.rstrip('/')}/")
                or first.startswith(f"{second.rstrip('/')}/")
            ):
                return True
    return False


def _closed(path: Path) -> str:
    """Return a text about the first folder of the path that this user may not enter; empty without one."""
    try:
        folders = reversed(path.absolute().parents)
    except OSError:
        return ""
    for folder in folders:
        try:
            folder.stat()
        except OSError:
            return ""
        if not os.access(folder, os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            return f"{_user()} may not enter {folder}"
    return ""


def _of_rights(path: Path) -> str:
    """Return the remedy for a missing right: whom to ask for it."""
    for parent in (path, *path.absolute().parents):
        try:
            owner = parent.stat().st_uid
        except OSError:
            continue
        if hasattr(os, "geteuid") and owner == os.geteuid():
            return "name another place, or change its mode"
        return f"name another place, or ask {_name_of(owner)}, the owner, for the right"
    return "name another place"


def _user() -> str:
    return _name_of(os.geteuid()) if hasattr(os, "geteuid") else "this user"


def _name_of(uid: int) -> str:
    try:
        import pwd  # not on every system where a session is read

        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return f"user {uid}"
