"""The trace of one step against a dictionary of live blocks, and the refusal of damaged ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.allocation_trace import CATEGORIES, Block, StepTrace
from tests.support.step_traces import NAMES, SOUND, Row, sound_rows, trace_of


@settings(deadline=None)
@given(sound_rows())
def test_all_sums_agree_with_a_dictionary_of_live_blocks(drawn):
    rows, existing = drawn
    trace = trace_of(rows, existing)
    usage, categories = trace.usage_bytes, trace.by_category()
    assert categories.shape == (len(rows), len(CATEGORIES))
    live: dict[int, Row] = {}
    totals = []
    for n, row in enumerate(rows):
        if row[1] > 0:
            live[row[2]] = row
        else:
            del live[row[2]]
        totals.append(sum(r[1] for r in live.values()))
        for category in range(len(CATEGORIES)):
            assert categories[n, category] == sum(r[1] for r in live.values() if r[3] == category)
        wanted = [Block(r[2], r[1], r[3], r[5], r[6], r[0]) for r in live.values()]
        assert trace.live_at(n) == sorted(wanted, key=lambda block: (-block.size_bytes, block.block))
    assert usage.tolist() == totals == categories.sum(axis=1).tolist()
    assert trace.start_bytes == sum(row[1] for row in rows[:existing])
    assert trace.peak_bytes == max(totals, default=0)
    assert trace.peak_row == (totals.index(max(totals)) if totals else -1)
    assert trace.peak_above_start_bytes == trace.peak_bytes - trace.start_bytes
    assert trace.returns_to_start == ((totals[-1] if totals else 0) == trace.start_bytes)


@settings(deadline=None)
@given(sound_rows())
def test_columns_are_read_back(drawn):
    trace = trace_of(*drawn)
    again = StepTrace.from_columns(
        trace.to_columns(), step=3, start_ns=100, end_ns=10**6, existing=trace.existing, names=list(NAMES)
    )
    assert np.array_equal(again.to_columns(), trace.to_columns())
    assert again.names == NAMES
    assert (again.step, again.start_ns, again.end_ns, again.existing) == (3, 100, 10**6, trace.existing)
    assert not np.shares_memory(again.t_ns, trace.t_ns)


def test_a_small_step_by_hand():
    trace = trace_of(SOUND, 1)
    assert trace.usage_bytes.tolist() == [64, 96, 112, 80, 64]
    assert (trace.peak_row, trace.peak_bytes, trace.peak_above_start_bytes) == (2, 112, 48)
    assert trace.returns_to_start
    assert [block.size_bytes for block in trace.live_at(2)] == [64, 32, 16]
    assert trace.live_at(2)[1] == Block(1, 32, CATEGORIES.index("activations"), 0, 2, 110)
    assert [trace.name(int(n)) for n in trace.op[:2]] == ["", "aten::addmm"]
    for row in (-1, 5):
        with pytest.raises(IndexError, match=f"row {row} is not within"):
            trace.live_at(row)


def changed(row: int, column: int, value: int) -> list[Row]:
    rows = [list(r) for r in SOUND]
    rows[row][column] = value
    return [tuple(r) for r in rows]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (changed(2, 0, 105), "time falls at row 2"),
        (changed(4, 0, 10**7), "outside the step"),
        (changed(0, 0, 99), "outside the step"),
        (changed(3, 1, -31), "block 1 is freed with another size"),
        (changed(3, 2, 0), "block 0 is freed with another size"),
        (changed(3, 2, 3), "block 3 is freed without or before its allocation"),
        (changed(3, 1, 32), "block 1 is allocated twice"),
        (changed(2, 1, 0), "block 2 has a row of no bytes"),
        (changed(3, 3, 6), "block 1 changes its category"),
        (changed(0, 4, 0), "does not begin with the step"),
        (changed(0, 1, -64), "is not an allocation"),
        (changed(1, 1, 1 << 62), "too large to be true"),
        (changed(1, 1, -(1 << 63)), "too large to be true"),
        (changed(1, 2, -1), "block -1 at row 1 does not exist"),
        (changed(1, 2, 5), "block 5 at row 1 does not exist"),
        (changed(1, 3, 8), "category 8 at row 1 does not exist"),
        (changed(1, 3, -1), "category -1 at row 1 does not exist"),
        (changed(1, 4, 4), "phase 4 at row 1 does not exist"),
        (changed(1, 5, 3), "operation 3 at row 1 does not exist"),
        (changed(1, 6, -2), "layer -2 at row 1 does not exist"),
        ([*SOUND, (150, -32, 1, 2, 1, 1, -1)], "block 1 is freed twice"),
        ([*SOUND[:1], *SOUND[3:], *SOUND[1:3]], "time falls"),
    ],
)
def test_a_broken_invariant_is_a_sentence(rows, sentence):
    with pytest.raises(ValueError, match="damaged trace of a step: ") as caught:
        trace_of(rows, 1)
    assert "\n" not in str(caught.value)
    columns = np.array(rows, np.int64).T
    assert any(sentence in result for result in replace_columns(trace_of(SOUND, 1), columns).check())


def replace_columns(trace: StepTrace, columns: np.ndarray) -> StepTrace:
    names = ("t_ns", "delta_bytes", "block", "category", "phase", "op", "layer")
    return replace(trace, **dict(zip(names, columns, strict=True)))


def test_negative_usage_is_named():
    rows = [SOUND[0], (110, -64, 1, 0, 0, -1, -1), (120, -64, 2, 0, 0, -1, -1)]
    result = replace_columns(trace_of(SOUND, 1), np.array(rows, np.int64).T).check()
    assert "usage is negative after row 2" in result


GOOD = {"step": 3, "start_ns": 100, "end_ns": 10**6, "existing": 1, "names": NAMES}


@pytest.mark.parametrize(
    "head",
    [
        {"step": -1},
        {"step": 1.5},
        {"step": True},
        {"start_ns": None},
        {"start_ns": 1 << 70},
        {"end_ns": 99},
        {"existing": 6},
        {"existing": -1},
        {"existing": 2},
        {"names": "aten"},
        {"names": None},
        {"names": ("aten::addmm", 3, "0")},
        {"names": NAMES[:1]},
    ],
)
def test_a_damaged_head_is_refused(head):
    columns = np.array(SOUND, np.int64).T
    StepTrace.from_columns(columns, **GOOD)
    with pytest.raises(ValueError, match=r"^damaged trace of a step: .+$"):
        StepTrace.from_columns(columns, **(GOOD | head))


@pytest.mark.parametrize(
    "columns",
    [
        None,
        [],
        "damaged",
        [[1], [2, 3]],
        np.zeros((6, 5), np.int64),
        np.zeros(7, np.int64),
        np.full((7, 2), np.nan),
        np.full((7, 2), np.inf),
        np.array(SOUND, float).T,
        np.array(SOUND, object).T,
        np.full((7, 2), (1 << 64) - 1, np.uint64),
        [[1 << 80]] * 7,
    ],
)
def test_damaged_columns_are_refused(columns):
    with pytest.raises(ValueError, match=r"^damaged trace of a step: .+$"):
        StepTrace.from_columns(columns, **GOOD)


@settings(deadline=None)
@given(sound_rows(), st.data())
def test_whatever_is_changed_is_refused_or_sound(drawn, data):
    rows, existing = drawn
    columns = np.array(rows, np.int64).reshape(-1, 7).T.copy()
    if columns.size:
        where = data.draw(st.integers(0, 6)), data.draw(st.integers(0, len(rows) - 1))
        columns[where] = data.draw(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 8))
    try:
        trace = StepTrace.from_columns(columns, **(GOOD | {"existing": existing}))
    except ValueError:
        return
    assert trace.check() == []
    assert (trace.usage_bytes >= 0).all()
    assert (trace.by_category() >= 0).all()


def test_an_empty_step():
    trace = StepTrace.from_columns(np.zeros((7, 0), np.int64), **(GOOD | {"existing": 0}))
    assert (len(trace), trace.peak_row, trace.peak_bytes, trace.returns_to_start) == (0, -1, 0, True)
    assert trace.by_category().shape == (0, len(CATEGORIES))


def test_a_column_of_another_length_or_type_is_named():
    trace = trace_of(SOUND, 1)
    assert replace(trace, op=trace.op[:-1]).check() == ["column op is not i8[5]"]
    assert replace(trace, delta_bytes=trace.delta_bytes.astype(float)).check() == ["column delta_bytes is not i8[5]"]
