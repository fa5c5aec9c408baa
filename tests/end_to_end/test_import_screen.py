"""``memtui import FILE`` on a terminal: the file while it is read, then its session, which is kept only on demand."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from benchmarks.large_files import write_snapshot
from memtui.session.session import Session
from tests.support.cli import memtui, refused
from tests.support.terminals import terminals

pytestmark = pytest.mark.real_clock


@pytest.fixture
def start():
    with terminals() as make:
        yield make


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where temporary files of the program lie."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.pickle"
    with path.open("wb") as file:
        write_snapshot(file, 24 << 20)  # it takes longer to read than the screen to start
    return path


def small(folder: Path) -> Path:
    event = {"action": "alloc", "addr": 512, "size": 1 << 20, "time_us": 10**15, "frames": []}
    (folder / "small.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": [[event]]}))
    return folder / "small.pickle"


def test_a_large_file_is_shown_while_it_is_read_and_then_whole(start, folder, large):
    screen = start("import", large)
    screen.read(20, "left of reading")
    screen.read(20, "peak so far")
    assert list((folder / "temporary").iterdir())
    screen.read(120, "alive at the cursor")
    screen.send("q")
    assert screen.end() == 0
    assert list((folder / "temporary").iterdir()) == []


@pytest.mark.parametrize("key", ["q", "\x1b"])
def test_a_key_ends_the_import_and_nothing_is_written(start, folder, large, key):
    screen = start("import", large, "-o", folder / "s.memtui", "--tui")
    screen.read(20, "left of reading")
    screen.send(key)
    assert screen.end() == 130
    assert "ended before it was read whole; nothing was written" in screen.output.decode()
    assert [path.name for path in folder.iterdir()] == ["temporary"]


def test_a_small_file_opens_at_once_and_is_kept_where_an_output_is_named(start, folder):
    screen = start("import", small(folder), "-o", folder, "--tui")
    screen.read(20, "alive at the cursor")
    screen.send("q")
    assert screen.end() == 0
    assert "left of reading" not in screen.output.decode()
    assert Session(folder / "small.pickle.memtui").imported().file == "small.pickle"


def test_a_damaged_file_is_one_line(start, folder):
    (folder / "x.pickle").write_bytes(b"\x80\x04}.")
    screen = start("import", folder / "x.pickle")
    assert screen.end() == 2
    assert "x.pickle: is a pickle, but no CUDA memory snapshot" in screen.output.decode()


def test_a_terminal_is_not_a_file(start):
    screen = start("import", "-")
    assert screen.end() == 2
    assert "standard input: is a terminal: give a file, or pipe one into it" in screen.output.decode()


def test_without_a_terminal_an_output_is_wanted(folder):
    path = small(folder)
    refused(memtui("import", path), "where to? -o FILE")
    refused(memtui("import", path, path, "-o", folder, "--tui"), "--tui shows one file, on a terminal")


def test_replay_opens_a_file_of_another_tool_and_says_what_is_none(start, folder):
    screen = start("replay", small(folder))
    screen.read(20, "alive at the cursor")
    screen.send("q")
    assert screen.end() == 0
    (folder / "x").write_bytes(b"hello")
    screen = start("replay", folder / "x")
    assert screen.end() == 2
    assert "is not a memtui session" in screen.output.decode()
