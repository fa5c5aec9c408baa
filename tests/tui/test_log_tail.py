"""The output of a program on the screen: its last lines, followed, scrolled through, and read at little cost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from memtui.core.program_log import log_path
from memtui.tui.presenters import log_tail
from memtui.tui.presenters.log_tail import OutputLog


@pytest.fixture
def session(tmp_path) -> Path:
    return tmp_path / "s.memtui"


def shown(session: Path, columns: int = 40, rows: int = 10) -> OutputLog:
    log = OutputLog(log_path(session))
    log.shown = True
    log.resize(columns, rows)
    return log


def test_it_says_why_there_is_nothing(session):
    log = shown(session)
    assert "there is no s.memtui.log beside the session" in log.view().note
    log_path(session).write_text("")
    assert (log.view().note, log.view().rows, log.view().total) == ("", (), 0)


def test_it_costs_nothing_until_it_is_looked_at(session, monkeypatch):
    log_path(session).write_text("hello\n")
    monkeypatch.setattr(log_tail, "open_log", lambda path: pytest.fail("it was opened"))
    assert OutputLog(log_path(session)).view().rows == ()


def test_it_follows_and_scrolls(session):
    path, log = log_path(session), shown(session)
    path.write_text("".join(f"line {n}\n" for n in range(30)))
    assert log.view().rows == tuple(f"line {n}" for n in range(20, 30))
    with path.open("a") as file:
        file.write("line 30\nline 31")
    assert log.view().rows[-2:] == ("line 30", "line 31")
    assert log.view().follows
    log.page(-1)
    view = log.view()
    assert (view.rows[0], view.first, view.total, view.follows) == ("line 13", 13, 32, False)
    with path.open("a") as file:
        file.write(" goes on\nline 32\n")
    assert log.view().rows == view.rows, "what is looked at stays where it is"
    log.home()
    assert log.view().rows[0] == "line 0"
    log.move(2)
    assert log.view().rows[0] == "line 2"
    log.page(9)
    assert log.view().follows
    assert log.view().rows[-1] == "line 32"
    log.move(-1)
    log.end()
    assert log.view().follows


def test_long_lines_are_wrapped_and_stay_in_sight_when_the_width_changes(session):
    log_path(session).write_text("a" * 50 + "\n日本語日本語\n" + "".join(f"{n}\n" for n in range(50)))
    log = shown(session, 20, 4)
    log.home()
    assert log.view().rows == ("a" * 20, "a" * 20, "a" * 10, "日本語日本語")
    log.move(3)
    log.resize(8, 4)
    assert log.view().rows[:2] == ("日本語日", "本語")


def test_bytes_that_are_no_text_are_spelled_out(session):
    log_path(session).write_bytes(b"\xff\xfe \x1b]52;c;aGVsbG8=\x07\x1b[2J\x9b\x00 \xc3\xa9 \xe2\x80\xae\n\x1b]52;c;x")
    view = shown(session, 80).view()
    assert view.rows == (r"\xff\xfe \x9b\x00 é <U+202E>",)  # the last line is a sequence that is not whole


def test_a_character_may_come_in_two_pieces(session):
    path, log = log_path(session), shown(session)
    path.write_bytes(b"caf\xc3")
    assert log.view().rows == ("caf",)
    with path.open("ab") as file:
        file.write(b"\xa9\n")
    assert log.view().rows == ("café",)


def test_another_file_of_that_name_is_read_from_its_begin(session):
    path, log = log_path(session), shown(session)
    path.write_text("old output\n" * 9)
    assert log.view().rows[0] == "old output"
    path.unlink()
    assert "there is no" in log.view().note
    path.write_text("new\n")
    assert log.view().rows == ("new",)
    path.write_text("")
    assert log.view().rows == ()


def test_a_large_log_costs_little(session):
    """A gigabyte, most of it a hole, is opened at its end."""
    path, log = log_path(session), shown(session)
    with path.open("wb") as file:
        file.seek(1 << 30)
        file.write(b"\n" + b"".join(b"line %d\n" % n for n in range(1000)))
    began = time.process_time()
    view = log.view()
    assert view.rows[-1] == "line 999"
    assert view.older
    assert view.size_bytes > 1 << 30
    assert time.process_time() - began < 1.0
    log.home()
    assert log.view().rows[0].startswith("line ") or log.view().total < 3000


def test_an_unchanged_log_is_not_read(session, monkeypatch):
    log_path(session).write_text("hello\n")
    log = shown(session)
    before = log.view()
    monkeypatch.setattr(log_tail, "_last_states", lambda *_: pytest.fail("it was read"))
    assert log.view() == before


def test_hours_of_a_progress_bar_hide_nothing(session):
    bars = "".join(f"\r{n:6d}/60000 |#####     | loss=0.1" for n in range(60_000))
    log_path(session).write_text("first words\n" + bars + "\nlast words\n")
    assert shown(session).view().rows == ("first words", " 59999/60000 |#####     | loss=0.1", "last words")
