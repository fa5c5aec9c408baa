"""A session that is moved, deleted or replaced while recorded: reported at once, and a moved file is whole."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memtui.session.file_format import SessionError
from memtui.session.session import Session
from memtui.session.writer import SessionWriter
from tests.support.live import start

pytestmark = pytest.mark.real_clock


def samples_in(path: Path) -> int:
    """How many are committed."""
    try:
        with closing(Session(path)) as reader:
            return len(reader.samples)
    except SessionError:
        return 0


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def deleted(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("not ours")
    other.rename(path)


def folder_moved(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("displace", "says"),
    [
        (moved, "was moved or deleted"),
        (deleted, "was moved or deleted"),
        (replaced, "another file took its place"),
        (folder_moved, "was moved or deleted"),
    ],
)
def test_a_recording_ends_at_once_and_says_why(displace: Callable[[Path], None], says: str, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "s.memtui"
    with subprocess.Popen(["sleep", "120"]) as target:
        recording = start("record", target.pid, "--tracker", "rss", "--interval", "0.1", "-o", path)
        try:
            while samples_in(path) < 3:
                assert recording.poll() is None
                time.sleep(0.2)
            displace(path)
            out, err = recording.communicate(timeout=30)  # it would go on for two minutes
        finally:
            recording.kill()
            target.kill()
    assert recording.returncode == 1
    assert err.count("\n") == 1, err
    assert f"{path}: {says} while it was recorded" in err
    assert out == ""
    left = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file())
    if displace is deleted:
        assert left == []
    elif displace is replaced:
        assert path.read_text() == "not ours"
    else:
        (name,) = [name for name in left if not name.endswith(("-wal", "-shm"))]
        with closing(Session(tmp_path / name)) as reader:
            assert len(reader.samples) >= 3
            assert reader.end is not None
            assert reader.end.kind == "displaced"


def test_it_ends_at_once_however_far_its_windows_are_apart(tmp_path):
    path = tmp_path / "s.memtui"
    with subprocess.Popen(["sleep", "120"]) as target:
        recording = start("record", target.pid, "--tracker", "rss", "--interval", "60", "-o", path)
        try:
            while not begun(path):
                assert recording.poll() is None
                time.sleep(0.2)
            deleted(path)
            _, err = recording.communicate(timeout=20)  # the first window would end after a minute
        finally:
            recording.kill()
            target.kill()
    assert recording.returncode == 1
    assert f"{path}: was moved or deleted while it was recorded" in err


def begun(path: Path) -> bool:
    """Return whether what a recording began with is committed."""
    try:
        with closing(Session(path)) as reader:
            return reader.hello.target.pid > 0
    except SessionError:
        return False


def test_a_session_in_its_place_is_left_alone(tmp_path):
    writer = SessionWriter(tmp_path / "s.memtui")
    assert writer.displaced() == ""
    os.link(tmp_path / "s.memtui", tmp_path / "another name")
    assert writer.displaced() == ""
    writer.discard()
