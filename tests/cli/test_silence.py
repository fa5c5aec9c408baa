"""No command is silent for long: each writes what it does while the function that may take long has not returned."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memtui.cli import main
from memtui.cli.parser import build_parser
from memtui.core import progress_line
from memtui.core.argtypes import leaves_of
from memtui.core.console import Console
from memtui.recording.control import Ended
from memtui.recording.registry import Running
from memtui.session.file_format import SessionError
from memtui.tui import app, terminal, watch
from tests.support.live import needs_tracker
from tests.support.memory_logs import mxnet_log
from tests.support.placement_profiles import written
from tests.support.repository import ROOT
from tests.support.sessions import messages, write_session

pytestmark = pytest.mark.real_clock(alone=False)

LONGEST_S = 10.0  # only without the line
SESSION, PROFILE, LOG, NEW, PID = "SESSION", "PROFILE", "LOG", "NEW", "PID"  # in place of a path, and of a PID


class Slowed:
    """Functions that return only once standard error has a line that begins like this, or after a long time."""

    def __init__(self, capsys: pytest.CaptureFixture[str], begins: str) -> None:
        self._capsys, self._begins = capsys, begins
        self.output, self.calls = "", 0

    def wait(self) -> None:
        self.calls += 1
        end_s = time.monotonic() + LONGEST_S
        while not self.is_written and time.monotonic() < end_s:
            time.sleep(0.005)

    @property
    def is_written(self) -> bool:
        self.output += self._capsys.readouterr().err
        return any(line.startswith(self._begins) for line in self.output.splitlines())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any, **options: Any) -> Any:
            self.wait()
            return function(*arguments, **options)

        return slow


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("silence")
    session = write_session(folder / "s.memtui", messages(5))
    written(folder / "p.memtui")
    (folder / "rnn.log").write_bytes(mxnet_log())
    return {SESSION: str(session), PROFILE: str(folder / "p.memtui"), LOG: str(folder / "rnn.log")}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is due after seconds comes at once."""
    monkeypatch.setattr(progress_line, "LOG_EVERY_S", 0.01)


def nothing(*_: Any, **__: Any) -> list[Any]:
    return []


# What this process does, which may take long: (command line, function, what it returns here, what is said meanwhile).
IN_THIS_PROCESS = [
    (("report", SESSION), "memtui.reports.report.build_report", None, "adding up "),
    (("report", SESSION, "--html"), "memtui.reports.export.page.page", None, "drawing "),
    (("report", PROFILE), "memtui.placement.report.facts_of", None, "adding up "),
    (("compare", SESSION, SESSION), "memtui.cli.compare_sessions.read", None, "reading 2 sessions"),
    (("compare", SESSION, SESSION), "memtui.cli.compare_sessions.same_windows", None, "reading page sets"),
    (("compare", "--json", SESSION, SESSION), "memtui.cli.compare_sessions.same_windows", None, "reading page "),
    (("compare", "--html", NEW, SESSION, SESSION), "memtui.cli.compare_sessions._write_page", nothing, "drawing "),
    (("list",), "memtui.recording.status.describe", nothing, "asking what runs"),
    (("stop", "all"), "memtui.recording.client.stop", lambda _: Ended(), "ending "),
    (
        ("doctor", "--json"),
        "memtui.cli.doctor_findings.examine",
        lambda: SimpleNamespace(to_dict=dict),
        "trying what this machine can measure",
    ),
    (("export", SESSION, "--to", "csv", "-o", NEW), "memtui.reports.export.export", nothing, "writing csv into "),
    (("import", SESSION, "-o", NEW), "memtui.formats.command.import_all", nothing, "reading"),
    (("breakdown", LOG), "memtui.reports.breakdown.command.read", None, "reading"),
    (
        ("place", "compare", PROFILE),
        "memtui.placement.command.comparisons",
        nothing,
        "comparing ways of timing in ",
    ),
    (("place", "solve", PROFILE, "--ratio", "1:1"), "memtui.placement.command.find", None, "solving "),
]


