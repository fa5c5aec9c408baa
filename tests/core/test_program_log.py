"""The file of what a program printed: private, and no other kind of file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from memtui.core.errors import UserError
from memtui.core.program_log import create_log, log_path, open_log
from memtui.tui.presenters.log_tail import OutputLog
from tests.support.folders import names_in


@pytest.fixture
def session(tmp_path) -> Path:
    return tmp_path / "s.memtui"


def test_where_it_lies():
    assert log_path(Path("/a/run.memtui")) == Path("/a/run.memtui.log")


def test_a_log_is_made_private_and_nothing_is_overwritten(tmp_path):
    path, other = tmp_path / "s.log", tmp_path / "other"
    os.close(create_log(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(UserError, match="exists already"):
        create_log(path)
    other.write_text("mine")
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(UserError, match="exists already"):
        create_log(path)
    os.close(create_log(path, force=True))
    assert not path.is_symlink()
    assert other.read_text() == "mine"
    with pytest.raises(UserError, match="cannot go there"):
        create_log(tmp_path / "no such folder" / "s.log")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_only_a_plain_file_is_opened(kind, session, tmp_path):
    path = log_path(session)
    match kind:
        case "link":
            (tmp_path / "secret").write_text("secret")
            path.symlink_to(tmp_path / "secret")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/tty")
    with pytest.raises(OSError, match=r"."):
        open_log(path)
    before = len(names_in("/proc/self/fd"))
    log = OutputLog(path)
    log.shown = True
    log.resize(40, 10)
    view = log.view()
    assert "is not opened" in view.note
    assert view.rows == ()
    assert len(names_in("/proc/self/fd")) == before
