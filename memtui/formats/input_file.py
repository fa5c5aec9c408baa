"""Read an untrusted file as a stream or whole, within limits on its size, also on the size after unpacking."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from memtui.core.errors import UserError
from memtui.core.os_errors import why
from memtui.core.small_file import open_regular
from memtui.core.units import size
from memtui.formats import reading
from memtui.formats.imported import NotImportable

MOST_BYTES = 2 << 30  # of a file that is read whole
MOST_STREAMED_BYTES = 64 << 30  # of one that is not
CHUNK_BYTES = 1 << 20
STANDARD_INPUT = Path("-")
IS_TERMINAL = "is a terminal: give a file, or pipe one into it"
_HEAD_BYTES = 1 << 16  # by which a format is recognised
# By how a packed file begins: its name, and what unpacks it.
_PACKED: dict[bytes, tuple[str, Callable[[IO[bytes]], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda file: gzip.GzipFile(fileobj=file)),
    b"\xfd7zXZ\0": ("xz", lzma.LZMAFile),
    b"BZh": ("bzip2", bz2.BZ2File),
}


class Input:
    """The unpacked bytes of a file, each of which is read once: ``head`` looks ahead, ``read`` and ``rest`` consume.

    All three raise NotImportable.

    Args:
        file: as it is stored, packed or not.
        total_bytes: of ``file``, for the progress; 0: not known.
    """

    def __init__(self, file: IO[bytes], total_bytes: int = 0) -> None:
        self._stored = file
        self._counted = _Counted(file)
        self._total_bytes = total_bytes
        self._packed = ""
        self._ahead = b""
        self._read_bytes = 0
        self._failure = ""  # what of the file was read meanwhile is lost, so no more of it is read
        raw: IO[bytes] = io.BufferedReader(self._counted, CHUNK_BYTES)
        self._file = raw
        head = self._checked(lambda: raw.peek(8)[:8])  # type: ignore[attr-defined]
        for mark, (name, unpack) in _PACKED.items():
            if head.startswith(mark):
                self._packed, self._file = name, unpack(raw)

    @property
    def at_start(self) -> bool:
        """Whether all of the file is still to be read."""
        return self._read_bytes == 0

    def head(self) -> bytes:
        """Return the first bytes that were not read yet; they stay to be read."""
        if len(self._ahead) < _HEAD_BYTES:
            self._ahead += self._read(_HEAD_BYTES - len(self._ahead))
        return self._ahead

    def read(self) -> bytes:
        """Return the next bytes; none at the end."""
        chunk, self._ahead = self._ahead, b""
        chunk = chunk or self._read(CHUNK_BYTES)
        self._read_bytes += len(chunk)
        check_size(self._read_bytes, MOST_STREAMED_BYTES)
        if chunk:
            reading.read(self._counted.count, self._total_bytes)
        return chunk

    def unread(self, data: bytes) -> None:
        """Put bytes back: they are the next ones to be read."""
        self._read_bytes -= len(data)
        self._ahead = data + self._ahead

    def rest(self) -> bytes:
        """Return all bytes that were not read yet; none are read of a file that has too many."""
        check_size(self._total_bytes, MOST_BYTES)
        if len(self._ahead) <= MOST_BYTES:
            self._ahead += self._read(MOST_BYTES + 1 - len(self._ahead))
        check_size(len(self._ahead), MOST_BYTES)
        data, self._ahead = self._ahead, b""
        self._read_bytes += len(data)
        return data

    def regular_file(self) -> IO[bytes] | None:
        """Return the file itself, for a reader that starts at its beginning; None of a pipe and of a packed file."""
        return self._stored if self._total_bytes and not self._packed and self.at_start else None

    def _read(self, count: int) -> bytes:
        return self._checked(lambda: self._file.read(count))

    def _checked(self, read: Callable[[], bytes]) -> bytes:
        try:
            if not self._failure:
                return read()
        except _Unreadable as error:
            self._failure = f"cannot be read: {error}"
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
            self._failure = f"is damaged {self._packed}: {error}"
        raise NotImportable(self._failure)


class _Unreadable(Exception):
    """The system refuses to read on."""


class _Counted(io.RawIOBase):
    """A file whose bytes are counted while they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._inner = file
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            chunk = self._inner.read(len(buffer))
        except OSError as error:
            raise _Unreadable(error.strerror) from None
        if chunk is None:
            raise _Unreadable("nothing is there yet, and it is set not to wait (O_NONBLOCK)")
        buffer[: len(chunk)] = chunk
        self.count += len(chunk)
        return len(chunk)


def name_of(path: Path) -> str:
    """Return the path of an input for messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)


@contextmanager
def open_input(path: Path) -> Iterator[Input]:
    """Open a file, or standard input for ``-``. Raises NotImportable."""
    if path == STANDARD_INPUT:
        if sys.stdin is None or sys.stdin.isatty():
            raise NotImportable(IS_TERMINAL)
        yield Input(sys.stdin.buffer, _size_of(sys.stdin.buffer))
        return
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise NotImportable("no such file") from None
    except OSError as error:
        raise NotImportable(f"cannot be read: {why(path, error)}") from None
    except UserError as error:  # not a regular file
        raise NotImportable(str(error).removeprefix(f"{path}: ")) from None
    with file:
        yield Input(file, _size_of(file))


def _size_of(file: IO[bytes]) -> int:
    """Return how many bytes a file has; 0 of a pipe."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def check_size(count: int, most_bytes: int) -> None:
    """Raise NotImportable for a file, or a part of one, that is too large."""
    if count > most_bytes:
        raise NotImportable(f"has more than {size(most_bytes)}")


def parse_json(data: bytes) -> Any:
    """Return one JSON value; NaN and Infinity are refused. Raises NotImportable."""
    try:
        return json.loads(data, parse_constant=no_number)
    except RecursionError:
        raise nested_without_end() from None
    except (ValueError, UnicodeDecodeError) as error:
        raise damaged_json(error) from None


def no_number(name: str) -> Any:
    """Refuse NaN and Infinity, which JSON does not have. Raises ValueError."""
    raise ValueError(f"{name} is not a number")


def damaged_json(why: object) -> NotImportable:
    """Return the error of a text that is no JSON."""
    return NotImportable(f"is damaged JSON: {why}")


def nested_without_end() -> NotImportable:
    """Return the error of JSON that Python would not read."""
    return NotImportable("is JSON that is nested without end")
