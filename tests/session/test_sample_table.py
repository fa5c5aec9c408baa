"""The table of samples: in pieces the same as all rows at once, and little of what never changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtui.session.sample_table import INTEGERS, OPTIONAL_INTEGERS, TEXTS, SampleTableBuilder, Texts

VALUES = st.sampled_from([None, 0, 1, 1 << 50])


def row(sample: int, values) -> tuple:
    times = {"sample": sample, "start_ns": 10 * sample, "end_ns": 10 * sample + 9}
    integers = [times.get(name, values[0] or 0) for name in INTEGERS]
    return (*integers, *(values[n % len(values)] for n in range(len(OPTIONAL_INTEGERS))), *("ok" for _ in TEXTS))


@given(st.lists(st.lists(st.lists(VALUES, min_size=3, max_size=3), max_size=4), max_size=6))
def test_what_comes_in_pieces_is_what_would_have_come_at_once(pieces):
    growing, rows = SampleTableBuilder(), []
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
    growing = SampleTableBuilder()
    table = growing.add([row(n, (7, None, 3)) for n in range(1000)])
    sizes = {name: getattr(table, name).strides[0] for name in (*INTEGERS, *OPTIONAL_INTEGERS)}
    assert {name for name, step in sizes.items() if step} == {"sample", "start_ns", "end_ns"}
    table = growing.add([row(1000, (8, None, 3))])
    assert table.gaps.tolist() == [7] * 1000 + [8]


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
