"""The heat map of a session as an array: what is known to be touched, where and when."""

from __future__ import annotations

import numpy as np
import pytest

import memtui
from memtui.api.heat import Heat
from memtui.core.errors import UserError
from tests.support.sessions import DATA, HEAP, messages, write_session

SAMPLES = 20


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_session(tmp_path_factory.mktemp("heat") / "s.memtui", messages(SAMPLES))


def test_the_heap_is_hot_and_the_window_moves_through_the_data(path):
    with memtui.open(path) as session:
        heat = session.heatmap((SAMPLES, 60))
        assert isinstance(heat, Heat)
        assert heat.pid == 4242
        rows, columns = heat.share.shape
        assert columns == SAMPLES
        assert rows == len(heat.addresses) == len(heat.ranges) <= 60
        assert len(heat.times) == columns + 1
        first = session.windows.to_numpy()[0]
        assert heat.times[0] == first["start"]
        heap = heat.share[[name == "[heap]" for name in heat.ranges]]
        assert heap[0].min() == 1, "the first half of it is touched in every window"
        assert min(a for a, name in zip(heat.addresses, heat.ranges, strict=True) if name == "[heap]") == HEAP
        data = [row for row, name in enumerate(heat.ranges) if name.startswith("anon")]
        assert data
        assert all(heat.addresses[row] >= DATA for row in data)
        hottest = np.nanargmax(heat.share[data], axis=0)
        assert len(set(hottest.tolist())) > 3, "it moves"
        assert np.asarray(heat).shape == heat.share.shape


def test_addresses_are_hidden_where_they_have_to_be(path):
    with memtui.open(path) as plain, memtui.open(path, redact=True) as redacted:
        heat, hidden = plain.heatmap((10, 30)), redacted.heatmap((10, 30))
        assert set(hidden.addresses) == {None}
        assert set(heat.addresses) > {HEAP}
        assert np.array_equal(heat.share, hidden.share, equal_nan=True)


def test_what_has_none_says_why(path, tmp_path):
    untracked = write_session(tmp_path / "t.memtui", messages(5, tracked=False))
    with memtui.open(untracked) as session, pytest.raises(UserError, match=r"t\.memtui: no pages are stored"):
        session.heatmap()
    with memtui.open(path) as session:
        with pytest.raises(UserError, match="no pages of process 1 are stored"):
            session.heatmap(pid=1)
        with pytest.raises(UserError, match="not 0 and 5"):
            session.heatmap((0, 5))
    with memtui.open(path.parent) as sessions, pytest.raises(UserError, match="open its file"):
        sessions.heatmap()
