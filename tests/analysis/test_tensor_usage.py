"""What tensors hold over time, thinned: no peak is lost, and nobody is believed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_usage import MOST_STRETCHES, STRETCH_NS, TensorUsage, joined, stretches
from memtui.core.tracer_messages import TrainingProgress
from memtui.session.columns import columns_of
from memtui.session.tables.training import (
    ProgressRow,
    TrainingProgressColumns,
    TrainingProgressRecord,
    decode_progress,
    progress_record,
)

KINDS = len(CATEGORIES)


@st.composite
def steps(draw):
    """A step: when something changed, what was held from then on, how long it took."""
    length_ns = draw(st.integers(0, 6 * STRETCH_NS))
    times = sorted(draw(st.lists(st.integers(0, length_ns), max_size=12)))
    t_ns = 1000 + np.array([0, *times])
    held = draw(st.lists(st.lists(st.integers(0, 99), min_size=KINDS, max_size=KINDS), min_size=len(t_ns)))
    return t_ns, np.array(held[: len(t_ns)]), 1000, 1000 + length_ns


@given(steps())
def test_each_stretch_has_its_fullest_moment(step):
    t_ns, held, start_ns, end_ns = step
    op = np.arange(len(t_ns)) + 5
    columns = stretches(t_ns, held, op, start_ns, end_ns, 7)
    assert columns[0, 0] == start_ns
    assert columns[1, -1] == end_ns
    assert (columns[0, 1:] == columns[1, :-1]).all()
    assert (columns[2] == 7).all()
    assert columns.shape[1] <= MOST_STRETCHES
    for start, end, _, which, *there in columns.T.tolist():
        # What holds when it begins, and all that follows within it; changes of one moment follow each other.
        inside = [n for n, t in enumerate(t_ns.tolist()) if start < t < end]
        before = [n for n, t in enumerate(t_ns.tolist()) if t <= start]
        fullest = max(int(held[n].sum()) for n in (*before[-1:], *inside))
        assert sum(there) == fullest
        assert there == held[which - 5].tolist()


def test_a_long_step_has_a_bounded_number_of_stretches():
    end_ns = 10_000 * STRETCH_NS
    t_ns = np.linspace(0, end_ns, 5000).astype(np.int64)
    held = np.random.default_rng(0).integers(0, 1000, (5000, KINDS))
    columns = stretches(t_ns, held, np.zeros(5000, np.int64), 0, end_ns, 0)
    assert columns.shape[1] == MOST_STRETCHES
    assert columns[4:].sum(axis=0).max() == held[:-1].sum(axis=1).max()


@given(st.lists(steps(), max_size=5))
def test_joining_loses_no_peak_and_makes_nothing_longer_than_a_stretch(parts):
    columns = [np.empty((4 + KINDS, 0), np.int64)]
    index = 0
    for number, (t_ns, held, start_ns, end_ns) in enumerate(parts):
        result = stretches(t_ns, held, np.zeros(len(t_ns), np.int64), start_ns, end_ns, number)
        result[:2] += index - start_ns
        index = int(result[1, -1])
        columns.append(result)
    before = np.concatenate(columns, axis=1)
    after = joined(before.copy())
    assert after.shape[1] <= before.shape[1]
    if before.shape[1]:
        assert after[4:].sum(axis=0).max() == before[4:].sum(axis=0).max()
        assert (after[0, 0], after[1, -1]) == (before[0, 0], before[1, -1])
    TensorUsage.of(after, ("op",))
    grown = (after[1] - after[0])[~np.isin(after[0], before[0]) | ~np.isin(after[1], before[1])]
    assert (grown <= STRETCH_NS).all()


def told(**changes) -> TrainingProgress:
    """Two steps, one of which was seen in two stretches."""
    usage = np.zeros((4 + KINDS, 2), np.int64)
    usage[0], usage[1], usage[2], usage[3] = (100, 150), (150, 200), 5, (0, -1)
    usage[4:, 0] = np.arange(KINDS)
    fields = {
        "first": 5, "start_ns": 100, "ends_ns": np.array([[200, 260]]), "usage": usage, "names": ("aten::mm",),
        "view": "1 step in 2", "cost_ns": 9,
    }  # fmt: skip
    return TrainingProgress(**({"pid": 1} | fields | changes))


def scalars_of(record: TrainingProgressRecord) -> ProgressRow:
    return ProgressRow(*(getattr(record, name) for name in columns_of(TrainingProgressColumns)))


def test_a_message_comes_back_out_of_its_row():
    record = progress_record(3, told())
    scalars = scalars_of(record)
    assert scalars == ProgressRow(3, 1, 5, 2, 100, 260, sum(range(KINDS)), "1 step in 2", "", 9)
    decoded = decode_progress(scalars, record.data)
    assert decoded.ends_ns.tolist() == [200, 260]
    assert (decoded.usage.columns == told().usage).all()
    assert decoded.usage.names == ("aten::mm",)


def test_the_first_step_of_all_and_steps_that_take_no_time_can_be():
    record = progress_record(0, told(first=0, start_ns=0, ends_ns=np.array([[0, 0, 260]])))
    assert (record.first_step, record.steps, record.end_ns) == (0, 3, 260)


def changed(row: int, column: int, value: int) -> np.ndarray:
    usage = told().usage
    usage[row, column] = value
    return usage


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ends_ns": np.array([[300, 260]])}, "ends before it begins"),
        ({"ends_ns": np.array([[50, 60]])}, "ends before it begins"),
        ({"ends_ns": np.empty((1, 0), np.int64)}, "0 steps"),
        ({"first": -1}, "negative"),
        ({"usage": changed(1, 0, 90)}, "not in order"),
        ({"usage": changed(0, 1, 120)}, "not in order"),
        ({"usage": changed(2, 0, -1)}, "no step or operator"),
        ({"usage": changed(3, 0, 1)}, "no step or operator"),
        ({"usage": changed(5, 0, -1)}, "hold what cannot be"),
        ({"usage": changed(5, 0, 1 << 60)}, "hold what cannot be"),
        ({"usage": np.zeros((3, 2), np.int64)}, "shape"),
        ({"names": (5,)}, "not a text"),
    ],
)
def test_what_cannot_be_is_refused(changes, why):
    with pytest.raises(ValueError, match=why):
        progress_record(0, told(**changes))


@given(st.binary(max_size=200))
def test_damaged_rows_are_refused(data):
    with pytest.raises(ValueError, match=r"."):
        decode_progress(scalars_of(progress_record(3, told())), data)
