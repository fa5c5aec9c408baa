"""The screen of ``memtui compare`` on sessions that are not trainings, and on both kinds together."""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import replace

import pytest

from memtui.analysis.resident import PSS, SUM_OF_RSS
from memtui.core.errors import UserError
from memtui.reports.comparison.text import read, same_windows
from memtui.reports.redact import open_source
from memtui.tui.screens.comparison import ComparisonApp, ComparisonScreen, _windows
from memtui.tui.screens.help import HelpScreen
from tests.support.allocation_screen import step, until
from tests.support.compared_sessions import long, short
from tests.support.goldens import compare
from tests.support.learning_screen import all_told
from tests.support.screen_text import screen_lines, screen_text
from tests.support.sessions import messages, write_session

SIZES = ((210, 60), (120, 36), (80, 24))


def trained():
    stream = list(messages(40))
    stream[9:9] = [*all_told("BP"), step(20)]
    return stream


@asynccontextmanager
async def compared(tmp_path, streams=None, size=(120, 36), derive=None, **how):
    streams = streams or {"trained": trained(), "fine": short(tracker="idle"), "coarse": long()}
    paths = [write_session(tmp_path / f"{name}.memtui", stream) for name, stream in streams.items()]
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(open_source(path))) for path in paths]
        sessions = read(readers, paths)
        same = same_windows(sessions, readers)
    first = "memtui needs" if size < (60, 16) else "compare"
    app = ComparisonApp(sessions, derive or (None if same is None else lambda: same), **how)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ComparisonScreen) and first in screen_text(app))
        if same is not None:
            await until(pilot, lambda: "merging windows" not in screen_text(app))
        await pilot.pause(0.1)
        yield app, pilot


async def test_memory_lies_over_one_another(tmp_path):
    async with compared(tmp_path, {"a": short(), "b": short(30)}) as (app, pilot):
        shown = screen_text(app)
        assert "WSS, windows of 200 ms" in shown
        assert "touches held, windows of 200 ms" in shown
        assert "A 512 KiB  B 512 KiB" in shown
        assert "12.0" in shown or "12 ┘" in shown  # seconds of the longer one
        assert "Tab" not in shown  # there is no training
        assert " i " not in shown.splitlines()[-1]
        await pilot.press("x")
        await until(pilot, lambda: "share of the session" in screen_text(app))
        await pilot.press("m")
        await until(pilot, lambda: "┌ VM ─" in screen_text(app))
        await pilot.press("r")
        await until(pilot, lambda: "touches missed" in screen_text(app))
        await pilot.press("tab")
        await pilot.pause(0.1)
        assert "WSS, windows of 200 ms" in screen_text(app)


async def test_windows_of_one_length_on_demand(tmp_path):
    async with compared(tmp_path) as (app, pilot):
        shown = screen_text(app)
        assert "not directly comparable" in " ".join(shown.split())
        assert "WSS, windows of 200 ms to 1.0 s" in shown
        row = next(line for line in screen_lines(app) if line.startswith("│ C  coarse"))
        assert "1.00 MiB" in row
        assert row.count("%") == 1  # of RSS, which belongs to no window
        await pilot.press("i")
        await until(pilot, lambda: "WSS, windows of 1.0 s" in screen_text(app))
        assert "windows merged to 1.0 s" in screen_lines(app)[0]
        row = next(line for line in screen_lines(app) if line.startswith("│ C  coarse"))
        assert row.count("%") == 2
        await pilot.press("i")
        await until(pilot, lambda: "WSS, windows of 200 ms to 1.0 s" in screen_text(app))


async def test_what_cannot_be_merged_says_why(tmp_path):
    def broken():
        raise UserError("is damaged: page sets")

    async with compared(tmp_path, derive=broken) as (app, pilot):
        await until(pilot, lambda: "cannot be merged to one length: is damaged: page sets" in screen_text(app))
        await pilot.press("i")
        await pilot.pause(0.1)
        assert "WSS, windows of 200 ms to 1.0 s" in screen_text(app)


@pytest.mark.parametrize("size", [(120, 40), (100, 30), (80, 24)])
async def test_a_note_longer_than_its_lines_goes_on_with_n(tmp_path, size):
    why = "is damaged: page sets of the windows 1, 2, 3, 4, 5, 6, 7 and 8 cannot be read any more " * 3 + "at all"

    def broken():
        raise UserError(why)

    async with compared(tmp_path, size=size, derive=broken) as (app, pilot):
        await until(pilot, lambda: "1 of " in screen_text(app))
        read: list[str] = []
        for _ in range(12):
            lines = [line.strip() for line in screen_lines(app)[-3:-1]]
            if lines[0].startswith("2 of ") or lines[1].startswith("2 of "):
                break
            at = next(n for n, line in enumerate(lines) if line.startswith("1 of "))
            read += " ".join(lines[at:]).split()[3:]
            await pilot.press("n")
            await pilot.pause(0.05)
        whole = " ".join(word for word in read if word != "…")
        assert whole.startswith("windows differ (A and B 200 ms, C 1.0 s): working sets and reuse")
        assert whole.endswith(f"they cannot be merged to one length: {why}")


def test_windows_of_many_lengths_fit_their_column():
    class Windows:
        def __init__(self, *interval_s: float) -> None:
            self.interval_s = interval_s

    lengths = [(0.2, 0.2), (0.2, 20.0), (0.2, 9.7), (0.25, 9.66), (0.2, 121.0), (1.0, 2.0)]
    texts = [_windows(Windows(*interval_s)) for interval_s in lengths]
    assert texts == ["200 ms", "0.2-20 s", "0.2-9.7 s", "0.25-9.7s", "0.2-121 s", "1-2 s"]
    assert _windows(None) == "n/a"


