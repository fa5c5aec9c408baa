"""The screen of a file that is being read: it paints at once, shows what came last, and ends with q or the task."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from memtui.formats.reading import FileSummary, ReadingProgress
from memtui.tui.screens.importing import ImportApp
from tests.support.allocation_screen import until
from tests.support.screen_text import screen_lines, screen_text

GIB = 1 << 30
SIZES = [(80, 24), (120, 36), (210, 60)]


class FakeTask:
    """A reading process that says what a test puts in."""

    def __init__(self) -> None:
        self.over = self.finished = False
        self.words: queue.Queue[ReadingProgress] = queue.Queue()

    def receive_messages(self, seconds: float) -> list[ReadingProgress]:
        try:
            return [self.words.get(timeout=seconds)]
        except queue.Empty:
            return []

    def send(self, *progress: Any) -> None:
        self.words.put(ReadingProgress(*progress))


@pytest.mark.parametrize("size", SIZES)
async def test_what_the_file_tells_so_far_is_shown_as_it_comes(size):
    task = FakeTask()
    app = ImportApp(task, "snapshot.pickle")
    async with app.run_test(size=size) as pilot:
        assert "memtui import  snapshot.pickle" in screen_lines(app)[0]
        assert "starting ..." in screen_lines(app)[1]
        assert "q Esc end the import: nothing is written" in screen_lines(app)[-1]
        task.send("reading", 0.25, 1 << 28, GIB, None)
        await until(pilot, lambda: " 25 %," in screen_text(app))
        assert "left of reading" in screen_lines(app)[1]
        curve = tuple(n << 20 for n in range(0, 600, 2))
        task.send(
            "reading", 0.5, GIB // 2, GIB, FileSummary("CUDA memory snapshot", 1_234_567, 1_234_000, 598 << 20, curve)
        )
        await until(pilot, lambda: " 50 %," in screen_text(app))
        head, bar, figures = screen_lines(app)[:3]
        assert "1.00 GiB   CUDA memory snapshot" in head
        assert 0.4 < bar.count("━") / (bar.count("━") + bar.count("─")) < 0.6
        assert figures.strip() == "1,234,567 allocations and 1,234,000 frees so far · peak so far 598 MiB"
        area = [line.count("█") for line in screen_lines(app)[4:-3]]
        assert area == sorted(area), "it rises from left to right"
        assert area[-1] > size[0] * 0.8
        task.send("matching frees to allocations", 0.75, GIB, GIB, None)
        await until(pilot, lambda: " 75 %, 0 s left of matching frees to allocations" in screen_text(app))
        task.send("matching frees to allocations", None, GIB, GIB, None)
        await until(pilot, lambda: "matching frees to allocations (" in screen_text(app))
        assert app.is_running
        task.over = True
        await until(pilot, lambda: not app.is_running)


@pytest.mark.parametrize("key", ["q", "escape", "ctrl+c"])
async def test_a_key_ends_it_while_the_file_is_read(key):
    task = FakeTask()
    app = ImportApp(task, "snapshot.pickle")
    async with app.run_test() as pilot:
        task.send("reading", 0.01, 1, GIB, None)
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running)


async def test_of_a_pipe_the_bytes_so_far_are_shown_and_a_small_terminal_says_so():
    task = FakeTask()
    app = ImportApp(task, "-")
    async with app.run_test(size=(80, 24)) as pilot:
        task.send("reading", None, 3 << 20, 0, FileSummary("Chrome trace"))
        await until(pilot, lambda: "reading, 3.00 MiB so far" in screen_text(app))
        assert "reading ..." in screen_text(app)
        await pilot.resize_terminal(30, 8)
        await pilot.pause()
        assert "allocations" not in screen_text(app)
