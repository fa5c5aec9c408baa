"""The line about work that takes long: in place on a terminal, whole lines elsewhere, nothing of short work."""

from __future__ import annotations

import fcntl
import io
import os
import re
import struct
import termios
import time
from collections.abc import Callable, Iterator
from typing import TextIO

import pyte
import pytest

from memtui.core.progress_line import LOG_EVERY_S, TERMINAL_FIRST_S, ProgressLine, above_line, advance, update
from tests.support.repository import ROOT

pytestmark = pytest.mark.real_clock(alone=False)

COLUMNS = 60
LONG_S = 600.0


class Screen:
    """A pseudo-terminal whose other end is read into an emulator."""

    def __init__(self) -> None:
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, COLUMNS, 0, 0))
        os.set_blocking(self.master, False)
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8")
        self.screen = pyte.Screen(COLUMNS, 10)
        self._fed = pyte.ByteStream(self.screen)
        self.output = b""

    def read(self) -> list[str]:
        """The rows that are not blank."""
        try:
            while chunk := os.read(self.master, 1 << 16):
                self.output += chunk
                self._fed.feed(chunk)
        except BlockingIOError:
            pass
        return [row.rstrip() for row in self.screen.display if row.strip()]

    def close(self) -> None:
        self.stream.close()
        os.close(self.master)


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.close()


def until(holds: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def test_a_terminal_is_told_before_two_seconds_and_a_log_before_ten() -> None:
    assert TERMINAL_FIRST_S < 2
    assert LOG_EVERY_S < 10


def test_short_work_says_nothing(screen: Screen) -> None:
    with ProgressLine("export", "writing csv", stream=screen.stream, first_s=LONG_S) as line:
        line.update("1 of 2 tables")
    screen.read()
    assert screen.output == b""


def test_on_a_terminal_one_line_is_written_over_and_gone_at_the_end(screen: Screen) -> None:
    with ProgressLine("export", "writing csv", stream=screen.stream, first_s=0.0, every_s=0.01) as line:
        assert line.on_terminal
        line.update("1 of 2 tables")
        until(lambda: any("1 of 2 tables" in row for row in screen.read()))
        line.update("2 of 2 tables", "closing")
        until(lambda: any("closing: 2 of 2 tables" in row for row in screen.read()))
        rows = screen.read()
        assert len(rows) == 1
        assert rows[0].startswith("memtui export: closing: 2 of 2 tables (")
    assert screen.read() == []
    assert b"\n" not in screen.output


def test_a_line_longer_than_the_terminal_stays_one_row_and_keeps_the_time(screen: Screen) -> None:
    with ProgressLine("export", "x" * 300, stream=screen.stream, first_s=0.0):
        until(screen.read)
        rows = screen.read()
    assert len(rows) == 1
    assert rows[0].endswith(" s)")


def test_a_share_tells_the_time_left_where_the_line_is_long_too(screen: Screen) -> None:
    with ProgressLine("import", "reading", stream=screen.stream, first_s=0.0, every_s=0.01) as line:
        line.update("x" * 300)
        advance(0.25)
        until(lambda: any(re.search(r": 25 %, \d+ s left \(\d+ s\)", row) for row in screen.read()))
        line.update("another file")  # of which nothing is done yet
        until(lambda: any(re.search(r"another file \(\d+ s\)$", row) for row in screen.read()))


def test_what_a_terminal_would_act_on_is_spelled_out(screen: Screen) -> None:
    with ProgressLine("import", "reading a\x1b]0;b\x07.log", stream=screen.stream, first_s=0.0):
        until(screen.read)
        assert "reading a\\x1b]0;b\\x07.log" in screen.read()[0]


def test_what_is_printed_meanwhile_stands_whole_above_the_line(screen: Screen) -> None:
    with ProgressLine("tune", "run 2", stream=screen.stream, first_s=0.0, every_s=0.01) as line:
        for number in range(3):
            until(lambda: any("run 2" in row for row in screen.read()))
            with line.above():
                print(f"row {number}", file=screen.stream, flush=True)
        until(lambda: any("run 2" in row for row in screen.read()))
        assert screen.read()[:3] == ["row 0", "row 1", "row 2"]
        assert len(screen.read()) == 4
    assert screen.read() == ["row 0", "row 1", "row 2"]


def test_a_process_has_one_line_whoever_speaks(screen: Screen) -> None:
    with ProgressLine("study", "run 1 of 2", stream=screen.stream, first_s=0.0, every_s=0.01):
        with ProgressLine("report", "reading", stream=screen.stream, first_s=0.0, every_s=0.01):
            update("window 3")
            until(lambda: any("memtui study: reading: window 3 (" in row for row in screen.read()))
            with above_line():
                print("a notice", file=screen.stream, flush=True)
        until(lambda: any("memtui study: run 1 of 2 (" in row for row in screen.read()))
        assert len(screen.read()) == 2
    update("nobody listens")
    with above_line():
        print("the end", file=screen.stream, flush=True)
    assert screen.read() == ["a notice", "the end"]


def test_without_a_terminal_whole_lines_come_again_and_again(capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    with ProgressLine("report", "reading run.memtui", first_s=0.01, every_s=0.01) as line:
        assert not line.on_terminal

        def three() -> bool:
            out, err = capfd.readouterr()
            assert out == ""  # which may be a JSON document
            said.extend(err.splitlines(keepends=True))
            return len(said) >= 3

        line.update("window 7 of 9")
        until(three)
    assert all(one.startswith("memtui report: reading run.memtui: window 7 of 9 (") for one in said[1:])
    assert all(one.endswith(" s)\n") for one in said)
    assert not any("\x1b" in one or "\r" in one for one in said)


def test_printing_counts_as_a_word() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, ProgressLine("tune", "run 2", stream=stream, first_s=2.0) as line:
        end_s = time.monotonic() + 2.5
        while time.monotonic() < end_s:
            time.sleep(0.02)
            with line.above():
                pass
    with os.fdopen(reading) as pipe:
        assert pipe.read() == ""


def test_silence_before_the_work_counts() -> None:
    reading, writing = os.pipe()
    before_s = time.monotonic() - LONG_S
    with (
        os.fdopen(writing, "w") as stream,
        ProgressLine("record", "recording", stream=stream, first_s=LONG_S, every_s=LONG_S, silent_since_s=before_s),
    ):
        assert os.read(reading, 100) == b"memtui record: recording (0 s)\n"
    os.close(reading)


def test_a_reader_that_left_does_not_end_the_work() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    with ProgressLine("report", "reading", stream=stream, first_s=0.0, every_s=0.01) as line:
        until(line._done.is_set)
        with line.above():
            pass
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_unwanted_it_writes_nothing(screen: Screen) -> None:
    with ProgressLine("report", "reading", wanted=False, stream=screen.stream, first_s=0.0, every_s=0.01) as line:
        line.update("x")
        with line.above():
            pass
    assert screen.read() == []


def test_what_is_printed_above_may_print_above_itself():
    stream = io.StringIO()
    with ProgressLine("bench", "measuring", stream=stream, first_s=60) as line, line.above(), above_line():
        stream.write("a notice\n")
    assert stream.getvalue() == "a notice\n"


def test_no_other_module_writes_over_a_line():
    modules = [path for path in (ROOT / "memtui").rglob("*.py") if r"\x1b[K" in path.read_text()]
    assert [path.name for path in modules] == ["progress_line.py"]
