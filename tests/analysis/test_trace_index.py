"""What is worked out once of a step, against the step itself and against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from memtui.analysis import trace_index
from memtui.analysis.trace_index import StepIndex
from tests.support.step_traces import SOUND, sound_rows, trace_of


@pytest.fixture(autouse=True, scope="module")
def small_parts():
    """Sums are kept for every third row, so that short steps have several."""
    each, trace_index._EACH = trace_index._EACH, 3
    yield
    trace_index._EACH = each


@settings(deadline=None, max_examples=30)
@given(sound_rows())
def test_it_says_what_the_step_says(drawn):
    trace = trace_of(*drawn)
    index = StepIndex(trace)
    assert np.array_equal(index.usage_bytes, trace.usage_bytes)
    assert (index.peak_row, index.peak_bytes, index.start_bytes) == (
        trace.peak_row,
        trace.peak_bytes,
        trace.start_bytes,
    )
    categories = trace.by_category()
    for row in range(len(trace)):
        assert index.usage_by_category(row).tolist() == categories[row].tolist()
        alive = np.flatnonzero(index.alive(row))
        result = [
            (int(trace.block[index.born[n]]), int(index.size_bytes[n]), int(trace.t_ns[index.born[n]])) for n in alive
        ]
        assert result == [(b.block, b.size_bytes, b.since_ns) for b in trace.live_at(row)]
        born = next(r for r in range(row + 1) if trace.block[r] == trace.block[row])
        assert index.layer[row] == trace.layer[born], "a free is of the layer whose memory it is"


def comes_to_nothing(trace) -> set[int]:
    """Rows by the words of docs/guide/trace.md."""
    result: set[int] = set()
    for row in range(trace.existing, len(trace) - 1):
        both = trace.delta_bytes[row] > 0 and trace.block[row + 1] == trace.block[row]
        if both and trace.delta_bytes[row + 1] == -trace.delta_bytes[row] and row != trace.peak_row:
            result |= {row, row + 1}
    return result


@settings(deadline=None, max_examples=30)
@given(sound_rows())
def test_rows_that_come_to_nothing(drawn):
    trace = trace_of(*drawn)
    index = StepIndex(trace)
    zero = set(np.flatnonzero(index.zero).tolist())
    assert zero == comes_to_nothing(trace)
    assert trace.peak_row not in zero
    assert int(trace.delta_bytes[index.zero].sum()) == 0, "what is held stays true without them"


def test_a_pair_inside_a_pair_hides_only_itself():
    rows = [*SOUND[:1], (110, 8, 1, 6, 0, 0, 2), (111, 4, 2, 6, 0, 0, 2), (112, -4, 2, 6, 0, 0, 2)]
    rows += [(113, -8, 1, 6, 0, 0, 2), (114, 99, 3, 6, 0, 0, 2), (115, -99, 3, 6, 0, 0, 2)]
    assert np.flatnonzero(StepIndex(trace_of(rows, 1)).zero).tolist() == [2, 3], "and the last pair is the peak"


def test_what_was_there_before_is_one_row():
    rows = [(100, 4, n, 0, 3, -1, 2) for n in range(5)]
    assert StepIndex(trace_of(rows, 5)).start_row == 4
    assert StepIndex(trace_of(rows[:0], 0)).start_row == 0
    assert StepIndex(trace_of(rows[:0], 0)).peak_row == -1
