"""What is printed once the screen of a recording is left."""

from __future__ import annotations

from types import SimpleNamespace

from memtui.recording.control import Ended
from memtui.tui.watch import _what_is_left


def test_a_session_that_was_moved_away_is_not_named_and_its_reason_is_said_once(tmp_path):
    path = tmp_path / "s.memtui"
    recording = SimpleNamespace(path=path, pid=7, log=None, owner_notice="")
    moved = "s.memtui: was moved or deleted while it was recorded"
    assert _what_is_left(recording, Ended(why=moved, error=moved)) == []
    path.touch()
    assert _what_is_left(recording, Ended(why="the disk is full")) == [
        "the recording ended: the disk is full",
        f"session: {path}",
    ]
