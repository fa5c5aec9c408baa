"""The state of a study: a row for each finished run, in a file that a crash leaves whole.

A lock on the folder keeps two studies from writing into it at once; the lock ends with its process.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from memtui.core.errors import UserError
from memtui.core.file_lock import exclusively
from memtui.core.files import unwritable, write_safely
from memtui.core.os_errors import READ, refused
from memtui.core.small_file import read_small_bytes

FORMAT = 1
NAME = "state.json"
_MOST_BYTES = 256 << 20


class State:
    """Rows by key, of the runs in one folder. Raises UserError when the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / NAME
        self._stack = ExitStack()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):  # before the first run
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise unwritable(folder, error) from None
        trouble = f"{folder}: {{who}}, another study, writes there now; wait for its end, or use -o"
        self._stack.enter_context(exclusively(folder, trouble))
        self._rows = self._read()

    def row(self, key: str) -> dict[str, Any] | None:
        """Return the row of a finished run; None where there is none, or the files of the run are gone."""
        row = self._rows.get(key)
        if row is None or not all((self.folder / name).exists() for name in row["files"]):
            return None
        return row

    def add(self, key: str, row: dict[str, Any]) -> None:
        """Add a finished run. ``row`` is JSON data; its ``files`` are names in the folder. Raises UserError."""
        self._rows[key] = row
        text = json.dumps({"memtui_study": FORMAT, "rows": self._rows}, indent=1)
        write_safely(self.path, text)

    def close(self) -> None:
        """Release the lock."""
        self._stack.close()

    def _read(self) -> dict[str, dict[str, Any]]:
        path = self.path
        try:
            document = json.loads(read_small_bytes(path, _MOST_BYTES))
            if document["memtui_study"] != FORMAT:
                raise ValueError(f"has format {document['memtui_study']}, and this memtui knows {FORMAT}")
            rows = document["rows"]
            for row in rows.values():
                if any(not isinstance(name, str) or "/" in name for name in row["files"]):
                    raise ValueError("names files elsewhere")
            return rows
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.close()
            raise refused(path, error, READ) from None
        except UserError:
            self.close()
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.close()
            raise UserError(f"{path}: is not a state of a study ({error}); name another folder with -o") from None
