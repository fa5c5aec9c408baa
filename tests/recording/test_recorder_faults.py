"""The recorder as a process of its own, of which a call fails: one line, an exit code, and what was committed is there.

``tests/session/test_session_faults.py`` makes each call of the writer fail in turn; here are some of each kind, early
and late, and what the user sees of them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memtui.core.samples import Window
from memtui.recording.recorder.__main__ import NO_MEMORY
from memtui.recording.wire import encode
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from tests.support import fault_calls, fault_library
from tests.support.folders import names_in
from tests.support.hostile_sessions import SAMPLES, small_stream
from tests.support.session_faults import contents

pytestmark = pytest.mark.real_clock(alone=False)

EARLY = 5  # windows that are committed before the others are sent
ONCE, FOR_EVER = False, True


@dataclass(frozen=True)
class Case:
    """A call that fails: which one of all that a whole recording makes, from 0 to 1."""

    kind: str
    where: float
    for_ever: bool
    half: bool = False
    code: str = fault_calls.SQLITE

    def __str__(self) -> str:
        often, half = "for ever" if self.for_ever else "once", " half done" if self.half else ""
        return f"{self.kind} {self.where}{half} {often}{'' if self.code else ' of all'}"


CASES = (
    Case("read", 0, ONCE),
    Case("read", 0.9, FOR_EVER),
    Case("write", 0, FOR_EVER),
    Case("write", 0.2, ONCE),
    Case("write", 0.6, FOR_EVER, half=True),
    Case("write", 0.75, ONCE, half=True),
    Case("write", 0.97, FOR_EVER),
    Case("sync", 0, ONCE),
    Case("sync", 0.75, FOR_EVER),
    Case("size", 0, FOR_EVER),
    Case("size", 1, FOR_EVER),
    Case("memory", 0, ONCE),
    Case("memory", 0.4, FOR_EVER),
    Case("memory", 0.77, FOR_EVER),
    Case("memory", 0.873, ONCE),
    Case("memory", 0.9, ONCE),
    Case("memory", 0.95, FOR_EVER),
    Case("memory", 0.997, FOR_EVER),
    Case("open", 0, ONCE),
    Case("open", 0.85, FOR_EVER),
    Case("unlink", 0, FOR_EVER),
    Case("unlink", 1, FOR_EVER),
    Case("map", 0, FOR_EVER),
    Case("map", 1, FOR_EVER),
    Case("memory", 0.995, FOR_EVER, code=fault_calls.EVERYTHING),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a recorder and its session."""

    path: Path
    code: int
    errors: str
    calls: dict[str, int]  # of each kind; empty where they were not counted to the end
    committed: int  # windows, as the recorder said
    samples: list[Any]
    whole: bool  # it has its end
    refused: str  # why the session cannot be read

    @property
    def what(self) -> str:
        """In a word: whole, unfolded, ended, nothing (recorded) or refused."""
        if self.code != 1:
            return "refused" if self.code else "whole"
        return "nothing" if not self.samples else "unfolded" if self.whole else "ended"


def record(faults: Path, folder: Path, number: int, case: Case | None, code: str = fault_calls.SQLITE) -> Outcome:
    """Record a small stream; the ``number``th call of the kind fails."""
    folder.mkdir()
    path, counts = folder / "place" / "s.memtui", folder / "counts"
    path.parent.mkdir()
    messages = list(small_stream())
    cut = [index for index, message in enumerate(messages) if isinstance(message, Window)][EARLY - 1] + 1
    more = {"number": number, "for_ever": case.for_ever, "half": case.half} if case else {}
    environment = fault_library.environment(faults, counts, case.kind if case else None, code=code, **more)
    words = [sys.executable, "-P", "-m", "memtui.recording.recorder", "--", str(path)]
    errors = (folder / "errors").open("w+")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    committed = 0
    with errors, subprocess.Popen(words, env=environment, stderr=errors, **pipes) as recorder:
        with contextlib.suppress(BrokenPipeError):
            recorder.stdin.write(b"".join(map(encode, messages[:cut])))
            recorder.stdin.flush()
            for line in recorder.stdout:
                committed = json.loads(line)["samples"] if line.startswith(b"{") else 0
                if committed == EARLY:
                    break
            recorder.stdin.write(b"".join(map(encode, messages[cut:])))
            recorder.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            recorder.stdin.close()
        for line in recorder.stdout:
            committed = json.loads(line)["samples"]
        recorder.wait(60)
        errors.seek(0)
        says = errors.read()
    samples, whole, refused = [], False, ""
    try:
        samples = contents(path)
        session = Session(path)
        whole = session.end is not None
        session.close()
    except SessionError as error:
        refused = str(error)
    calls = json.loads(counts.read_text() or "{}")
    return Outcome(path, recorder.returncode, says, calls, committed, samples, whole, refused)


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """The library that makes calls fail."""
    return fault_library.build(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def sound(faults, tmp_path_factory):
    """A recording without a fault, with the calls of SQLite, and one with those of the whole process."""
    folder = tmp_path_factory.mktemp("sound")
    return {code: record(faults, folder / f"of{code}", 0, None, code) for code in (fault_calls.SQLITE, "")}


@pytest.fixture(scope="module")
def outcomes(faults, sound, tmp_path_factory):
    """What became of each recorder; a few at once, because each waits half a second for a commit."""
    folder = tmp_path_factory.mktemp("cases")

    def outcome(case: Case) -> Outcome:
        number = max(1, round(case.where * sound[case.code].calls[case.kind]))
        return record(faults, folder / str(case), number, case, case.code)

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(CASES, pool.map(outcome, CASES), strict=True))


def test_a_recorder_without_a_fault_records_all(sound):
    for outcome in sound.values():
        assert (outcome.code, outcome.errors, len(outcome.samples), outcome.whole) == (0, "", SAMPLES, True)
        assert min(outcome.calls.values()) > 0, "every kind of call is made"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_ends_with_a_line_and_leaves_what_was_committed(case, outcomes, sound):
    outcome, truth = outcomes[case], sound[fault_calls.SQLITE].samples
    assert "Traceback" not in outcome.errors
    assert outcome.samples == truth[: len(outcome.samples)], "whole windows, as they were recorded"
    assert len(outcome.samples) >= outcome.committed
    if case.code == fault_calls.EVERYTHING:
        assert (outcome.code, outcome.errors.encode(), outcome.refused) == (1, NO_MEMORY, "")
        return
    assert outcome.calls[case.kind] >= max(1, round(case.where * sound[case.code].calls[case.kind])), "it did fail"
    if outcome.what == "whole":
        assert (outcome.errors, len(outcome.samples), outcome.whole) == ("", SAMPLES, True)
        return
    assert outcome.errors.startswith(f"{outcome.path}: ")
    assert outcome.errors.count("\n") == 1
    if outcome.what in ("refused", "nothing"):
        assert ("cannot be written: " if outcome.code == 2 else "nothing was recorded: ") in outcome.errors
        assert names_in(outcome.path.parent) == [], "the next recording may have the name"
    else:
        says = "the recording ended, and what was committed before can be read: "
        assert (says if outcome.what == "ended" else "both files are needed") in outcome.errors
        assert names_in(outcome.path.parent)[0] == outcome.path.name
    if case.kind == "memory":
        assert "Cannot allocate memory; end something, or ask for less" in outcome.errors


def test_every_way_to_end_was_met(outcomes):
    assert {outcome.what for outcome in outcomes.values()} == {"whole", "unfolded", "ended", "nothing", "refused"}
