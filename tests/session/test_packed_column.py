"""A packed column is the array of its numbers, however they come and are asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memtui.session import packed_column
from memtui.session.packed_column import Column, Slabs

WHOLE = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 300).map(lambda n: n << 12),
    st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1, -(2**63)]),
)
FLOATS = st.one_of(
    st.sampled_from([np.nan, 0.0, 1.0, 4096.0, 0.5, -7.0, 1e300, np.inf, -np.inf, float(2**53), float(2**53 + 2)]),
    st.integers(0, 300).map(lambda n: float(n << 12)),
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(packed_column, "BLOCK", 8)


def pieces_of(values):
    return st.lists(st.lists(values, max_size=20), max_size=5)


@settings(deadline=None)
@given(st.one_of(pieces_of(WHOLE), pieces_of(FLOATS).map(lambda pieces: [np.array(p, float) for p in pieces])))
@example([list(range(0, 80, 4))])
@example([[2**63 - 1, -(2**63)] * 8])
def test_it_reads_as_what_was_added(pieces):
    dtype = np.float64 if pieces and isinstance(pieces[0], np.ndarray) else np.int64
    column, columns = Column.empty(dtype), []
    expected = np.empty(0, dtype)
    for piece in pieces:
        added = np.array(piece, dtype)
        column, expected = column.extended(added), np.concatenate((expected, added))
        columns.append((column, expected))
    for some, all_of_it in columns:  # earlier ones, too
        assert len(some) == len(all_of_it)
        assert some.dtype == all_of_it.dtype
        np.testing.assert_array_equal(np.asarray(some), all_of_it)
        assert np.asarray(some).dtype == dtype
        np.testing.assert_array_equal([some[n] for n in range(-len(some), len(some))], np.tile(all_of_it, 2))
        for ends in ((3, 19), (7, 9), (-5, None), (None, None, 3), (9, 2), (2, -1), (1, 9, 2), (1, 9, 1)):
            part = some[slice(*ends)]
            assert part.dtype == dtype
            np.testing.assert_array_equal(part, all_of_it[slice(*ends)])
        assert some.any_known == bool((~np.isnan(all_of_it)).any())
        for index in (len(some), -len(some) - 1):
            with pytest.raises(IndexError, match=f"{index} of {len(some)} samples"):
                some[index]


@given(st.one_of(st.lists(WHOLE, min_size=8, max_size=8), st.lists(FLOATS, min_size=8, max_size=8)))
@example([float(n) for n in range(8)])
@example([np.nan, 4.0, *[np.nan] * 6])
def test_a_block_has_as_many_numbers_as_were_added(values):
    added = np.array(values, np.int64 if isinstance(values[0], int) else np.float64)
    block = packed_column._Block.of(added, Slabs())
    found = block.values(added.dtype) if isinstance(block, packed_column._Block) else block
    assert found.dtype == added.dtype
    np.testing.assert_array_equal(found, added)


def test_what_is_stored_cannot_be_changed():
    column = Column.of(np.arange(20))
    with pytest.raises(ValueError, match="read-only"):
        column[:8][0] = 7
    column[16:][0] = 7  # a copy of what is not a block yet
    assert column.tolist() == list(range(20))


@given(
    st.lists(st.integers(0, 50), max_size=60),
    st.integers(0, 60),
    st.lists(st.one_of(st.floats(-2, 52), st.integers(-2, 52)), max_size=9),
)
@settings(deadline=None)
def test_searches_find_what_they_find_in_an_array(values, earlier, wanted):
    rising = np.sort(np.array(values, np.int64))
    longest = Column.of(rising)
    first = Column.empty(np.int64).extended(rising[:earlier])
    first.extended(rising[earlier:])
    for column, expected in ((longest, rising), (first, rising[:earlier])):
        for side in ("left", "right"):
            for found in (np.searchsorted(column, wanted, side=side), column.searchsorted(wanted, side=side)):
                assert found.dtype == np.intp
                np.testing.assert_array_equal(found, np.searchsorted(expected, wanted, side=side))
            for one in wanted:
                assert column.searchsorted(one, side=side) == expected.searchsorted(one, side=side)


def test_a_search_and_a_part_unpack_few_blocks(monkeypatch):
    column = Column.of(np.arange(0, 80_000, 8))
    unpacked: list[object] = []
    values = packed_column._Block.values
    monkeypatch.setattr(packed_column._Block, "values", lambda *of: unpacked.append(of) or values(*of))
    assert column.searchsorted(40_001) == 5001
    assert column[5000:5010].tolist() == list(range(40_000, 40_080, 8))
    assert column[5003] == 40_024
    assert len(unpacked) <= 3


def test_it_is_used_as_an_array():
    column, numbers = Column.of(np.arange(1.0, 21.0)), np.arange(1.0, 21.0)
    for found, expected in (
        (column - 1, numbers - 1),
        (1 / (column + column), 1 / (numbers + numbers)),
        (column == 3, numbers == 3),
        (np.isnan(column), np.isnan(numbers)),
        (column[numbers > 4], numbers[numbers > 4]),
        (column[[3, 1]], numbers[[3, 1]]),
        (column[Column.of(np.array([3, 1]))], numbers[[3, 1]]),
        (np.add(column, 1, dtype=np.float32), np.add(numbers, 1, dtype=np.float32)),
        (column.__array__(np.dtype(np.int64)), numbers.astype(np.int64)),
        (np.where(numbers > 4, column, 0), np.where(numbers > 4, numbers, 0)),
        (column.astype(np.int64), numbers.astype(np.int64)),
        (list(column), list(numbers)),
    ):
        np.testing.assert_array_equal(found, expected)
        assert np.asarray(found).dtype == np.asarray(expected).dtype
    assert (column.min(), column.max(), column.sum(), column.tolist()) == (1, 20, 210, numbers.tolist())


def test_only_the_longest_grows():
    column = Column.of(np.arange(3))
    column.extended(np.arange(2))
    with pytest.raises(ValueError, match="longer"):
        column.extended(np.arange(2))


def test_what_repeats_is_deflated_and_columns_share_their_memory(monkeypatch):
    monkeypatch.setattr(packed_column, "BLOCK", 1024)
    monkeypatch.setattr(packed_column, "_SLAB_BYTES", 3000)  # a block of some, and not of others
    chance, slabs = np.random.default_rng(7), Slabs()
    arrays = {
        "repeats": np.tile(np.arange(16.0), 320),
        "at times unknown": np.where(np.arange(5120) % 64 < 32, np.nan, 7.0),
        "random": chance.integers(0, 1 << 30, 5120).astype(float),
        "never known": np.full(5120, np.nan),
        "not whole": chance.random(5120),
        "three bits": chance.integers(0, 8, 5120).astype(float),  # as much as their steps, which compress less well
    }
    columns = {name: Column.empty(np.float64, slabs) for name in arrays}
    for start in range(0, 5120, 320):
        columns = {name: column.extended(arrays[name][start : start + 320]) for name, column in columns.items()}
    rest_bytes = 1024 * 8
    for name, column in columns.items():
        np.testing.assert_array_equal(column[:], arrays[name])
        packed_bytes = column.nbytes - rest_bytes
        assert packed_bytes <= {"random": 4 * 5120, "not whole": 8 * 5120, "three bits": 2500}.get(name, 5120 // 10), (
            name
        )


def test_unknown_numbers_cost_their_bits_alone():
    known = np.random.default_rng(7).integers(0, 2, 64).astype(bool)
    constant, zero = (Column.of(np.where(known, number, np.nan)) for number in (7.0, 0.0))
    assert constant.nbytes == zero.nbytes


def test_what_lies_in_a_slab_cannot_be_changed():
    kept = Slabs().keep(b"kept")
    assert bytes(kept) == b"kept"
    with pytest.raises(TypeError):
        kept[0] = 0
