"""Figures in matplotlib: what they draw is what the session has."""

from __future__ import annotations

import sys
from contextlib import closing

import numpy as np
import pytest

import memtui
from memtui.api.plots import MIB
from memtui.core.errors import UserError
from memtui.core.readings import Power
from memtui.session.session import Session
from tests.support.hostile_sessions import small_stream
from tests.support.sessions import messages, write_session

pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")


@pytest.fixture(autouse=True)
def _closed():
    backend = pyplot.get_backend()
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(backend)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_session(tmp_path_factory.mktemp("plots") / "s.memtui", messages(20))


def test_the_working_set_over_time(path):
    with memtui.open(path) as session, closing(Session(path)) as truth:
        axes = session.plot.working_set()
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert lines.keys() == {"WSS", "RSS"}, "a PSS was not read"
        assert np.allclose(lines["WSS"].get_ydata(), truth.samples.wss_bytes[:] / MIB)
        assert lines["WSS"].get_xdata()[0] == session.windows.to_numpy()[0]["end"]
        assert axes.get_ylim()[0] == 0


def test_all_of_them_are_drawn_on_axes_that_are_given(path, tmp_path):
    figure, (upper, lower) = pyplot.subplots(2)
    with memtui.open(path) as session:
        assert session.plot.heatmap(upper, bins=(50, 40)) is upper
        (image,) = upper.get_images()
        assert np.array_equal(image.get_array().data, session.heatmap((50, 40)).share, equal_nan=True)
        assert "[heap]" in [label.get_text() for label in upper.get_yticklabels()]
        assert session.plot.reuse(lower) is lower
        assert lower.get_xscale() == "log"
    figure.savefig(tmp_path / "all.png")


def test_power_of_each_device(tmp_path):
    with memtui.open(write_session(tmp_path / "s.memtui", small_stream())) as session:
        (line,) = session.plot.power().get_lines()
        assert line.get_label() == "GPU 0 board"
        assert set(line.get_ydata()) == {300.0}


def test_what_there_is_not(path, tmp_path, monkeypatch):
    without = (message for message in messages(5) if not isinstance(message, Power))
    with memtui.open(write_session(tmp_path / "p.memtui", without)) as session:
        with pytest.raises(UserError, match="no power was read"):
            session.plot.power()
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(UserError, match=r"pip install 'memtui\[notebook\]'"):
            session.plot.working_set()
    with memtui.open(path.parent) as sessions, pytest.raises(UserError, match="figures are of one session"):
        _ = sessions.plot
    untracked = write_session(tmp_path / "t.memtui", messages(5, tracked=False))
    with memtui.open(untracked) as session, pytest.raises(UserError, match="no page was touched twice"):
        session.plot.reuse(object())
