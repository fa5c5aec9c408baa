"""A table of a session for numpy, Arrow and a notebook."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import memtui
from memtui.api import table as table_module
from memtui.core.errors import UserError
from memtui.core.samples import Event
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


def test_long_tables_come_in_parts(path, monkeypatch):
    monkeypatch.setattr(table_module, "ROWS_PER_BATCH", 7)
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