@pytest.mark.parametrize(
    ("argv", "slow", "returns", "doing"),
    IN_THIS_PROCESS,
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_that_takes_long_says_what_it_does(argv, slow, returns, doing, paths, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("memtui.cli.recordings._recordings", lambda: [Running(1, 1, 1, 1, "s.memtui")])
    monkeypatch.setattr("memtui.cli.compare_sessions._check_page", lambda *_, **__: None)
    monkeypatch.setattr("memtui.cli.export.SLOW_S", 2 * LONGEST_S)
    module, _, name = slow.rpartition(".")
    slowed = Slowed(capsys, f"memtui {argv[0]}: {doing}")
    monkeypatch.setattr(slow, slowed(returns or getattr(__import__(module, fromlist=[name]), name)))
    named = paths | {NEW: str(tmp_path / "new")}
    assert main.main([named.get(word, word) for word in argv]) == 0
    assert slowed.calls > 0
    assert slowed.is_written


# Starts a recording as a screen does, but in this process, and ends it when it has begun.
ATTACH = """
import sys, threading
from memtui.cli import main
from memtui.cli.parser import build_parser
from memtui.core import progress_line
from memtui.core.errors import UserError
from memtui.recording.supervisor.launch import Observation
from memtui.tui import terminal, watch

def start_and_end(observe):
    observe().stop()
    raise UserError("it has begun")

def write(line):
    write_line(line)
    written.set()

def wait(observation, *args):
    written.clear()
    await_recorder(observation, *args)

def read(observation, seconds):
    written.wait(10)
    return read_lines(observation, seconds)

written, progress_line.LOG_EVERY_S = threading.Event(), 0.01
write_line, progress_line.ProgressLine._write = progress_line.ProgressLine._write, write
await_recorder, Observation._await_recorder = Observation._await_recorder, wait
read_lines, Observation._read_lines = Observation._read_lines, read
terminal.require_terminal, watch.Recording = lambda: None, start_and_end
sys.exit(main.main(sys.argv[1:]))
"""


def test_the_start_of_a_recording_says_so(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as target:
        try:
            argv = ["attach", str(target.pid), "--no-sudo", "--tracker", "rss", "-o", str(tmp_path / "s.memtui")]
            done = subprocess.run(
                [sys.executable, "-c", ATTACH, *argv], capture_output=True, text=True, check=False, timeout=60
            )
        finally:
            target.kill()
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    for doing in ("starting the recorder", f"starting to watch PID {target.pid}"):
        assert any(line.startswith(f"memtui attach: {doing} (") for line in lines), lines
    assert lines[-1] == "memtui attach: it has begun"


def test_the_end_of_a_recording_says_so(tmp_path, monkeypatch, capsys):
    slowed = Slowed(capsys, "memtui attach: ending the recording")

    def left(path: Path, *, on_quit: Callable[[str], object], **_: Any) -> int:
        on_quit(terminal.QUIT)
        return 0

    monkeypatch.setattr(watch, "run_viewer", left)
    recording = SimpleNamespace(
        path=tmp_path / "s", pid=7, id="x", log=None, owner_notice="", ended=Ended, stop=slowed(lambda: None)
    )
    assert watch._view(recording, [], "", Console("attach")) == 0
    assert slowed.is_written


def test_a_session_that_its_recorder_has_not_begun_says_so(tmp_path, monkeypatch, capsys):
    slowed = Slowed(capsys, "memtui attach: opening ")

    def absent(*_: Any, **__: Any) -> None:
        raise SessionError("no such file")

    monkeypatch.setattr(app, "open_session", slowed(absent))
    monkeypatch.setattr(terminal, "require_terminal", lambda: None)
    with pytest.raises(SessionError):
        app.run_viewer(tmp_path / "s.memtui", live=True, verb="attach")
    assert slowed.is_written


STEPS = """
import time
for step in range(10**6):
    print("step", step, flush=True)
    time.sleep(0.02)
"""


IN_A_CHILD = [
    pytest.param(("train", "fcReLu", "--epochs", "1"), "training"),
    pytest.param(
        ("tune", "fcReLu", "--grid", "type=BP,DFAMEM", "--set", "epochs=1"), "training", marks=pytest.mark.slow
    ),
    pytest.param(
        ("study", "filters", "--quick", "--cpus", "1", "-o", NEW, "--", "sleep", "1"),
        "filters",
        marks=pytest.mark.slow,
    ),
    pytest.param(("calibrate", PID, "--blocks", "1", "--seconds", "1"), "watching process ", marks=needs_tracker),
]


@pytest.mark.parametrize(("argv", "doing"), IN_A_CHILD, ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_a_command_whose_child_works_says_what_it_does(argv, doing, tmp_path):
    """The same line, and the same short time, in each of its processes."""
    hurry = "from memtui.core import progress_line\nprogress_line.LOG_EVERY_S = 0.01\n"
    (tmp_path / "sitecustomize.py").write_text(hurry)
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    with (tmp_path / "log").open("wb") as log, subprocess.Popen([sys.executable, "-c", STEPS], stdout=log) as target:
        try:
            while b"step 3" not in (tmp_path / "log").read_bytes():
                time.sleep(0.01)
            words = {NEW: str(tmp_path / "new"), PID: str(target.pid)}
            done = subprocess.run(
                [sys.executable, "-m", "memtui", *(words.get(word, word) for word in argv)],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": str(tmp_path / "state")},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
        finally:
            target.kill()
    lines = done.stderr.splitlines()
    assert any(line.startswith(f"memtui {argv[0]}: {doing}") for line in lines), (done.returncode, lines[-5:])


# Where others than this module see that a command is not silent, or why it has nothing that takes long.
ELSEWHERE = {
    "bench": "tests/bench/test_command.py::test_a_log_hears_of_a_sweep_with_json",
    "place profile": "tests/placement/test_profile_command.py::test_progress_sentences",
    "attach": "test_the_start_of_a_recording_says_so",
    **dict.fromkeys(("demo", "run", "trace", "record"), "they start a recording as attach does"),
    "replay": "it opens a session as the screen of attach does: test_a_session_that_its_recorder_has_not_begun_says_so",
    "place show": "it prints what a file has",
    "mark": "one message to each recording, which is answered or given up within a second",
    "completion": "it prints a script",
}


def test_every_command_is_known_to_say_what_it_does():
    """A new one is added above, or to these with a reason."""
    words = {tuple(leaf.prog.split()[1:]) for leaf in leaves_of(build_parser())}
    seen = [argv for argv, *_ in IN_THIS_PROCESS] + [param.values[0] for param in IN_A_CHILD]
    shown = {command for command in words if any(argv[: len(command)] == command for argv in seen)}
    assert {" ".join(command) for command in words - shown} == ELSEWHERE.keys()
