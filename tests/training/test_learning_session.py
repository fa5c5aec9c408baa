"""Loss and accuracy on their way into a session, and from programs that tell what cannot be."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.tracer_messages import LearningProgress
from memtui.recording.wire import Decoder, encode
from memtui.session.session import Session
from memtui.session.tables.learning import learning_records
from memtui.training.learning_curve import Curve, Point
from tests.support import sessions

ABOUT = json.dumps({"network": "fcReLu", "type": "BP"})


def message(points: int = 3, about: str = ABOUT, **changes) -> LearningProgress:
    places = np.arange(1, 3 * points + 1).reshape(points, 3).T.copy()
    return LearningProgress(**({"pid": 7, "about": about, "places": places, "values": places / 7.0} | changes))


@given(st.lists(st.tuples(st.floats(), st.floats(), st.floats()), max_size=9))
def test_frames_carry_every_number(values):
    sent = message(len(values), values=np.array(values, np.float64).reshape(-1, 3).T)
    (result,) = Decoder().feed(encode(sent))
    assert isinstance(result, LearningProgress)
    assert np.array_equal(result.places, sent.places)
    assert np.array_equal(result.values, sent.values, equal_nan=True)
    rows = learning_records(itertools.count(), sent)
    assert all(value is None or abs(value) < 1e18 for row in rows for value in (row.loss, row.accuracy, row.minimum))


@pytest.mark.parametrize(
    "wrong",
    [
        {"values": np.zeros((2, 3))},
        {"places": np.full((3, 3), -1)},
        {"places": np.zeros((3, 5000), np.int64), "values": np.zeros((3, 5000))},
        {"about": "[]"},
        {"about": "no"},
        {"about": '{"network": 3, "type": "BP"}'},
        {"about": '{"network": "x", "type": "BP", "segments": [[3]]}'},
        {"about": "x" * (1 << 19)},
    ],
)
def test_what_cannot_be_is_left_out_with_a_warning(wrong, tmp_path):
    stream = list(sessions.messages(5))
    stream[9:9] = [message(**wrong), message()]
    path = sessions.write_session(tmp_path / "s.memtui", stream)
    reader = Session(path)
    assert len(reader.training.learning()) == 3
    warnings = [event.text for event in reader.events(0, 1 << 62) if event.kind == "warning"]
    assert any("what process 7 tells of its tensors is left out" in text for text in warnings)
    reader.close()


def test_a_curve_keeps_its_points_until_somebody_takes_them():
    reported: list[LearningProgress] = []
    takes = False

    def tell(found: LearningProgress) -> bool:
        if takes:
            reported.append(found)
        return takes

    points: list[Point] = []
    curve = Curve(1, ABOUT, tell, points.append)
    for n in range(1, 4):
        curve.add(n, 1, 2.0 / n)
    curve.add_accuracy(3, 1, 50.0, None)
    assert reported == []
    takes = True
    curve.end(3, 1)
    (found,) = reported
    assert found.places[1].tolist()[-1] == 3
    assert np.isnan(found.values[2]).all()
    assert found.values[1].tolist()[-1] == 50.0
    assert sum(found.values[0][np.isfinite(found.values[0])] > 0) == len(found.values[0])
    # Who listens besides gets each point once, also those that were not taken at first.
    assert [point[:3] for point in points] == list(zip(*found.places.tolist(), strict=True))
