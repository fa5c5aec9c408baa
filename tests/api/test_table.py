"""A table of a session for numpy, Arrow and a notebook."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import memtui
from memtui.api import table as table_module
from memtui.core.errors import UserError
from memtui.core.samples import Event
from memtui.reports.export import parquet
from memtui.session.session import Session
from tests.support.hostile_sessions import small_stream
from tests.support.sessions import write_session

pandas = pytest.importorskip("pandas", reason="pandas is not installed")
pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return write_session(tmp_path_factory.mktemp("api") / "s.memtui", small_stream())


def test_numpy_has_what_is_absent_masked(path):
    with memtui.open(path) as session:
        table = session.gpu_memory.to_numpy()
    of_first, of_second = table[table["pid"] == 4242], table[table["pid"] == 4243]
    assert of_first["gpu_bytes"].tolist()[:3] == [0, 1 << 30, 2 << 30]
    assert of_second["gpu_bytes"].mask.all()
    assert of_second["reason"][0] == "stale"
    assert table["time"].dtype == np.dtype("M8[ns]")


def test_arrow_is_handed_on_without_a_copy_of_ours(path):
    with memtui.open(path) as session:
        table = pyarrow.RecordBatchReader.from_stream(session.pages).read_all()
        assert table.schema.field("start").type == pyarrow.int64(), "an address, and not a time"
        assert table.num_rows == len(session.pages) > 0


def test_polars_takes_a_table_as_it_is(path):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    with memtui.open(path) as session:
        frame = polars.DataFrame(session.windows)
        assert frame["wss_bytes"].to_list() == [row["wss_bytes"] for row in session.windows]
        assert frame["pss_bytes"].null_count() == len(frame), "not read, which is not 0"
        assert frame.schema["start"] == polars.Datetime("ns", "UTC")
        assert frame.schema["paused"] == polars.Duration("ns")
        assert frame["status"].dtype == polars.String


def test_duckdb_takes_a_table_by_its_name(path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    with memtui.open(path) as session:
        pages, windows = session.pages, session.windows
        query = "select sample, sum(pages.end - pages.start) from pages group by sample order by sample"
        touched = duckdb.sql(query).fetchall()
        expected: dict[int, int] = {}
        for row in pages:
            expected[row["sample"]] = expected.get(row["sample"], 0) + row["end"] - row["start"]
        assert touched == sorted(expected.items())
        assert duckdb.sql("select count(*), count(pss_bytes) from windows").fetchall() == [(len(windows), 0)]


@pytest.mark.skipif(not hasattr(pandas.DataFrame, "from_arrow"), reason="pandas before 3 takes no Arrow stream")
def test_pandas_takes_a_table_as_it_is(path):
    with memtui.open(path) as session:
        frame = pandas.DataFrame.from_arrow(session.windows)
        assert frame["wss_bytes"].tolist() == session.windows.to_pandas()["wss_bytes"].tolist()


def test_pages_are_read_when_their_part_is_asked_for(path, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS_PER_BATCH", 1)
    with memtui.open(path) as session, closing(Session(path)) as truth:
        (source,) = session._sources
        read, page_set = [], source.page_set
        monkeypatch.setattr(source, "page_set", lambda sample, key: read.append(sample) or page_set(sample, key))
        batches = iter(pyarrow.RecordBatchReader.from_stream(session.pages))
        next(batches)
        assert len(read) < len(truth.samples)
        assert sum(batch.num_rows for batch in batches) + 1 == len(session.pages)


def test_long_tables_come_in_parts(path, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS_PER_BATCH", 7)
    with memtui.open(path) as session:
        batches = list(pyarrow.RecordBatchReader.from_stream(session.windows))
        assert {batch.num_rows for batch in batches[:-1]} == {7}
        assert sum(batch.num_rows for batch in batches) == len(session.windows)


def test_a_notebook_shows_the_first_rows(path, monkeypatch):
    monkeypatch.setattr(table_module, "_SHOWN_ROWS", 3)
    with memtui.open(path) as session:
        page = session.windows._repr_html_()
        assert page.count("<tr>") == 4
        assert page.endswith("<p>...</p>")
        assert "<th>wss_bytes</th>" in page
        assert "<td>2026-09-21T" in page
        assert "<td>2.0 ms</td>" in page
        assert session.marks._repr_html_().endswith("</table>")
        assert "windows: sample, start" in repr(session.windows)


def test_what_a_session_says_is_no_markup(tmp_path):
    def stream():
        *most, end = small_stream()
        yield from most
        yield Event(5, "mark", "<script>alert(1)</script>")
        yield end

    with memtui.open(write_session(tmp_path / "s.memtui", stream())) as session:
        assert "<script>" not in session.marks._repr_html_()


@pytest.mark.parametrize("module", ["pandas", "pyarrow"])
def test_what_is_not_installed_is_said(path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with memtui.open(path) as session, pytest.raises(UserError, match=r"pip install 'memtui\[notebook\]'"):
        session.windows.to_pandas()
