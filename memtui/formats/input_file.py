"""Read an untrusted file whole, within limits on its size, also on the size after unpacking."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from memtui.core.errors import UserError
from memtui.core.os_errors import why
from memtui.core.small_file import open_regular
from memtui.core.units import size
from memtui.formats.imported import NotImportable

MOST_BYTES = 2 << 30
STANDARD_INPUT = Path("-")
# By how a packed file begins: its name, and what unpacks it.
_PACKED: dict[bytes, tuple[str, Callable[[IO[bytes]], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda file: gzip.GzipFile(fileobj=file)),
    b"\xfd7zXZ\0": ("xz", lzma.LZMAFile),
    b"BZh": ("bzip2", bz2.BZ2File),
}


def name_of(path: Path) -> str:
    """Return the path of an input for messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def read_file(path: Path) -> bytes:
    """Return the content of a file, or of standard input for ``-``, unpacked where it is packed.

    Raises NotImportable.
    """
    data = _read_input() if path == STANDARD_INPUT else _read(path)
    _check_size(len(data))
    for begin, (name, unpack) in _PACKED.items():
        if data.startswith(begin):
            data = _unpacked(data, name, unpack)
            _check_size(len(data))
            break
    if not data:
        raise NotImportable("is empty")
    return data


def _read_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise NotImportable("is a terminal: give a file, or pipe one into it")
    try:
        return sys.stdin.buffer.read(MOST_BYTES + 1)
    except OSError as error:
        raise NotImportable(f"cannot be read: {error.strerror}") from None


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            _check_size(os.fstat(file.fileno()).st_size)
            return file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise NotImportable("no such file") from None
    except OSError as error:
        raise NotImportable(f"cannot be read: {why(path, error)}") from None
    except NotImportable:
        raise
    except UserError as error:  # not a regular file
        raise NotImportable(str(error).removeprefix(f"{path}: ")) from None


def _check_size(count: int) -> None:
    if count > MOST_BYTES:
        raise NotImportable(f"has more than {size(MOST_BYTES)}")


def _unpacked(data: bytes, name: str, unpack: Callable[[IO[bytes]], Any]) -> bytes:
    try:
        with unpack(io.BytesIO(data)) as file:
            return file.read(MOST_BYTES + 1)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise NotImportable(f"is damaged {name}: {error}") from None


def parse_json(data: bytes) -> Any:
    """Return one JSON value; NaN and Infinity are refused. Raises NotImportable."""
    try:
        return json.loads(data, parse_constant=_no_number)
    except RecursionError:
        raise NotImportable("is JSON that is nested without end") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise NotImportable(f"is damaged JSON: {error}") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")
