"""The pane of the program's output: opened, followed, scrolled and left, at every size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual import events

from memtui.core.program_log import log_path
from memtui.tui.screens.help import HelpScreen
from memtui.widgets.views.memory import State
from tests.support.screen_driver import held, running
from tests.support.screen_fakes import FakeSession
from tests.support.screen_text import screen_lines

SIZES = [(210, 60), (120, 36), (80, 24), (60, 16)]


def printing(folder: Path, text: str | bytes | None, *, live: bool = False) -> tuple[FakeSession, Path]:
    """A session, and the log beside it."""
    session = held(live=live)
    session.path = folder / "s.memtui"
    log = log_path(session.path)
    if text is not None:
        log.write_bytes(text.encode() if isinstance(text, str) else text)
    return session, log


def counted(count: int) -> str:
    return "".join(f"line {n}\n" for n in range(count))


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("size", SIZES)
async def test_it_shows_the_last_lines_and_gives_the_panels_back(size, live, tmp_path):
    session, _ = printing(tmp_path, counted(200), live=live)
    async with running(session, live=live, size=size) as d:
        await d.settle()
        before = d.text
        await d.press("o")
        await d.until(lambda: "line 199" in d.text)
        lines = screen_lines(d.app)
        assert len(lines) == size[1]
        assert {len(line) for line in lines} == {size[0]}
        assert "working set" in d.text, "the graph stays"
        assert not any(label in d.text for label in ("where and when", "address ranges", "reuse distance"))
        shown = [line.strip("│ ") for line in lines if line.startswith("│line ")]
        assert shown == [f"line {n}" for n in range(200 - len(shown), 200)]
        assert len(shown) >= (size[1] - 2) * 0.5 - 2
        assert str(log_path(session.path).name) in d.text
        await d.press("o")
        await d.until(lambda: d.text == before)
        await d.press("o", "escape")
        await d.until(lambda: d.text == before)


async def test_it_follows_while_the_log_grows_also_when_the_session_does_not(tmp_path):
    session, log = printing(tmp_path, counted(3))
    async with running(session) as d:
        await d.press("o")
        await d.until(lambda: "line 2" in d.text)
        with log.open("a") as file:
            file.write(counted(100))
        await d.until(lambda: "line 99" in d.text)
        with log.open("a") as file:
            file.write("  1%|#   |\r 99%|####|")
        await d.until(lambda: " 99%|####|" in d.text)
        assert "1%|#   |" not in d.text


async def test_keys_and_wheel_scroll_it_and_nothing_else(tmp_path):
    session, log = printing(tmp_path, counted(500))
    async with running(session, size=(80, 24)) as d:
        await d.settle()
        moment = d.view.header.position_s
        await d.press("o")
        await d.until(lambda: "line 499" in d.text)
        for keys, first in (("home", 0), ("down", 1), ("up", 0), ("pagedown", 10), ("pageup", 0)):
            await d.press(keys)
            await d.until(lambda first=first: d.view.output.first == first)
            assert f"│line {first} " in d.text
        assert "End follows it again" in d.text
        with log.open("a") as file:
            file.write("line 500\n")
        await d.until(lambda: d.view.output.total == 501)
        assert "│line 0 " in d.text, "what is read does not run away"
        output = d.screen.panels.output
        output.post_message(events.MouseScrollDown(output, 5, 5, 0, 1, 0, False, False, False))
        await d.until(lambda: d.view.output.first == 3)
        await d.press("end")
        await d.until(lambda: d.view.output.follows and "line 500" in d.text)
        assert d.view.header.position_s == moment
        assert d.view.header.state is State.PAUSED


async def test_another_panel_takes_its_place(tmp_path):
    session, _ = printing(tmp_path, counted(5))
    async with running(session, size=(80, 24)) as d:
        for key, label in (("3", "address ranges"), ("p", "processes"), ("tab", "power")):
            await d.press("o")
            await d.until(lambda: "line 4" in d.text)
            await d.press(key)
            await d.until(lambda label=label: "┌ " + label in d.text and "line 4" not in d.text)


async def test_nothing_is_redrawn_when_nothing_changed(tmp_path):
    session, log = printing(tmp_path, counted(50))
    async with running(session) as d:
        await d.press("o")
        await d.until(lambda: "line 49" in d.text)
        await d.settle()
        refreshed: list[object] = []
        d.screen.panels.output.refresh = lambda *regions, **_: refreshed.append(regions)
        await d.pilot.pause(0.5)  # ten times the refresh
        assert refreshed == []
        with log.open("a") as file:
            file.write("line 50\n")
        await d.until(lambda: refreshed)


@pytest.mark.parametrize("live", [True, False])
async def test_hostile_output_is_only_words(live, tmp_path):
    hostile = (
        b"\x1b]52;c;cm0gLXJmIC8=\x07\x1b[31mred\x1b[0m\n\x1b]52;c;not whole\n\x07\x9b2J\x00\x7f\xff\n"
        b"[bold]markup[/bold] [@click=app.quit]x[/]\n\xe2\x80\xae right to left\n" + b"Z\xcc\x81" * 9 + b"\n"
    )
    session, _ = printing(tmp_path, hostile, live=live)
    async with running(session, live=live, size=(120, 36)) as d:
        await d.press("o")
        await d.until(lambda: "markup" in d.text)
        assert all(line.isprintable() for line in d.text.splitlines())
        spelled = (r"\x1b]52;c;not whole", r"\x07\x9b2J\x00\x7f\xff", "<U+202E>", "<U+0301>")
        for label in ("│red ", "[bold]markup[/bold] [@click", *spelled):
            assert label in d.text
        assert "cm0gLXJmIC8" not in d.text
        assert {len(line) for line in screen_lines(d.app)} == {120}


@pytest.mark.parametrize("kind", ["nothing", "link", "pipe"])
@pytest.mark.parametrize("size", SIZES)
async def test_where_there_is_none_one_sentence_says_why(size, kind, tmp_path):
    session, log = printing(tmp_path, None)
    if kind == "link":
        (tmp_path / "secret").write_text("the secret")
        log.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(log)
    async with running(session, size=size) as d:
        await d.press("o")
        refused = kind in ("link", "pipe")
        why = "s.memtui.log is not opened" if refused else "there is no s.memtui.log beside the session"
        await d.until(lambda: why in " ".join(d.text.replace("│", " ").split()))
        assert "the secret" not in d.text
        assert {len(line) for line in screen_lines(d.app)} == {size[0]}


async def test_ascii_and_no_colour(tmp_path):
    session, _ = printing(tmp_path, "50%|█████     | é\n")
    async with running(session, size=(80, 24), color="none", ascii_only=True) as d:
        await d.press("o")
        await d.until(lambda: "50%" in d.text)
        assert d.text.isascii()


async def test_a_resize_and_help(tmp_path):
    session, _ = printing(tmp_path, counted(3) + "x" * 150 + "\n")
    async with running(session, size=(80, 24)) as d:
        await d.press("o")
        await d.until(lambda: "│" + "x" * 78 + "│" in d.text)
        await d.pilot.resize_terminal(210, 60)
        await d.until(lambda: "│" + "x" * 150 + " " in d.text)
        await d.pilot.resize_terminal(50, 10)
        await d.until(lambda: "memtui needs" in d.text)
        await d.pilot.resize_terminal(120, 36)
        await d.until(lambda: "x" * 118 in d.text)
        await d.press("question_mark")
        assert isinstance(d.app.screen, HelpScreen)
        assert "Output of the program" in d.text
        await d.press("escape")
        await d.press("colon", *"output of", "enter")
        await d.until(lambda: "address ranges" in d.text)


async def test_nothing_printed_yet(tmp_path):
    session, _ = printing(tmp_path, "")
    async with running(session) as d:
        await d.press("o")
        await d.until(lambda: "the program has printed nothing yet" in d.text)
