"""Which windows a column of the heat map shows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from memtui.tui.presenters.heat_columns import (
    covering_window,
    mean_column,
    picked_windows,
    stored_samples,
    window_stride,
)

ENDS_NS = np.arange(1, 1001) * 100


@pytest.mark.parametrize(
    ("width_ns", "stride"), [(10, 1), (100, 1), (199, 1), (200, 2), (790, 4), (800, 8), (6400, 64)]
)
def test_of_many_windows_one_or_two_a_column_are_looked_at(width_ns, stride):
    assert window_stride(ENDS_NS, width_ns, 0) == stride
    if stride > 1:
        for low in range(0, 500, width_ns // 100):
            assert len(picked_windows(low, low + width_ns // 100, stride)) in (1, 2)


def test_a_stride_holds_still_while_it_is_nearly_right():
    assert window_stride(ENDS_NS, 730, 8) == 8
    assert window_stride(ENDS_NS, 710, 8) == 4
    assert window_stride(ENDS_NS, 1750, 8) == 8
    assert window_stride(ENDS_NS, 1770, 8) == 16
    assert window_stride(ENDS_NS, 50, 1) == 1
    assert window_stride(ENDS_NS[:1], 50, 0) == window_stride(ENDS_NS[:0], 50, 0) == 1


def test_the_windows_of_a_column_lie_on_a_fixed_grid():
    assert list(picked_windows(3, 20, 8)) == [8, 16]
    assert list(picked_windows(4, 20, 8)) == [8, 16]
    assert list(picked_windows(3, 7, 8)) == [3]  # none of the grid: the first
    assert list(picked_windows(7, 7, 8)) == []


def middle(t_ns: float) -> np.ndarray:
    return np.array([t_ns - 5, t_ns + 5])


def test_a_column_narrower_than_a_window_shows_the_one_it_lies_in():
    samples = SimpleNamespace(start_ns=np.array([100, 300]), end_ns=np.array([200, 400]))
    assert covering_window(samples, 1, middle(350.0)) == (1,)
    assert covering_window(samples, 1, middle(275.0)) == (1,)  # the pause before it is bridged
    assert covering_window(samples, 1, middle(274.0)) == ()
    assert covering_window(samples, 2, middle(500.0)) == ()  # none ends behind it


def test_samples_without_pages_give_way_to_the_next_one_of_the_column():
    stored = [4, 9]
    pages = SimpleNamespace(stored_sample=lambda low, high: next((s for s in stored if low <= s <= high), None))
    reader = SimpleNamespace(pages=pages)
    assert stored_samples(reader, [0, 3], 8) == [4]
    assert stored_samples(reader, [3, 6], 9) == [4, 9]
    assert stored_samples(reader, [5], 8) == []


def test_the_mean_of_columns():
    one, two = np.array([0.0, 0.5], np.float32), np.array([1.0, 0.5], np.float32)
    assert mean_column([one]) is one
    assert mean_column([one, two]).tolist() == [0.5, 0.5]
    unknown = np.array([np.nan, np.nan], np.float32)
    partly = np.array([0.5, np.nan], np.float32)
    assert mean_column([one, partly, unknown])[0] == (one[0] + partly[0]) / 2
    assert np.isnan(mean_column([unknown] * 3)).all()
