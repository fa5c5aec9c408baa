"""What the supervisor in the background, the recorder and a recording say comes back as it was sent."""

from __future__ import annotations

import json

import pytest

from memtui.recording.control import Ended, RecordingState
from memtui.recording.progress import Progress
from memtui.recording.registry import Running
from memtui.recording.supervisor import start_message
from memtui.recording.supervisor.start_message import Began, Failed, Interrupted, RecordedAlready

RUNNING = Running(7, 8, 9, 10, "/s.memtui", "python train.py", 1.5, "/c", "host", "/t")


@pytest.mark.parametrize(
    "message",
    [Began("/s", "", 7, "abcd", "note", ""), RecordedAlready(RUNNING, 8), Interrupted(), Failed("no", 2)],
)
def test_start_messages(message):
    line = start_message.to_line(message)
    assert line.count(b"\n") == 1
    assert start_message.from_dict(json.loads(line)) == message


@pytest.mark.parametrize(
    "progress", [Progress(), Progress(3, 4096, 8192, 10**9, 77, True), Progress(ending=("condition", "wss > 1G"))]
)
def test_progress(progress):
    assert Progress.from_line(progress.to_line()) == progress


@pytest.mark.parametrize("progress", [None, Progress(3, None, 8192, 10**9, 77, True)])
def test_the_state_of_a_recording(progress):
    state = RecordingState(progress, "/log", 10**9, None, True)
    assert RecordingState.from_dict({"ok": True} | json.loads(json.dumps(state.to_dict()))) == state


def test_the_state_of_another_version_is_an_error_and_not_a_traceback():
    with pytest.raises(ValueError, match="version"):
        RecordingState.from_dict({"ok": True})


@pytest.mark.parametrize("ended", [Ended(), Ended(True, 3, True, "full", "the recorder was killed", 1)])
def test_how_a_recording_ended(ended):
    answer = json.loads(json.dumps(ended.to_dict()))
    assert Ended.from_dict(answer) == ended
    assert ("error" in answer["ended"]) == bool(ended.error), "an older memtui asks whether it is there"
    assert Ended.from_dict({"ok": True}) is None
    assert Ended.from_dict({"ended": {"asked": True, "new": 1}}) == Ended(asked=True)
