"""The heat map of a session with more windows than columns: from stored sums, which hold every window."""

import numpy as np
import pytest

from memtui.analysis.heat_map import bin_column
from memtui.core.samples import End
from memtui.session.reader import SessionReader
from memtui.tui.presenters.presenter import Presenter, Room
from tests.support import sessions

SAMPLES, COLUMNS, ROWS = 700, 10, 12  # 70 samples a column: more than a sum has


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return sessions.write_session(tmp_path_factory.mktemp("hours") / "s.memtui", sessions.messages(SAMPLES))


@pytest.fixture
def decoded(monkeypatch):
    """Samples whose page sets are decoded."""
    found = []
    original = SessionReader.page_set

    def page_set(self, sample, process):
        found.append(sample)
        return original(self, sample, process)

    monkeypatch.setattr(SessionReader, "page_set", page_set)
    return found


def whole(reader: SessionReader) -> Presenter:
    """The whole session in one picture, complete."""
    presenter = Presenter(reader, follow=False)
    presenter.room = Room(COLUMNS, ROWS)
    for _ in range(20):
        presenter.view(10.0)
        if presenter.complete:
            return presenter
    raise AssertionError("the picture was never complete")


def test_no_page_set_is_decoded_for_it(path, decoded):
    reader = SessionReader(path)
    share = whole(reader).view(10.0).heat.share
    assert not decoded
    assert share.shape[1] == COLUMNS
    assert np.isfinite(share).any(axis=0).all()
    reader.close()


def test_its_columns_are_means_of_all_windows(path):
    reader = SessionReader(path)
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
        wanted = np.mean([bin_column(reader.page_set(n, process), layout) for n in windows], axis=0)
        # Ranges of the test begin and end at chunks of 64 KiB; bins within a chunk share its touches evenly.
        known = np.isfinite(wanted)
        assert (np.isfinite(heat.share[: len(known), column]) == known).all()
        total = np.where(known, wanted * layout.bin_bytes, 0).sum()
        drawn = np.where(known, heat.share[: len(known), column] * layout.bin_bytes, 0).sum()
        assert drawn == pytest.approx(total, rel=1e-3)
        assert np.abs(heat.share[: len(known), column] - wanted)[known].max() < 0.1
    reader.close()


def test_a_recorder_that_was_killed_leaves_a_whole_picture(tmp_path):
    stream = (message for message in sessions.messages(SAMPLES - 30) if not isinstance(message, End))
    reader = SessionReader(sessions.write_session(tmp_path / "s.memtui", stream))
    assert np.isfinite(whole(reader).view(10.0).heat.share).any(axis=0).all()
    reader.close()
