"""What a study has done so far: a row for each finished run, in a file that a crash leaves whole.

The file is written anew beside itself, brought to the disk, and renamed, so that it always is the state before or after
a run. A lock on the folder keeps two studies from writing into it at once; it is dropped with its holder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from memtui.errors import FAILURE, UserError

FORMAT = 1
NAME = "state.json"


class State:
    """Rows by key, of the runs in one folder. Raises UserError when it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = -1
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):  # said before anything runs
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise UserError(f"{folder}: another study writes there now; wait for its end, or use -o", FAILURE) from None
        except OSError as error:
            self.close()
            raise _unwritable(folder, error) from None
        self._rows = self._read()

    def row(self, key: str) -> dict[str, Any] | None:
        """What a finished run came to; None where it is still to be done, or its files are gone."""
        row = self._rows.get(key)
        if row is None or not all((self.folder / name).exists() for name in row["files"]):
            return None
        return row

    def add(self, key: str, row: dict[str, Any]) -> None:
        """A run has finished. ``row`` is plain data; ``files`` names what it left in the folder. Raises UserError."""
        self._rows[key] = row
        text = json.dumps({"memtui_study": FORMAT, "rows": self._rows}, indent=1)
        write_safely(self.folder / NAME, text)

    def close(self) -> None:
        """Let others write."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _read(self) -> dict[str, dict[str, Any]]:
        path = self.folder / NAME
        try:
            found = json.loads(path.read_text("utf-8"))
            if found["memtui_study"] != FORMAT:
                raise ValueError(f"has format {found['memtui_study']}, and this memtui knows {FORMAT}")
            rows = found["rows"]
            for row in rows.values():
                if any(not isinstance(name, str) or "/" in name for name in row["files"]):
                    raise ValueError("names files elsewhere")
            return rows
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.close()
            raise UserError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.close()
            raise UserError(f"{path}: is no state of a study ({error}); name another folder with -o") from None


def write_safely(path: Path, text: str) -> None:
    """Replace a file, mode 0600: whoever looks, at any time and after any crash, sees the old text or the new one.

    Raises UserError.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.unlink(missing_ok=True)
        with open(beside, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(beside, path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path}: cannot be written: {error.strerror}; name another folder with -o")
