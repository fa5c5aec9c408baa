"""The table of address ranges, and the ranges of the heat map: filtered, matched, sorted, followed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memtui.session.vma_row import VmaRow
from memtui.tui.presenters.ranges import TREND_SAMPLES, RangeTable
from memtui.widgets.views.memory import Sort, TableView
from tests.support.screen_fakes import MIB, FakeSession

BASE = 0x7F00_0000_0000
SAMPLE = 10


def view_of(table: RangeTable, session: FakeSession, sample: int = SAMPLE) -> TableView:
    return table.view(session, sample, session.processes.all())


def names(view: TableView) -> list[str]:
    return [row.name for row in view.rows]


def test_ranks_stand_in_the_place_of_pids():
    session = FakeSession(20, children=2)
    table = RangeTable()
    view = table.view(session, 10, session.processes.all())
    assert {(row.pid, row.who) for row in view.rows if row.name == "[heap]"} == {
        (4242, ""),
        (4243, "rank 0"),
        (4244, "rank 1"),
    }
    labels = {r.label for r in table.heat_ranges(session.processes.all(), 10, 0, 10)}
    assert {"rank 0 [heap]", "rank 1 [heap]", "4242 [heap]"} <= labels


def test_what_ended_before_the_picture_takes_no_rows_of_it_unless_it_is_chosen():
    session = FakeSession(20, children=2)
    session.rows[-1].open, session.rows[-1].last_sample = False, 5
    table = RangeTable()
    table.view(session, 10, session.processes.all())

    def whose(first: int, last: int) -> set[int]:
        return {r.process for r in table.heat_ranges(session.processes.all(), last, first, last)}

    assert whose(5, 10) == {1, 2, 3}
    assert whose(6, 10) == {1, 2}
    assert 3 in {r.process for r in table.heat_ranges(session.processes.all(), 10, 6, 10, zoomed=[3])}
    table.pid = session.rows[-1].pid
    assert 3 in whose(6, 10)


def test_ranges_that_are_as_they_were_are_not_named_again():
    row = VmaRow(7, 1, 42, BASE, BASE + MIB, "rw-p", "", 0, 9, "")
    table = RangeTable()
    table._rows = [row, row._replace(id=8, name="/lib/a.so")]
    first, library = table._filtered_rows().shown.entries
    table._rows = [row._replace(), row._replace(id=8, name="/lib/b.so")]
    again, other = table._filtered_rows().shown.entries
    assert again is first
    assert (library[1], other[1]) == ("a.so", "b.so")
    table.filter_text = "b.so"
    sifted = table._filtered_rows()
    assert sifted.shown.entries == [other]
    assert sifted.unmatched.entries == [first]


def test_the_parts_of_the_table_add_up_to_the_working_set():
    session, table = FakeSession(20), RangeTable()
    whole = view_of(table, session)
    table.filters_on = False
    everything = view_of(table, session)
    assert (everything.left_out, everything.left_out_bytes) == (0, 0)
    assert len(everything.rows) == len(whole.rows) + whole.left_out == len(session.rows)
    table.filters_on, table.filter_text = True, "HEAP"
    found = view_of(table, session)
    assert names(found) == ["[heap]"]
    assert found.not_matching == len(whole.rows) - 1
    for view in (whole, everything, found):
        rows_bytes = sum(row.wss_bytes for row in view.rows)
        assert rows_bytes + view.left_out_bytes + view.not_matching_bytes == view.ranges_bytes
    assert whole.ranges_bytes == everything.ranges_bytes == found.ranges_bytes > 0


@pytest.mark.parametrize(
    ("text", "found"),
    [("rw-s", "torch_4242_1"), ("7ffc1", "[stack]"), ("LIBSMALL399", "libsmall399.so"), ("dev/shm", "torch_4242_1")],
)
def test_a_typed_text_is_sought_in_names_paths_rights_and_addresses(text, found):
    table = RangeTable()
    table.filters_on, table.filter_text = False, text
    assert names(view_of(table, FakeSession(20))) == [found]


def test_a_range_says_why_it_is_left_out():
    session, table = FakeSession(20), RangeTable()
    table.filters_on = False
    reasons = {row.name: row.left_out for row in view_of(table, session).rows if row.perms != "---p"}
    assert reasons["[heap]"] == ""
    assert reasons["libtorch_cpu.so"] in ("", "filtered: exec")
    assert reasons["libsmall0.so"] == "filtered: pages<4"
    closed = [row for row in view_of(table, session).rows if row.perms == "---p"]
    assert {row.left_out for row in closed} == {"not stored: noaccess"}
    table.toggle_filters()
    assert table.filters_on
    assert not {row.left_out for row in view_of(table, session).rows} - {""}


@pytest.mark.parametrize(
    ("sort", "key"),
    [
        (Sort.WSS, lambda row: -row.wss_bytes),
        (Sort.RSS, lambda row: -(row.rss_bytes or 0)),
        (Sort.PERMS, lambda row: row.perms),
        (Sort.NAME, lambda row: row.name),
        (Sort.ADDRESS, lambda row: row.start),
    ],
)
def test_a_column_sorts_and_again_the_other_way_round(sort, key):
    session, table = FakeSession(20), RangeTable()
    table.sort = next(other for other in Sort if other is not sort)
    table.sort_by(sort)
    first = view_of(table, session)
    assert [key(row) for row in first.rows] == sorted(key(row) for row in first.rows)
    assert (first.sort, first.descending) == (sort, sort in (Sort.WSS, Sort.RSS))
    table.sort_by(sort)
    again = view_of(table, session)
    assert again.rows == first.rows[::-1]
    assert again.descending != first.descending


def test_the_next_column_follows_and_after_the_last_the_first():
    table = RangeTable()
    seen = []
    for _ in Sort:
        table.next_sort()
        seen.append(table.sort)
    assert seen == [*list(Sort)[1:], Sort.WSS]


def test_one_process_alone():
    session, table = FakeSession(20, children=2), RangeTable()
    assert view_of(table, session).wss_bytes is not None
    table.pid = 4243
    view = view_of(table, session)
    assert [(row.name, row.pid) for row in view.rows] == [("[heap]", 4243)]
    assert (view.only, view.wss_bytes) == (4243, None), "pages of several processes count for each of them"
    assert table.row(1001) is not None
    assert table.row(0) is None, "a range of another process"


def test_ranges_in_a_part_of_memory():
    session, table = FakeSession(20, children=1), RangeTable()
    view_of(table, session)
    heap = session.rows[0]
    assert table.mapped(1, heap.start, heap.end) == 1
    assert table.mapped(2, heap.start, heap.end) == 1
    assert table.mapped(1, heap.end, heap.end + 4096) == table.mapped(3, heap.start, heap.end) == 0
    assert len(table.mapped_rows(1, SAMPLE)) == len(session.rows) - 1
    heap.open, heap.last_sample = False, SAMPLE - 1
    assert len(table.mapped_rows(1, SAMPLE)) == len(session.rows) - 2
    assert heap in table.mapped_rows(1, SAMPLE - 1)


def test_the_trend_is_in_eighths_of_the_largest_of_each_range():
    session, table = FakeSession(60), RangeTable()
    rows = view_of(table, session, 59).rows
    touched = [row for row in rows if row.wss_bytes]
    assert touched
    for row in touched:
        assert max(row.trend) == 8
        assert min(row.trend) >= 0
    assert {row.trend for row in rows if not row.wss_bytes and not any(row.trend)} <= {(0,) * len(touched[0].trend)}
    assert table.touched[0] == next(row.wss_bytes for row in rows if row.name == "[heap]") <= 24 * MIB


def test_before_the_first_sample_the_table_is_empty():
    table = RangeTable()
    table.filter_text = "x"
    view = table.view(FakeSession(20), -1, [])
    assert (view.rows, view.filter_text, view.sort) == ((), "x", Sort.WSS)


def test_a_row_that_is_as_it_was_is_the_same_object():
    session, table = FakeSession(20), RangeTable()
    before = {row.key: row for row in view_of(table, session).rows}
    after = {row.key: row for row in view_of(table, session).rows}
    assert all(after[key] is row for key, row in before.items())
    session.rows[0] = SimpleNamespace(**vars(session.rows[0]) | {"name": "[data]"})
    table.filters_on = False
    table._read_rows(session, SAMPLE)
    renamed = {row.key: row for row in view_of(table, session).rows}
    assert renamed[session.rows[0].id].name == "[data]"


def test_a_range_that_is_accessed_and_not_known_is_read():
    """Ranges are read now and then; one of which something was accessed since is not awaited."""
    session, table = FakeSession(20), RangeTable()
    late = session.rows.pop(1)
    assert late.id not in {row.key for row in view_of(table, session).rows}
    session.rows.append(late)
    reads = []
    session.vmas.rows_of = lambda processes: reads.append(processes) or session._vma_rows_of(processes)
    assert late.id in {row.key for row in view_of(table, session, SAMPLE + 1).rows}
    assert len(reads) == 1
    view_of(table, session, SAMPLE + 2)
    assert len(reads) == 1, "all that is accessed is known"


def test_ranges_of_the_processes_in_sight_are_loaded():
    session, table = FakeSession(20, children=2), RangeTable()
    asked = []
    session.processes.present = lambda first, last: asked.append((first, last)) or {1, 3}
    view_of(table, session)
    assert table.loaded_processes == {1, 3}
    newest = int(session.samples.sample[-1])
    windows = {(first, last) for first, last in asked if last - first == TREND_SAMPLES - 1}
    assert windows == {(last - TREND_SAMPLES + 1, last) for last in (SAMPLE, newest)}
    table = RangeTable()
    table.all = frozenset((2,))
    view_of(table, session)
    assert table.loaded_processes == {2}
