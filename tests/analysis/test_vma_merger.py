"""Rows of address ranges over a session."""

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.vma_filter import parse_filter
from memtui.analysis.vma_merger import RangeMerger
from memtui.core.samples import Vma

PAGE = 4096


def vma(start: int, end: int, perms: str = "rw-p", name: str = "") -> Vma:
    return Vma(start * PAGE, end * PAGE, perms, name)


@st.composite
def tables(draw, perms=("rw-p",), names=("",), size: int = 24):
    """A VMA table: disjoint pieces of a little address space."""
    edges = draw(st.lists(st.integers(0, size), max_size=10, unique=True).map(sorted))
    pairs = pairwise(edges)
    kinds = st.tuples(st.booleans(), st.sampled_from(perms), st.sampled_from(names))
    drawn = [(a, b, *draw(kinds)) for a, b in pairs]
    return [vma(a, b, p, n) for a, b, here, p, n in drawn if here]


def components(history: list[list[Vma]]) -> list[list[int]]:
    """Naive: transitive overlap of everything that was ever mapped; a number per VMA of each table."""
    every = [v for table in history for v in table]
    group = list(range(len(every)))
    for i, a in enumerate(every):
        for j, b in enumerate(every[:i]):
            if a.start < b.end and b.start < a.end and group[i] != group[j]:
                old, new = group[i], group[j]
                group = [new if g == old else g for g in group]
    numbers = iter(group)
    return [[next(numbers) for _ in table] for table in history]


@settings(deadline=None)
@given(st.lists(tables(), max_size=6))
def test_ranges_of_one_kind_are_merged_by_transitive_overlap(history):
    merger = RangeMerger()
    given_ids = [merger.assign(table, i).tolist() for i, table in enumerate(history)]
    final = [[merger.aliases.get(row, row) for row in ids] for ids in given_ids]
    pairs = set(zip(chain(*components(history)), chain(*final), strict=True))
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)  # a bijection
    rows = {row.id: row for row in merger.rows(len(history) - 1)}
    assert set(rows) == {b for _, b in pairs}
    for row in rows.values():
        mine = [(i, v) for i, ids in enumerate(final) for v, r in zip(history[i], ids, strict=True) if r == row.id]
        assert (row.start, row.end) == (min(v.start for _, v in mine), max(v.end for _, v in mine))
        assert (row.first_sample, row.last_sample) == (min(i for i, _ in mine), max(i for i, _ in mine))


mixed = tables(perms=("rw-p", "r--p", "r-xp", "---p"), names=("", "/a", "/b"))


@settings(deadline=None)
@given(st.lists(mixed, max_size=8))
def test_what_always_holds(history):
    merger = RangeMerger()
    seen: set[int] = set()
    for sample, table in enumerate(history):
        ids = merger.assign(table, sample).tolist()
        assert len(ids) == len(table)
        rows = {row.id: row for row in merger.rows(sample)}
        assert set(ids) <= set(rows)
        assert not set(merger.aliases) & set(rows)
        assert set(merger.aliases.values()) <= set(rows)
        seen |= set(ids)
        assert {merger.aliases.get(row, row) for row in seen} == set(rows)  # no row is lost
        kinds: dict[int, set] = {}
        for v, row in zip(table, ids, strict=True):
            kinds.setdefault(row, set()).add((v.name, "x" in v.perms, v.perms == "---p"))
            assert rows[row].start <= v.start
            assert v.end <= rows[row].end
            assert rows[row].last_sample == sample
        assert all(len(kind) == 1 for kind in kinds.values())  # a row has one name at a time
        for closed in (False, True):
            segments = merger.segments(inaccessible=closed)
            assert (segments.starts < segments.ends).all()
            assert (segments.ends[:-1] <= segments.starts[1:]).all()
            for v, row in zip(table, ids, strict=True):
                if v.perms.startswith("---") == closed:
                    index = np.searchsorted(segments.ends, v.start, side="right")
                    assert segments.rows[index] == row
                    assert segments.starts[index] <= v.start
                    assert v.end <= segments.ends[index]
        assert merger.assign(list(table), sample).tolist() == ids  # the same table again changes nothing


def run(*history):
    """Row ids of each table, and the merger."""
    merger = RangeMerger()
    return [merger.assign(table, i).tolist() for i, table in enumerate(history)], merger


def test_heap_growth_and_shrinking_are_one_row():
    ids, merger = run([vma(10, 20, name="[heap]")], [vma(10, 40, name="[heap]")], [vma(10, 15, name="[heap]")])
    assert ids == [[0], [0], [0]]
    (row,) = merger.rows(2)
    assert (row.start, row.end, row.first_sample, row.last_sample) == (10 * PAGE, 40 * PAGE, 0, 2)


def test_stack_grows_downwards():
    assert run([vma(50, 60, name="[stack]")], [vma(40, 60, name="[stack]")])[0] == [[0], [0]]


def test_mprotect_splits_are_one_row():
    ids, merger = run([vma(0, 30)], [vma(0, 10), vma(10, 12, "r--p"), vma(12, 30)])
    assert ids == [[0], [0, 0, 0]]
    assert merger.rows()[0].perms == "rw-p"  # the largest part names it


