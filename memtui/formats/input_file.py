"""Read an untrusted file whole, within limits on its size, also on the size after unpacking."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from pathlib import Path
from typing import Any

from memtui.core.errors import UserError
from memtui.core.os_errors import why
from memtui.core.small_file import open_regular
from memtui.core.units import size
from memtui.formats.imported import NotImportable

MOST_BYTES = 2 << 30
_GZIP = b"\x1f\x8b"


def read_file(path: Path) -> bytes:
    """Return the content of a file, unpacked where it is gzip. Raises NotImportable."""
    try:
        with open_regular(path) as file:
            _check_size(os.fstat(file.fileno()).st_size)
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise NotImportable("no such file") from None
    except OSError as error:
        raise NotImportable(f"cannot be read: {why(path, error)}") from None
    except NotImportable:
        raise
    except UserError as error:  # not a regular file
        raise NotImportable(str(error).removeprefix(f"{path}: ")) from None
    _check_size(len(data))
    if data.startswith(_GZIP):
        data = _unpacked(data)
        _check_size(len(data))
    if not data:
        raise NotImportable("is empty")
    return data


def _check_size(count: int) -> None:
    if count > MOST_BYTES:
        raise NotImportable(f"has more than {size(MOST_BYTES)}")


def _unpacked(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise NotImportable(f"is damaged gzip: {error}") from None


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
