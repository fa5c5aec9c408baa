"""The table of samples: in pieces the same as all rows at once, and little of what never changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtui.session.packed_column import BLOCK
from memtui.session.sample_arrays import INTEGERS, OPTIONAL_INTEGERS, TEXTS, SampleArraysBuilder, Texts

VALUES = st.sampled_from([None, 0, 1, 1 << 50])


def row(sample: int, values) -> tuple:
    times = {"sample": sample, "start_ns": 10 * sample, "end_ns": 10 * sample + 9}
    integers = [times.get(name, values[0] or 0) for name in INTEGERS]
    return (*integers, *(values[n % len(values)] for n in range(len(OPTIONAL_INTEGERS))), *("ok" for _ in TEXTS))


@given(st.lists(st.lists(st.lists(VALUES, min_size=3, max_size=3), max_size=4), max_size=6))
def test_what_comes_in_pieces_is_what_would_have_come_at_once(pieces):
    growing, rows = SampleArraysBuilder(), []
    tables = []
    for piece in pieces:
        new = [row(len(rows) + n, values) for n, values in enumerate(piece)]
        rows += new
        tables.append((growing.add(new), len(rows)))
    for table, count in tables:  # also those of before, which others may still look at
        for n, name in enumerate((*INTEGERS, *OPTIONAL_INTEGERS)):
            column = getattr(table, name)
            assert column.dtype == (np.int64 if name in INTEGERS else np.float64)
            expected = np.array([r[n] for r in rows[:count]], column.dtype)
            np.testing.assert_array_equal(column, expected, err_msg=name)


def test_a_column_of_one_value_takes_no_memory():
    growing = SampleArraysBuilder()
    table = growing.add([row(n, (7, None, 3)) for n in range(10 * BLOCK)])
    sizes = {name: getattr(table, name).nbytes for name in (*INTEGERS, *OPTIONAL_INTEGERS)}
    assert {name for name, size in sizes.items() if size > 8 * BLOCK + 10 * BLOCK // 8} == set()
    table = growing.add([row(10 * BLOCK, (8, None, 3))])
    assert table.gaps.tolist() == [7] * 10 * BLOCK + [8]


def test_hours_of_windows_take_a_third_of_the_memory_of_their_numbers():
    random, each = np.random.default_rng(0), {5000: 0, 50_000: 0}
    for count in each:
        growing = SampleArraysBuilder()
        ends_ns = np.cumsum(100_000_000 + random.integers(0, 10_000_000, count))
        integers = {
            "sample": np.arange(count),
            "start_ns": ends_ns - random.integers(90_000_000, 99_000_000, count),
            "end_ns": ends_ns,
            "sampler_cpu_ns": np.cumsum(random.integers(1_000_000, 3_000_000, count)),
            "recorder_cpu_ns": np.cumsum(random.integers(1_000_000, 3_000_000, count)),
        }
        columns = [integers.get(name, np.zeros(count, int)).tolist() for name in INTEGERS]
        for name in OPTIONAL_INTEGERS:
            size = name.endswith("_bytes")
            columns.append(
                (random.integers(0, 4000, count) << 12 if size else random.integers(0, 1 << 21, count)).tolist()
            )
        rows = list(zip(*columns, *([text] * count for text in ("", "ok", "")), strict=True))
        for start in range(0, count, 999):
            table = growing.add(rows[start : start + 999])
        for name, column in zip((*INTEGERS, *OPTIONAL_INTEGERS), columns, strict=True):
            assert getattr(table, name).tolist() == column
        each[count] = sum(getattr(table, name).nbytes for name in (*INTEGERS, *OPTIONAL_INTEGERS))
    more = each[50_000] - each[5000]
    assert more < 45_000 * 8 * (len(INTEGERS) + len(OPTIONAL_INTEGERS)) / 2.5


@given(st.lists(st.lists(st.sampled_from(["ok", "", "no pages of process 7"]))), st.integers(-9, 9), st.integers(-9, 9))
def test_texts_are_a_list_of_which_each_text_is_stored_once(pieces, first, last):
    texts, expected = Texts(), []
    for piece in pieces:
        texts.extend(piece)
        expected += piece
    assert list(texts) == expected
    assert len(texts) == len(expected)
    assert texts[first:last] == expected[first:last]
    assert [texts[n] for n in range(-len(texts), len(texts))] == 2 * expected
    assert len(texts._texts) == len(set(expected))
