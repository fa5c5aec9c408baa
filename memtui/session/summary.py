"""Summary of a session for a list of sessions: a few values, without reading its samples."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from memtui.core.samples import Process
from memtui.session.file_format import SessionError, connect_reader, read_all, unreadable
from memtui.session.schema import selection
from memtui.session.validation import check_rows, parse_json

_QUERY = """
SELECT (SELECT value FROM meta WHERE key = 'hello'), (SELECT value FROM meta WHERE key = 'end'),
       (SELECT count(*) FROM sample), (SELECT min(start_ns) FROM sample), (SELECT max(end_ns) FROM sample)
"""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a session. ``end`` is empty while the session is recorded, and when its recorder died."""

    command: str
    began_s: float  # seconds since the epoch
    samples: int
    duration_s: float | None
    end: str


def summarize(path: Path) -> Summary:
    """Return the summary of a file. Raises SessionError when the file is not a readable session."""
    connection = connect_reader(path)
    try:
        ((hello, end, samples, first_ns, last_ns),) = read_all(connection, path, _QUERY, ())
        check_rows([(hello, samples)], "ti")
        check_rows([(first_ns, last_ns)], "II")
        description = parse_json(hello)
        command, wall_ns = description["target"]["command"], description["clock"]["wall_ns"]
        kind = parse_json(end)["kind"] if end is not None else ""
        if not isinstance(command, str) or type(wall_ns) is not int or not isinstance(kind, str):
            raise ValueError("its description has another form")
    except sqlite3.DatabaseError as error:
        raise unreadable(path, error) from None
    except (KeyError, TypeError, ValueError) as error:
        raise SessionError(f"{path}: is damaged: {error}") from None
    finally:
        connection.close()
    duration_s = None if first_ns is None else (last_ns - first_ns) / 1e9
    return Summary(command, wall_ns / 1e9, samples, duration_s, kind)


def members(path: Path) -> frozenset[tuple[int, int]]:
    """Return (PID, start time in ticks) of every process of a session. Raises SessionError."""
    connection = connect_reader(path)
    try:
        columns, kinds = selection(Process, ("pid", "start_ticks"))
        rows = read_all(connection, path, f"SELECT {columns} FROM process", ())
        check_rows(rows, kinds)
    except sqlite3.DatabaseError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise SessionError(f"{path}: is damaged: {error}") from None
    finally:
        connection.close()
    return frozenset(rows)
