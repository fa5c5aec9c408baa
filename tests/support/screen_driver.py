"""The app with an invented session, and a way to press its keys and wait for what should come."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager

from memtui.tui.screens.memory import MemoryScreen
from memtui.tui.session_app import MemtuiApp
from tests.support.screen_fakes import FakeSession
from tests.support.screen_text import screen_text


class Driver:
    """A running app and a way to wait for what should come."""

    def __init__(self, app, pilot) -> None:
        self.app, self.pilot = app, pilot

    @property
    def screen(self) -> MemoryScreen:
        return next(s for s in self.app.screen_stack if isinstance(s, MemoryScreen))

    @property
    def view(self):
        return self.screen.view

    @property
    def text(self) -> str:
        return screen_text(self.app)

    async def until(self, test, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not test():
            assert time.monotonic() < deadline, f"it did not come:\n{self.text}"
            await self.pilot.pause(0.02)

    async def settle(self, seconds: float = 60.0) -> None:
        """Wait until all page sets in sight are decoded and drawn."""
        deadline, seen, calm = time.monotonic() + seconds, "", 0
        while calm < 4:
            assert time.monotonic() < deadline, f"it goes on changing:\n{self.text}"
            await self.pilot.pause(0.1)
            calm, seen = (calm + 1 if self.text == seen else 0), self.text

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause(0.05)


@asynccontextmanager
async def running(session=None, *, live=False, size=(120, 36), **how):
    session = session or FakeSession(120)
    app = MemtuiApp(lambda: session, live=live, refresh_s=0.05, **how)
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        if size[0] >= 60:
            await driver.until(lambda: driver.view is not None and (driver.view.heat.bands or driver.view.heat.note))
        await pilot.pause(0.1)
        yield driver


def held(count: int = 120, *, live: bool) -> FakeSession:
    """A session that does not grow while it is looked at, live or over."""
    return FakeSession(count, growing=live, clock=lambda: 0.0)
