"""The heat map of a session with more windows than columns: from stored sums, which hold every window."""

from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.heat_map import bin_column
from memtui.core.samples import End
from memtui.session.page_reader import PageReader
from memtui.session.session import Session
from memtui.tui.presenters import heat_map
from memtui.tui.presenters.presenter import Presenter, Room
from tests.support import sessions

SAMPLES, COLUMNS, ROWS = 700, 10, 12  # 70 samples a column: more than a sum has


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return sessions.write_session(tmp_path_factory.mktemp("hours") / "s.memtui", sessions.messages(SAMPLES))


@pytest.fixture
def decoded(monkeypatch):
    """Samples whose page sets are decoded."""
    read_samples = []
    original = PageReader.page_set

    def page_set(self, sample, process):
        read_samples.append(sample)
        return original(self, sample, process)

    monkeypatch.setattr(PageReader, "page_set", page_set)
    return read_samples


def whole(reader: Session) -> Presenter:
    """The whole session in one picture, complete."""
    presenter = Presenter(reader, follow=False)
    presenter.room = Room(COLUMNS, ROWS)
    for _ in range(20):
        presenter.view(10.0)
        if presenter.complete:
            return presenter
    raise AssertionError("the picture was never complete")


def test_no_page_set_is_decoded_for_it(path, decoded):
    reader = Session(path)
    share = whole(reader).view(10.0).heat.share
    assert not decoded
    assert share.shape[1] == COLUMNS
    assert np.isfinite(share).any(axis=0).all()
    reader.close()


def test_its_columns_are_means_of_all_windows(path):
    reader = Session(path)
    presenter = whole(reader)
    heat = presenter.view(10.0).heat
    ((process, layout, _),) = presenter.heat._stack.layouts
    # A column has the sums that end in it.
    width, first = heat.axis.bins(COLUMNS)
    edges = heat.axis.origin_ns + (first + np.arange(COLUMNS + 1)) * width
    last = np.append(np.arange(63, SAMPLES, 64), SAMPLES - 1)
    ends = reader.samples.end_ns[last]
    for column in range(COLUMNS):
        inside = last[(ends > edges[column]) & (ends <= edges[column + 1])]
        windows = [n for end in inside for n in range(end // 64 * 64, end + 1)]
        wanted = np.mean([bin_column(reader.pages.page_set(n, process), layout) for n in windows], axis=0)
        # Ranges of the test begin and end at chunks of 64 KiB; bins within a chunk share its touches evenly.
        finite = np.isfinite(wanted)
        assert (np.isfinite(heat.share[: len(finite), column]) == finite).all()
        total = np.where(finite, wanted * layout.bin_bytes, 0).sum()
        drawn = np.where(finite, heat.share[: len(finite), column] * layout.bin_bytes, 0).sum()
        assert drawn == pytest.approx(total, rel=1e-3)
        assert np.abs(heat.share[: len(finite), column] - wanted)[finite].max() < 0.1
    reader.close()


def test_a_recorder_that_was_killed_leaves_a_whole_picture(tmp_path):
    stream = (message for message in sessions.messages(SAMPLES - 30) if not isinstance(message, End))
    reader = Session(sessions.write_session(tmp_path / "s.memtui", stream))
    assert np.isfinite(whole(reader).view(10.0).heat.share).any(axis=0).all()
    reader.close()


def test_a_live_picture_is_laid_out_anew_only_so_often(path, monkeypatch):
    """Where processes come and go, each window would ask for another layout, with all its columns."""
    builds = []
    build = heat_map.Layout.build
    monkeypatch.setattr(heat_map.Layout, "build", lambda *args, **more: builds.append(1) or build(*args, **more))
    reader = Session(path)
    presenter = Presenter(reader, follow=True)
    presenter.room = Room(COLUMNS, ROWS)
    presenter.playhead.recording = presenter.playhead.follow = True
    presenter.view(10.0)
    weights = iter(range(4, 44))
    ranges_to_draw = heat_map.ranges_to_draw
    monkeypatch.setattr(
        heat_map,
        "ranges_to_draw",
        lambda *args: [replace(r, weight_bytes=1 << next(weights)) for r in ranges_to_draw(*args)[:1]],
    )
    monkeypatch.setattr(heat_map, "LAYOUT_SHARE", 1e-9)
    builds.clear()
    for _ in range(5):
        presenter.view(10.0)
    assert builds == []
    assert presenter.complete, "nobody is to ask again at once"
    monkeypatch.setattr(heat_map, "LAYOUT_SHARE", 1e9)
    presenter.view(10.0)
    assert len(builds) == 1
    monkeypatch.setattr(heat_map, "LAYOUT_SHARE", 1e-9)
    presenter.playhead.follow = False  # whoever looks at one moment sees what was there
    presenter.view(10.0)
    assert len(builds) == 2
    reader.close()


def test_processes_that_are_not_in_a_window_cost_no_question(path, decoded):
    reader = Session(path)
    heat = heat_map.HeatColumns()
    (process, *_) = reader.processes.all()
    assert heat.page_set(reader, 3, process.key) is not None
    assert heat.page_set(reader, 3, process.key + 1000) is None
    assert decoded == [3]
    reader.close()
