"""A sweep that is fast enough to be run in parts."""

from __future__ import annotations

from contextlib import closing

from memtui.bench.store import Database

FAST = ("--windows", "1", "--seconds", "0.02", "--threads", "1", "--cache", "warm", "--warm-up", "0.05")


GRID = ("--grid", "elements=100,200,300")


def keys_in(path) -> list[str]:
    with closing(Database(path, writable=False)) as database:
        return sorted(row["configuration"] for row in database.rows())
