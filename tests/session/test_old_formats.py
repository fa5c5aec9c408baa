"""Real sessions that older versions of memtui wrote: they open, and the table accounts for the header's working set.

``tests/recordings/formats/protected_end.py`` is the program. In each file its hottest range is marked as left out by
the filter, since the last mapping of a row decided for all of it.
"""

from __future__ import annotations

import lzma
import sqlite3
from contextlib import closing

import pytest

from memtui.session.session import Session
from memtui.tui.presenters.ranges import RangeTable
from tests.support.repository import ROOT

FORMATS = ROOT / "tests" / "recordings" / "formats"
WRITTEN_BYTES, BLOCK_BYTES = 2 << 20, 64 << 10  # it writes all but the last block, over and over
SHARED_BYTES = 1 << 20


@pytest.fixture(params=[6, 7, 8, 9])
def path(request, tmp_path):
    session = tmp_path / "s.memtui"
    session.write_bytes(lzma.decompress((FORMATS / f"format-{request.param}.memtui.xz").read_bytes()))
    with closing(sqlite3.connect(session)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (request.param,)
    return session


def test_rows_and_what_is_hidden_are_the_header(path):
    with closing(Session(path)) as reader:
        samples, processes = reader.samples, reader.processes.all()
        assert len(samples) >= 15
        assert set(samples.status) == {"ok"}
        of_pid = {process.key: process.pid for process in processes}
        for at, sample in enumerate(samples.sample.tolist()):
            parts = reader.processes.samples(sample, sample)
            shared_once = sum(part["shared_bytes"] for part in parts) - samples.shared_bytes[at]
            view = RangeTable().view(reader, sample, processes)
            assert sum(row.wss_bytes for row in view.rows) + view.left_out_bytes == view.ranges_bytes
            assert view.ranges_bytes == samples.wss_bytes[at] + shared_once
            assert view.left_out_bytes <= view.ranges_bytes - samples.stored_bytes[at]
            assert (shared_once >= SHARED_BYTES) == (len(parts) == 2) == bool(at)
            for part in parts:
                table = RangeTable()
                table.pid = of_pid[part["process"]]
                assert table.view(reader, sample, processes).ranges_bytes == part["wss_bytes"]


def test_what_a_format_did_not_have_yet_is_none(path):
    with closing(Session(path)) as reader:
        rows = reader.processes.samples(0, int(reader.samples.newest))
    assert any(row["rss_bytes"] for row in rows)
    assert {(row["pss_bytes"], row["private_bytes"], row["swap_bytes"]) for row in rows} == {(None, None, None)}


def test_the_hottest_range_is_in_sight(path):
    with closing(Session(path)) as reader:
        tops = [RangeTable().view(reader, sample, reader.processes.all()).rows[0] for sample in reader.samples.sample]
    assert {(top.end - top.start, top.left_out) for top in tops} == {(WRITTEN_BYTES, "")}
    assert all(WRITTEN_BYTES - BLOCK_BYTES <= top.wss_bytes <= WRITTEN_BYTES for top in tops)
    (key,) = {top.key for top in tops}
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT filtered FROM vma WHERE id = ?", (key,)).fetchone() == ("pages<4",)
