"""Measuring with a screen: the process that measures, what is said before the screen is there, and how it ends."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memtui.core import progress_line
from memtui.core.console import Console
from memtui.core.errors import INTERRUPTED, UserError
from memtui.placement.profiling import screen
from memtui.placement.profiling.planner import Request
from memtui.placement.profiling.progress import ProfileProgress
from memtui.placement.profiling.screen import MeasuringProcess, profile_on_screen
from memtui.placement.store import ProfileFile
from tests.support.placement_profiles import CASE, written

REQUEST = Request("mlp", (), ("isolated",), 0.1, 1, 0, 1)


def poll_until(measured: MeasuringProcess, role: str = "", text: str = "") -> tuple[str, str]:
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        shown = measured.poll(0.1)
        if (text and shown[0] == text) or (not text and not measured.goes_on):
            break
    measured.process.end()
    assert shown[1] == role
    return shown


def test_the_newest_sentence_is_shown_while_it_measures():
    def work(progress: ProfileProgress) -> list[str]:
        progress.phase("starting PyTorch")
        progress.phase("making the pools")
        time.sleep(60)
        return []

    measured = MeasuringProcess(work)
    assert measured.text == "starting PyTorch ..."
    assert poll_until(measured, "live", "making the pools ...")
    assert measured.process.error is None


def refused(progress: ProfileProgress) -> list[str]:
    raise UserError("there is no pool numa:99")


def vanished(progress: ProfileProgress) -> list[str]:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("work", "text", "role"),
    [
        (lambda progress: ["done"], "finished; q leaves", "live"),
        (refused, "there is no pool numa:99", "warning"),
        (vanished, "it ended without a word", "warning"),
    ],
)
def test_how_it_ended_is_said(work, text, role):
    assert poll_until(MeasuringProcess(work), role)[0] == text


@pytest.fixture
def on_screen(tmp_path, monkeypatch) -> Callable[..., Any]:
    """Runs the command; in place of the screen a function looks at the file and the sentences."""
    monkeypatch.setattr(screen, "prepare_screen", lambda args: None)
    # The line of a terminal, from its first moment: whole lines in a log.
    monkeypatch.setattr(progress_line, "LOG_EVERY_S", 0.05)

    def run(work: Callable[[ProfileProgress], list[str]], look: Callable[..., int], **options: Any) -> int:
        monkeypatch.setattr(screen, "show_profile", look)
        args = argparse.Namespace(**({"output": tmp_path / "p.memtui", "force": False, "file": "mlp"} | options))
        return profile_on_screen(args, REQUEST, work, Console("place"))

    return run


def measure(path: Path, *, then_s: float = 0.0) -> Callable[[ProfileProgress], list[str]]:
    def work(progress: ProfileProgress) -> list[str]:
        progress.phase("recording a step of mlp")
        time.sleep(0.3)
        written(path)
        time.sleep(then_s)
        return ["isolated: 2 configurations"]

    return work


def until_finished(file: ProfileFile, poll: Callable[[float], tuple[str, str]]) -> int:
    while not poll(0.1)[0].startswith("finished"):
        pass
    assert len(file.profile().samples) == len(CASE.samples)
    return 0


def test_the_screen_comes_when_there_is_a_profile_and_the_result_is_printed(on_screen, tmp_path, capsys):
    path = tmp_path / "p.memtui"
    assert on_screen(measure(path, then_s=0.3), until_finished) == 0
    output = capsys.readouterr()
    assert output.out == "isolated: 2 configurations\n"
    assert output.err.startswith("memtui place: profiling mlp: "), "one line of progress for all commands"
    assert "recording a step of mlp ..." in output.err
    assert "\x1b" not in output.err


def test_leaving_the_screen_ends_the_measuring(on_screen, tmp_path, capsys):
    code = on_screen(measure(tmp_path / "p.memtui", then_s=60), lambda file, poll: 0)
    assert code == INTERRUPTED
    output = capsys.readouterr()
    assert output.out == ""
    assert "broken off, unfinished: " in output.err


def test_an_error_before_the_screen_is_the_error_of_the_command(on_screen):
    with pytest.raises(UserError, match="there is no pool numa:99"):
        on_screen(refused, lambda file, poll: pytest.fail("there is nothing to show"))
    with pytest.raises(UserError, match="measuring ended without a word"):
        on_screen(vanished, lambda file, poll: pytest.fail("there is nothing to show"))


def test_an_interrupt_says_that_nothing_is_there(on_screen, monkeypatch, capsys):
    def interrupted(self: MeasuringProcess, seconds: float) -> tuple[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(MeasuringProcess, "poll", interrupted)
    with pytest.raises(KeyboardInterrupt):
        on_screen(lambda progress: [time.sleep(60)], lambda file, poll: 0)
    assert capsys.readouterr().err == "memtui place: broken off before there was a time to keep\n"


def test_force_begins_anew(on_screen, tmp_path):
    path = tmp_path / "p.memtui"
    written(path)

    def work(progress: ProfileProgress) -> list[str]:
        return ["nothing was there" if not path.exists() else "the old profile"]

    assert on_screen(work, lambda file, poll: 0, force=True) == 0
    assert not path.exists()
