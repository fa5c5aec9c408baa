"""Captures in a session: they come back as they were, whatever is damaged is refused, older sessions have none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memtui.session.blobs import pack
from memtui.session.session import Session
from memtui.session.tables import captures
from memtui.session.tables.captures import capture_records, decode_capture
from tests.support.sessions import messages, write_session
from tests.support.stack_captures import same, small_capture


@pytest.mark.parametrize("row_blocks", [1, 2, 1 << 18])
def test_a_capture_comes_back(row_blocks, monkeypatch):
    monkeypatch.setattr(captures, "BLOCKS_OF_ROW", row_blocks)
    capture = small_capture()
    head, *blocks = capture_records(capture, 5)
    assert [record.id for record in blocks] == list(range(5, 5 + -(-3 // row_blocks)))
    decoded = decode_capture(head, [record.data for record in blocks], capture.stacks)
    same(decoded, capture)


@pytest.mark.parametrize(
    "damage",
    [
        {"rows": 4},
        {"start_ns": 2000},
        {"readings": b"x"},
        {"readings": pack((2,), None, np.array([5, -1, 0, 0]))},
    ],
)
def test_a_damaged_capture_is_refused(damage):
    capture = small_capture()
    head, *blocks = capture_records(capture)
    with pytest.raises(ValueError, match=r"\w"):
        decode_capture(replace(head, **damage), [record.data for record in blocks], capture.stacks)


def test_a_session_without_captures_has_none(tmp_path):
    path = write_session(tmp_path / "s.memtui", messages(3))
    assert Session(path).captures.all() == []
    assert Session(path).captures.pids() == []
