"""The declarations of tables and schema.sql say the same; rows are inserted and read by the names of their columns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memtui.core.readings import PowerReading
from memtui.core.samples import Event
from memtui.session.file_format import OLDEST_VERSION, SCHEMA_VERSION, missing_columns, schema
from memtui.session.schema import TABLES, insertion, selection
from memtui.session.tables.samples import ProcessSampleRecord
from memtui.session.tables.vmas import VmaStateRecord
from tests.support.declared_tables import declared, in_schema


def test_declarations_and_schema_have_the_same_tables_and_columns():
    assert declared(TABLES) == in_schema(schema(SCHEMA_VERSION))


@pytest.mark.parametrize("version", range(OLDEST_VERSION, SCHEMA_VERSION + 1))
def test_columns_that_older_formats_lack_are_known_by_table(version):
    now, then = in_schema(schema(SCHEMA_VERSION)), in_schema(schema(version))
    lacking = {table: frozenset(now[table].keys() - then[table].keys()) for table in now if table in then}
    assert missing_columns(version) == {table: names for table, names in lacking.items() if names}


def test_a_row_is_inserted_by_names():
    statement, values = insertion(Event)
    assert statement == "INSERT OR REPLACE INTO event(t_ns, kind, text) VALUES (?, ?, ?)"
    assert values(Event(5, "mark", "epoch 1")) == (5, "mark", "epoch 1")


def test_values_that_are_given_follow_those_of_the_source():
    statement, values = insertion(VmaStateRecord, ("filtered", "row"))
    assert "vma_state(sample, perms, name, filtered, row)" in statement
    assert values(SimpleNamespace(sample=3, perms="r--p", name="/a", row="not this one")) == (3, "r--p", "/a")
    _, last = insertion(VmaStateRecord, ("row", "perms", "filtered", "name"))
    assert last(SimpleNamespace(sample=3)) == (3,)


def test_a_column_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="table process_sample has no column cpu_s"):
        insertion(ProcessSampleRecord, ("cpu_s",))


def test_columns_that_a_file_lacks_are_null_or_empty():
    columns, kinds = selection(ProcessSampleRecord, ("id", "pss_ns", "pss_reason"), frozenset(("pss_ns", "pss_reason")))
    assert (columns, kinds) == ("process_sample.id, NULL, ''", "iIt")
    assert selection(PowerReading).columns.startswith("power.t_ns, power.device, ")
