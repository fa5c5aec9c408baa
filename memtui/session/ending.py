"""How a session ended, without reading its samples: with a part of the modules that a ``Session`` takes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from memtui.core.samples import End
from memtui.session.file_format import SessionError, connect_reader, read_all, unreadable
from memtui.session.validation import check_fields, check_rows, parse_json

_QUERY = "SELECT value FROM meta WHERE key = 'end'"


def stored_end(path: Path) -> End | None:
    """Return the end of a session, or None where it has none. Raises SessionError where the file is not readable."""
    try:
        with closing(connect_reader(path)) as connection:
            rows = read_all(connection, path, _QUERY, ())
    except sqlite3.DatabaseError as error:
        raise unreadable(path, error) from None
    if not rows:
        return None
    try:
        check_rows(rows, "t")
        return checked_end(parse_json(rows[0][0]))
    except ValueError as error:
        raise SessionError(f"{path}: is damaged: its end: {error}") from None


def checked_end(values: object) -> End:
    """Return the end that was stored as JSON. Raises ValueError where it is none."""
    if not isinstance(values, dict):
        raise ValueError("it has another form")
    try:
        end = End(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None
    check_fields(end)
    return end
