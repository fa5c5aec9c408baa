"""The declarations of tables are those of the files: a profile, and the cache of measurements."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from memtui.placement.profiling.cache import TABLE, Cache, MeasuredRecord
from memtui.placement.schema import TABLES
from tests.support.declared_tables import declared, in_file
from tests.support.placement_profiles import written


def test_a_profile_has_the_declared_tables_and_columns(tmp_path):
    written(tmp_path / "p.memtui")
    with closing(sqlite3.connect(tmp_path / "p.memtui")) as connection:
        tables = declared(TABLES)
        tables["sample"] |= {"id": ("INTEGER", True)}  # the file assigns it
        assert tables == in_file(connection)


def test_a_cache_has_the_declared_table_and_columns(tmp_path):
    with Cache(tmp_path / "cache.db") as cache:
        cache.put([({"op": "mm"}, [1.5])])
    with closing(sqlite3.connect(tmp_path / "cache.db")) as connection:
        assert declared({MeasuredRecord: TABLE}) == in_file(connection)
        (row,) = connection.execute(f"SELECT what, value FROM {TABLE}")
    assert row == ('{"op": "mm"}', "[1.5]")
