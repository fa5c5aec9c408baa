"""What screens made of parts have in common: a notice where there is no room, the cursor of a session, help."""

from __future__ import annotations

import pytest
from textual.app import App

from memtui.tui.screens.parts_screen import CursorScreen, FollowingScreen, PartsScreen
from memtui.widgets.label import TextLine
from memtui.widgets.table import Column, Listing, ListingView, Row
from tests.support.allocation_screen import until

pytestmark = pytest.mark.asyncio
ROWS = tuple(Row(number, (str(number),)) for number in range(40))


class Numbers(CursorScreen):
    """A list of numbers; asks the presenter for nothing but moves of its cursor."""

    def __init__(self) -> None:
        self.actions, self.found, self.heights = list[object](), 0, list[int]()
        super().__init__(self.actions.append, Listing(ListingView("numbers", (Column("number", 0),), ROWS)))

    @property
    def parts(self):
        return (self.rows,)

    def share_rows(self, height):
        self.heights.append(height)
        self.rows.styles.height = height

    def fill(self):
        pass

    def find(self):
        self.found += 1


async def test_a_notice_stands_in_the_place_of_the_parts_where_there_is_no_room():
    screen = Numbers()
    async with App().run_test(size=(50, 10)) as pilot:
        pilot.app.push_screen(screen)
        await until(pilot, lambda: screen.notice.display)
        assert not screen.rows.display
        await pilot.resize_terminal(100, 30)
        await until(pilot, lambda: screen.rows.display)
        assert not screen.notice.display
        assert screen.heights[-1] == 30


async def test_keys_of_the_cursor_move_it_and_find_its_data_anew():
    screen = Numbers()
    async with App().run_test(size=(100, 30)) as pilot:
        pilot.app.push_screen(screen)
        await until(pilot, lambda: screen.found > 0)
        before = screen.found
        await pilot.press("left", "space", "end")
        assert len(screen.actions) == 3
        assert screen.found >= before + 3
        await pilot.press("down", "down", "up")
        assert screen.rows.selected == 0
        await pilot.press("pagedown")
        assert screen.rows.selected == screen.rows.in_sight


async def test_under_another_screen_nothing_is_found():
    screen = Numbers()
    async with App().run_test(size=(100, 30)) as pilot:
        pilot.app.push_screen(screen)
        await until(pilot, lambda: screen.found > 0)
        pilot.app.push_screen(Numbers())
        await pilot.pause()
        before = screen.found
        screen.update_view()
        assert screen.found == before


@pytest.mark.parametrize("name", ["", "stacks"])
async def test_only_a_screen_with_help_takes_the_key_of_help(name, monkeypatch):
    monkeypatch.setattr(Numbers, "HELP", name)
    screen = Numbers()
    async with App().run_test(size=(100, 30)) as pilot:
        pilot.app.push_screen(screen)
        await pilot.pause()
        await pilot.press("question_mark")
        assert (pilot.app.screen is screen) == (not name)


async def test_the_thread_of_a_screen_ends_with_it():
    class Counting(FollowingScreen):
        line = TextLine("text")
        rounds = 0

        @property
        def parts(self):
            return (self.line,)

        def share_rows(self, height):
            pass

        def fill(self):
            pass

        def follow(self):
            while not self.ended.wait(0.01):
                self.rounds += 1

    screen = Counting()
    async with App().run_test(size=(100, 30)) as pilot:
        pilot.app.push_screen(screen)
        await until(pilot, lambda: screen.rounds > 2)
        assert isinstance(screen, PartsScreen)
    assert not screen._thread.is_alive()
