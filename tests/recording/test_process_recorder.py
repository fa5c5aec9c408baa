"""What is stored of one process: its mappings as rows, and of each window the pages, sizes by row and reuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memtui.analysis.vma_filter import parse_filter
from memtui.core.page_set import PageSet
from memtui.core.samples import ProcessWindow, Status, Vma, VmaTable
from memtui.recording.recorder.process_recorder import ObservedProcess
from memtui.session.blobs import UNKNOWN_BYTES, decode_burst, decode_pairs, decode_reuse, decode_touch_sum
from memtui.session.columns import columns_of
from memtui.session.file_format import row_id
from memtui.session.schema import TABLES, selection
from memtui.session.tables.reuse import ReuseBurstRecord, ReuseRecord
from memtui.session.tables.samples import PageSetRecord, ProcessSampleRecord, ResidentSetRecord, TouchSumRecord
from memtui.session.tables.vmas import (
    VmaAliasRecord,
    VmaPrivateRecord,
    VmaRecord,
    VmaRssRecord,
    VmaSharedRecord,
    VmaStateRecord,
    VmaWssRecord,
)
from memtui.session.writer import SessionWriter

PAGE, KEY = 4096, 7
BASE = 0x7F00_0000_0000
DATA = Vma(BASE, BASE + 100 * PAGE, "rw-p", "")
CODE = Vma(BASE + 200 * PAGE, BASE + 300 * PAGE, "r-xp", "/lib/a.so")


@pytest.fixture
def writer(tmp_path) -> Iterator[SessionWriter]:
    writer = SessionWriter(tmp_path / "s.memtui")
    yield writer
    writer.close()


def observed(writer: SessionWriter, *vmas: Vma, stored: str = "exec", **options: Any) -> ObservedProcess:
    process = ObservedProcess(KEY, writer, parse_filter(stored), count(1), **options)
    process.add_table(VmaTable(KEY, 0, vmas or (DATA, CODE)))
    return process


def rows(writer: SessionWriter, record: type) -> list[SimpleNamespace]:
    statement = f"SELECT {selection(record).columns} FROM {TABLES[record]} ORDER BY 1"
    return [
        SimpleNamespace(**dict(zip(columns_of(record), row, strict=True)))
        for row in writer._connection.execute(statement)
    ]


def pages(*numbers: int) -> PageSet:
    return PageSet.from_pages((BASE // PAGE + np.array(numbers, np.uint64)).astype(np.uint64))


def window(**values: Any) -> ProcessWindow:
    return ProcessWindow(KEY, 0, 100, **values)


def sizes(writer: SessionWriter, record: type, sample: int = 0) -> dict[int, int]:
    """Bytes by row as they are stored."""
    (data,) = (row.data for row in rows(writer, record) if row.id == row_id(sample, KEY))
    ids, values = decode_pairs(data)
    return dict(zip(ids.tolist(), values.tolist(), strict=True))


def test_pages_are_stored_as_the_filter_keeps_them_and_sizes_of_all(writer):
    process = observed(writer)
    stored, reuse = process.add_window(0, window(pages=pages(0, 1, 5, 200, 201), rss_bytes=9 * PAGE))
    assert stored == 3 * PAGE
    assert reuse.first_touches == 3
    (kept,) = rows(writer, PageSetRecord)
    assert PageSet.decode(kept.data).pages().tolist() == pages(0, 1, 5).pages().tolist()
    assert kept.id == row_id(0, KEY)
    assert sizes(writer, VmaWssRecord) == {1: 3 * PAGE, 2: 2 * PAGE}
    (scalars,) = rows(writer, ProcessSampleRecord)
    assert (scalars.stored_bytes, scalars.wss_bytes, scalars.rss_bytes) == (3 * PAGE, 5 * PAGE, 9 * PAGE)
    assert rows(writer, VmaRssRecord) == rows(writer, VmaSharedRecord) == rows(writer, ResidentSetRecord) == []


def test_reuse_is_of_the_windows_before(writer):
    process = observed(writer)
    process.add_window(0, window(pages=pages(0, 1, 2)))
    _, reuse = process.add_window(1, window(pages=pages(1, 2, 3)))
    assert reuse.first_touches == 1
    again = decode_reuse(rows(writer, ReuseRecord)[-1].data)
    assert again.counts.sum() == reuse.counts.sum() == 2


def test_a_window_without_pages_stores_its_reason_alone(writer):
    process = observed(writer)
    assert process.add_window(0, window(status="not paused", reason="vfork", rss_bytes=5)) == (None, None)
    (scalars,) = rows(writer, ProcessSampleRecord)
    assert (scalars.status, scalars.reason, scalars.stored_bytes, scalars.wss_bytes) == (
        "not paused",
        "vfork",
        None,
        None,
    )
    assert rows(writer, PageSetRecord) == rows(writer, VmaWssRecord) == rows(writer, ReuseRecord) == []


def test_pages_of_a_part_of_the_memory_stand_for_more_and_show_no_reuse(writer):
    process = observed(writer)
    stored, reuse = process.add_window(0, window(pages=pages(0, 1, 200), resident=pages(0, 1, 2), scale=2.5))
    assert (stored, reuse) == (5 * PAGE, None)
    assert rows(writer, ReuseRecord) == []
    assert sizes(writer, VmaWssRecord) == {1: 5 * PAGE, 2: int(2.5 * PAGE)}
    assert sizes(writer, VmaRssRecord) == {1: int(7.5 * PAGE)}


def test_sizes_that_were_counted_are_added_up_by_row(writer):
    half = BASE + 50 * PAGE
    process = observed(writer, Vma(BASE, BASE + 100 * PAGE, "rw-p", ""), CODE)
    split = (Vma(BASE, half, "rw-p", ""), Vma(half, BASE + 100 * PAGE, "rw-p", ""), CODE)
    process.add_table(VmaTable(KEY, 1, split))
    counted = ((BASE, 3 * PAGE), (half, PAGE), (CODE.start, None), (BASE + 999 * PAGE, PAGE))
    shared = ((BASE, None), (half, PAGE))
    process.add_window(1, window(vma_wss_bytes=counted, vma_rss_bytes=((half, 2 * PAGE),), vma_shared_bytes=shared))
    process.add_window(2, window(vma_private_bytes=((BASE, PAGE), (half, PAGE))))
    assert sizes(writer, VmaWssRecord, 1) == {1: 4 * PAGE, 2: UNKNOWN_BYTES}, "one of them was mapped since"
    assert sizes(writer, VmaRssRecord, 1) == {1: 2 * PAGE}
    assert sizes(writer, VmaSharedRecord, 1) == {1: PAGE}, "what is known of a part"
    assert sizes(writer, VmaPrivateRecord, 2) == {1: 2 * PAGE}


def test_ranges_without_known_pages_are_told_apart_from_those_without_accesses(writer):
    process = observed(writer)
    process.add_window(0, window(pages=pages(0, 1), vma_wss_bytes=((CODE.start, None),)))
    assert sizes(writer, VmaWssRecord) == {1: 2 * PAGE, 2: UNKNOWN_BYTES}


@pytest.mark.parametrize("keep", [False, True])
def test_resident_pages_are_stored_where_that_is_wanted(keep, writer):
    process = observed(writer, keep_resident=keep)
    process.add_window(0, window(pages=pages(0), resident=pages(0, 1, 200)))
    assert sizes(writer, VmaRssRecord) == {1: 2 * PAGE, 2: PAGE}
    stored = [PageSet.decode(row.data).size_bytes for row in rows(writer, ResidentSetRecord)]
    assert stored == ([2 * PAGE] if keep else [])


def test_the_probe_of_a_window_in_parts_is_compared_with_what_came_before(writer):
    process = observed(writer)
    process.add_window(0, window(pages=pages(0)))
    parts = (pages(1), pages(0, 1, 2, 200))
    process.add_window(1, window(pages=pages(0, 1, 2, 200), parts=parts, part_lengths_ns=(50,)))
    (burst,) = rows(writer, ReuseBurstRecord)
    assert (burst.parts, burst.probe_ns) == (2, 50)
    distances = decode_burst(burst.data, burst.parts)[-1].distances
    assert (distances.first_touches, int(distances.counts.sum())) == (1, 2), "without what the filter leaves out"
    process.add_window(2, window(status="not paused"))
    process.add_window(3, window(pages=pages(0, 1), parts=(pages(1), pages(0, 1)), part_lengths_ns=(50,)))
    burst = rows(writer, ReuseBurstRecord)[-1]
    (part,) = decode_burst(burst.data, burst.parts)
    assert part.distances.first_touches == 1, "the window before is not known"


def test_pages_outside_the_table_are_strays_of_a_target_that_ran_on(writer):
    process = observed(writer)
    some = pages(0, 150, 200, 1000)
    ran_on = process.without_strays(window(pages=some, status=Status.APPROXIMATE))
    assert ran_on.pages.pages().tolist() == pages(0, 200).pages().tolist()
    assert process.without_strays(window(pages=some)).pages is some
    assert process.without_strays(window(status=Status.APPROXIMATE)).pages is None


def test_rows_of_mappings_are_open_until_the_process_ends(writer):
    process = observed(writer)
    process.add_window(4, window(pages=pages(0)))
    first, second = rows(writer, VmaRecord)
    assert (first.id, first.process, first.start, first.end, first.perms, first.name) == (
        1,
        KEY,
        DATA.start,
        DATA.end,
        "rw-p",
        "",
    )
    assert (first.first_sample, first.last_sample, first.filtered) == (0, None, "")
    assert (second.name, second.filtered) == ("/lib/a.so", "exec")
    process.write_ended()
    assert [row.last_sample for row in rows(writer, VmaRecord)] == [4, 4]


def test_a_table_that_is_the_same_writes_nothing(writer):
    process = observed(writer)
    before = writer._connection.total_changes
    process.add_table(VmaTable(KEY, 1, (DATA, CODE)))
    assert writer._connection.total_changes == before


def test_a_mapping_that_is_gone_has_an_end(writer):
    process = observed(writer)
    process.add_table(VmaTable(KEY, 3, (DATA,)))
    assert [row.last_sample for row in rows(writer, VmaRecord)] == [None, 2]


def test_rows_that_became_one_are_merged_and_the_old_number_leads_to_the_new(writer):
    left, right = Vma(BASE, BASE + 50 * PAGE, "rw-p", ""), Vma(BASE + 50 * PAGE, BASE + 100 * PAGE, "rw-p", "")
    process = observed(writer, left, right)
    assert [row.id for row in rows(writer, VmaRecord)] == [1, 2]
    process.add_table(VmaTable(KEY, 1, (DATA,)))
    (row,) = rows(writer, VmaRecord)
    assert (row.id, row.start, row.end) == (1, DATA.start, DATA.end)
    assert [(alias.id, alias.row) for alias in rows(writer, VmaAliasRecord)] == [(2, 1)]
    process.add_window(1, window(pages=pages(60)))
    assert sizes(writer, VmaWssRecord, 1) == {1: PAGE}


def test_states_are_stored_of_rows_that_changed(writer):
    process = observed(writer, DATA)
    assert rows(writer, VmaStateRecord) == []
    code = replace(DATA, perms="r-xp")
    process.add_table(VmaTable(KEY, 2, (code,)))
    process.add_table(VmaTable(KEY, 5, (DATA,)))
    states = [(state.row, state.sample, state.perms, state.filtered) for state in rows(writer, VmaStateRecord)]
    assert states == [(1, 0, "rw-p", ""), (1, 2, "r-xp", "exec"), (1, 5, "rw-p", "")]
    assert [row.filtered for row in rows(writer, VmaRecord)] == [""]
    stored, _ = process.add_window(5, window(pages=pages(0)))
    assert stored == PAGE, "it is stored again"


def test_sums_of_accesses_are_of_the_windows_since_the_last_one(writer):
    process = observed(writer)
    for sample in (0, 1):
        process.add_window(sample, window(pages=pages(0, 1, 200)))
    process.checkpoint(63)
    (row,) = rows(writer, TouchSumRecord)
    assert (row.level, row.id) == (0, row_id(63, KEY))
    total = decode_touch_sum(row.data)
    assert (total.windows, int(total.chunks()[1].sum())) == (2, 4), "two pages twice, without code"
    process.add_window(64, window(pages=pages(0)))
    process.store_rest(64)
    assert {row.level for row in rows(writer, TouchSumRecord) if row.id == row_id(64, KEY)} > {0}