def test_neighbours_are_two_rows_until_one_mapping_spans_both():
    ids, merger = run([vma(0, 10), vma(10, 20, "rw-s")], [vma(0, 20)])
    assert ids == [[0, 1], [0]]
    assert merger.aliases == {1: 0}
    assert [(r.id, r.start, r.end) for r in merger.rows()] == [(0, 0, 20 * PAGE)]


def test_aliases_lead_to_the_last_survivor():
    ids, merger = run([vma(0, 5), vma(10, 15), vma(20, 25)], [vma(0, 5), vma(10, 25)], [vma(0, 25)])
    assert ids == [[0, 1, 2], [0, 1], [0]]
    assert merger.aliases == {1: 0, 2: 0}


def test_a_malloc_arena_keeps_its_row_and_its_reservation_apart():
    """The heap of a thread: the accessible part grows into the PROT_NONE rest and gives it back."""
    ids, merger = run(
        [vma(0, 2), vma(2, 64, "---p")],
        [vma(0, 30), vma(30, 64, "---p")],
        [vma(0, 3), vma(3, 64, "---p")],
    )
    assert ids == [[0, 1], [0, 1], [0, 1]]
    rows = merger.rows(2)
    assert [(r.start // PAGE, r.end // PAGE, r.perms) for r in rows] == [(0, 30, "rw-p"), (2, 64, "---p")]


def test_pieces_of_a_large_reservation_are_rows_of_their_own():
    ids, merger = run(
        [vma(0, 1000, "---p")],
        [vma(0, 10, "---p"), vma(10, 20), vma(20, 500, "---p"), vma(500, 600), vma(600, 1000, "---p")],
    )
    assert ids == [[0], [0, 1, 0, 2, 0]]
    assert merger.segments().rows.tolist() == [1, 2]


LIB = "/usr/lib/libx.so"


def test_a_library_seen_while_it_is_loaded_keeps_its_code_apart():
    loaded = [vma(0, 10, "r--p", LIB), vma(10, 50, "r-xp", LIB), vma(50, 70, "r--p", LIB), vma(70, 80, "rw-p", LIB)]
    ids, merger = run([vma(0, 80, "r--p", LIB)], loaded)
    assert ids == [[0], [0, 1, 0, 0]]
    out = parse_filter("default")
    assert [(r.id, out.leaves_out(r)) for r in merger.rows()] == [(0, None), (1, "exec")]
    assert run(loaded)[0] == [[0, 1, 2, 3]]


def test_zeroed_data_over_a_library_is_a_row_of_its_own():
    ids, _ = run([vma(0, 80, "rw-p", LIB)], [vma(0, 60, "rw-p", LIB), vma(60, 80)])
    assert ids == [[0], [0, 1]]


def test_ten_thousand_files_one_after_the_other_are_one_row():
    """What a data loader with shared memory does."""
    merger = RangeMerger()
    for i in range(1000):
        assert merger.assign([vma(100, 120 + i % 7, "rw-s", f"/dev/shm/torch_{i}")], i).tolist() == [0]
    (row,) = merger.rows(999)
    assert (row.name, row.first_sample, row.last_sample) == ("/dev/shm/torch_999", 0, 999)


def test_two_files_at_once_never_share_a_row():
    ids, merger = run([vma(0, 100, name="/a")], [vma(0, 50, name="/b"), vma(50, 100, name="/c")])
    assert ids == [[0], [0, 1]]
    assert [(r.name, r.start, r.end) for r in merger.rows()] == [("/b", 0, 50 * PAGE), ("/c", 50 * PAGE, 100 * PAGE)]


def test_unlinking_a_file_changes_nothing():
    merger = run([vma(0, 10, name="/a"), vma(20, 30, name="/b")], [vma(0, 10, name="/a (deleted)")])[1]
    assert merger.rows()[0].name == "/a (deleted)"
    assert len(merger.rows()) == 2


def test_a_jit_that_flips_its_pages_keeps_the_row():
    assert run([vma(0, 10)], [vma(0, 10, "r-xp")], [vma(0, 10)])[0] == [[0], [0], [0]]


def test_a_row_that_lost_all_addresses_lives_on_in_their_owner():
    ids, merger = run([vma(0, 10, name="/a"), vma(10, 20, name="/b")], [vma(0, 20, name="/a")])
    assert ids == [[0, 1], [0]]
    assert merger.aliases == {1: 0}


def test_last_sample_of_what_is_gone():
    merger = RangeMerger()
    merger.assign([vma(0, 10), vma(20, 30)], 0)
    merger.assign([vma(0, 10)], 7)
    assert [(r.first_sample, r.last_sample) for r in merger.rows(11)] == [(0, 11), (0, 6)]
    assert [(r.first_sample, r.last_sample) for r in merger.rows()] == [(0, 7), (0, 6)]


def test_the_top_of_the_address_space():
    """Vsyscall lies above the signed 64-bit range."""
    top = Vma(0xFFFFFFFFFF600000, 0xFFFFFFFFFF601000, "--xp", "[vsyscall]")
    merger = RangeMerger()
    assert merger.assign([top], 0).tolist() == [0]
    assert merger.segments().starts.tolist() == [top.start]


@pytest.mark.parametrize("sample", [None, 0])
def test_no_table_no_rows(sample):
    assert RangeMerger().rows(sample) == []
    assert RangeMerger().assign([], 0).tolist() == []