async def test_a_training_beside_a_session_that_is_none(tmp_path):
    async with compared(tmp_path) as (app, pilot):
        assert "compare   3 sessions" in screen_lines(app)[0]
        await pilot.press("tab")
        await until(pilot, lambda: "compare   3 trainings" in screen_lines(app)[0])
        shown = screen_text(app)
        assert "A 0.08205" in shown
        assert "fine: no training" in shown
        await pilot.press("x", "m", "tab")
        await until(pilot, lambda: "compare   3 sessions" in screen_lines(app)[0])


async def test_differences_and_notes(tmp_path):
    async with compared(tmp_path, size=(80, 24)) as (app, pilot):
        assert "1 of " in screen_text(app)
        await pilot.press("n")
        await until(pilot, lambda: "2 of " in screen_text(app))
        await pilot.press("d")
        await until(pilot, lambda: "differences" in screen_text(app))
        assert "B fine" in screen_text(app)
        assert "C coarse" not in screen_text(app)  # no room
        await pilot.press("right")
        await until(pilot, lambda: "C coarse" in screen_text(app))
        assert "A trained" in screen_text(app)
        await pilot.press("right", "left", "left", "pagedown", "down", "up", "pageup")
        await until(pilot, lambda: "B fine" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "│ A  trained" in screen_text(app))
        await pilot.press("d", "d")
        await until(pilot, lambda: "│ A  trained" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: not app.is_running)


@pytest.mark.parametrize(("kinds", "name"), [((PSS, PSS), "PSS"), ((PSS, SUM_OF_RSS), "resident")])
async def test_the_table_has_the_resident_memory_of_the_chart(tmp_path, kinds, name):
    paths = [write_session(tmp_path / f"{name}.memtui", short()) for name in "ab"]
    sessions = [as_tree(session, kind) for session, kind in zip(compared_sessions(paths), kinds, strict=True)]
    async with ComparisonApp(sessions).run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "WSS 95 %" in screen_text(pilot.app))
        lines = screen_lines(pilot.app)
        head = next(line for line in lines if "WSS 95 %" in line)
        assert f" {name} " in head
        first = next(line for line in lines if "│ A  a" in line)
        assert "48.0 MiB" in first, "its PSS"
        second = next(line for line in lines if "│ B  b" in line)
        assert ("48.0 MiB" if kinds[1] == PSS else "64.0 MiB") in second


def compared_sessions(paths):
    with ExitStack() as stack:
        return read([stack.enter_context(closing(open_source(path))) for path in paths], paths)


def as_tree(session, kind):
    """Return the session as one of several processes, of whose RSS a quarter is shared."""
    figures = dict(session.memory.figures) | {"pss_median_bytes": 48 << 20 if kind == PSS else None}
    return replace(session, memory=replace(session.memory, resident=kind, figures=figures))


async def test_help_is_about_these_keys(tmp_path):
    async with compared(tmp_path) as (app, pilot):
        await pilot.press("question_mark")
        await until(
            pilot, lambda: isinstance(app.screen, HelpScreen) and "Sessions over one another" in screen_text(app)
        )
        shown_text = screen_text(app)
        assert "windows of one length" in shown_text
        assert "jump to a typed time" not in shown_text  # a key that is not there
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ComparisonScreen))
        await pilot.press("q")


async def test_names_of_others_cannot_write_on_the_screen(tmp_path):
    evil = "\x1b[31mred\x1b]0;t\x07\r\n\u202e"
    stream = list(messages(10))
    from dataclasses import replace

    stream[0] = replace(stream[0], target=replace(stream[0].target, command=evil), tracker=evil)
    async with compared(tmp_path, {"a": short(), "b": stream}, size=(210, 60)) as (app, pilot):
        for _ in range(3):
            assert all(char.isprintable() for line in screen_lines(app) for char in line)
            await pilot.press("n", "d")
            await pilot.pause(0.1)


@pytest.mark.parametrize("how", [{"ascii_only": True}, {"color": "16"}, {"color": "none"}])
@pytest.mark.parametrize("size", [(120, 36), (80, 24), (60, 16), (50, 12)])
async def test_it_fits(tmp_path, size, how):
    async with compared(tmp_path, size=size, **how) as (app, pilot):
        for keys in ((), ("d",), ("tab",), ("d", "i")):
            await pilot.press(*keys)
            await pilot.pause(0.1)
            lines = screen_lines(app)
            assert len(lines) == size[1]
            assert {len(line) for line in lines} == {size[0]}
            assert "q ends" in lines[-1] or size == (50, 12)
            if how.get("ascii_only"):
                assert "\n".join(lines).isascii()


async def test_without_colour_lines_are_letters(tmp_path):
    async with compared(tmp_path, color="none") as (app, _):
        shown = screen_text(app)
        assert "CCCC" in shown
        assert "AAAA" in shown


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_screen_is_the_picture(tmp_path, size):
    async with compared(tmp_path, size=size) as (app, pilot):
        compare(f"compare-memory-{size[0]}x{size[1]}", "\n".join(screen_lines(app)))
        await pilot.press("d", "i")
        await until(pilot, lambda: "differences" in screen_text(app) and "windows merged" in screen_text(app))
        await pilot.pause(0.1)
        compare(f"compare-differences-{size[0]}x{size[1]}", "\n".join(screen_lines(app)))


async def test_the_screen_in_ascii_is_the_picture(tmp_path):
    async with compared(tmp_path, ascii_only=True, color="none") as (app, _):
        compare("compare-memory-120x36-ascii", "\n".join(screen_lines(app)))
