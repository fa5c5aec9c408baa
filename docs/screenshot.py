"""Draws the README's picture from a real session: python docs/screenshot.py SESSION.memtui docs/screenshot.svg."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from memtui.tui.terminal import prepare

COLUMNS, ROWS = 132, 42
SECONDS = 8.0


async def draw(session: Path) -> str:
    """The memory screen on the end of the session, as SVG."""
    from memtui.session.session import Session
    from memtui.tui.session_app import MemtuiApp

    app = MemtuiApp(lambda: Session(session), live=False)
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        await pilot.pause(SECONDS)  # the heat map fills in after the rest
        return app.export_svg()


def main() -> None:
    """Write the picture."""
    prepare(color="truecolor")
    source, target = map(Path, sys.argv[1:3])
    target.write_text(asyncio.run(draw(source)))


if __name__ == "__main__":
    main()
