"""A session as large as one wants: a long one, recorded again and again behind itself."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from memtui.session.file_format import row_id

PAUSE_NS = 10_000_000  # between the end of one and the begin of the next
_TABLES = (
    "sample",
    "process_sample",
    "page_set",
    "vma_wss",
    "vma_shared",
    "vma_rss",
    "reuse",
    "reuse_checkpoint",
    "touch_sum",
)


def repeat(source: Path, path: Path, size_bytes: int) -> None:
    """Copy a session so often into one file that this has a size. Power, events and ranges are those of the first."""
    shutil.copy(source, path)
    with closing(sqlite3.connect(path)) as session:
        session.execute("PRAGMA journal_mode=OFF")
        session.execute("PRAGMA synchronous=OFF")
        samples, begin, end = session.execute("SELECT count(*), min(start_ns), max(end_ns) FROM sample").fetchone()
        for times in range(1, -(-size_bytes // source.stat().st_size)):
            by = {"sample": samples * times, "id": row_id(samples * times, 0)}
            by["start_ns"] = by["end_ns"] = (end - begin + PAUSE_NS) * times
            for table in _TABLES:
                names = [row[1] for row in session.execute(f"PRAGMA table_info({table})")]
                columns = ", ".join(f"{name} + {by[name]}" if name in by else name for name in names)
                key = "sample" if "sample" in names else "id"
                first = row_id(samples, 0) if key == "id" else samples
                session.execute(f"INSERT INTO {table} SELECT {columns} FROM {table} WHERE {key} < {first}")
            session.commit()
