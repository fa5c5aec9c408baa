"""A lock on a file: one holder at a time, and who that is."""

from __future__ import annotations

import errno
import fcntl
import os
from types import SimpleNamespace

import pytest

from memtui.core import file_lock
from memtui.core.errors import FAILURE, UserError
from memtui.core.file_lock import exclusively, holder_of, lock_holder

TROUBLE = "locked by {who}: wait"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "lock").write_text("text")
    return tmp_path / "lock"


@pytest.fixture
def locks(tmp_path, monkeypatch):
    """Writes what the kernel would list."""
    monkeypatch.setattr(file_lock, "_LOCKS", tmp_path / "locks")
    return (tmp_path / "locks").write_text


def place_of(path) -> str:
    status = path.stat()
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"


@pytest.mark.parametrize("writable", [False, True])
def test_one_at_a_time(path, locks, writable):
    locks(f"1: FLOCK  ADVISORY  WRITE 5561 {place_of(path)} 0 EOF\n")
    with exclusively(path, TROUBLE):
        with pytest.raises(UserError) as caught, exclusively(path, TROUBLE, writable=writable):
            pass
        assert (str(caught.value), caught.value.code) == ("locked by process 5561: wait", FAILURE)
    with exclusively(path, TROUBLE, writable=writable):
        pass
    assert path.read_text() == "text"


def test_a_holder_that_is_not_listed_is_another_process(path, locks):
    locks("")
    with (
        exclusively(path, TROUBLE),
        pytest.raises(UserError, match="locked by another process"),
        exclusively(path, TROUBLE),
    ):
        pass


def test_an_error_within_frees_it(path):
    with pytest.raises(KeyError), exclusively(path, TROUBLE):
        raise KeyError
    with exclusively(path, TROUBLE):
        pass


def test_a_file_is_open_for_writing_where_that_is_asked_for(path, monkeypatch):
    modes = []
    monkeypatch.setattr(
        file_lock,
        "fcntl",
        SimpleNamespace(
            flock=lambda fd, how: modes.append((fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE, how)),
            LOCK_EX=fcntl.LOCK_EX,
            LOCK_NB=fcntl.LOCK_NB,
        ),
    )
    for writable in (False, True):
        with exclusively(path, TROUBLE, writable=writable):
            pass
    assert modes == [(mode, fcntl.LOCK_EX | fcntl.LOCK_NB) for mode in (os.O_RDONLY, os.O_RDWR)]


def test_what_cannot_be_locked_is_one_line(path, monkeypatch):
    with pytest.raises(UserError, match="missing: cannot be locked") as caught, exclusively(path / "missing", TROUBLE):
        pass
    assert caught.value.code == FAILURE

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(file_lock.fcntl, "flock", refuse)
    with pytest.raises(UserError, match=r"lock: cannot be locked: .*No locks available"), exclusively(path, TROUBLE):
        pass


def test_the_holder_is_the_line_of_that_file_and_not_one_that_waits(path, locks):
    place = place_of(path)
    others = [
        f"1: POSIX  ADVISORY  WRITE 11 {place} 0 EOF",
        f"2: FLOCK  ADVISORY  WRITE 12 {place}1 0 EOF",
        f"3: -> FLOCK  ADVISORY  WRITE 13 {place} 0 EOF",
        f"4: FLOCK  ADVISORY  WRITE -1 {place} 0 EOF",
        "5: FLOCK",
    ]
    locks("\n".join(others))
    assert holder_of(path) == 0
    locks("\n".join([*others, f"6: FLOCK  ADVISORY  WRITE 77 {place} 0 EOF"]))
    assert holder_of(path) == 77
    with path.open() as file:
        assert lock_holder(file.fileno()) == 77
    assert holder_of(path.with_name("missing")) == 0


def test_without_a_list_of_locks_nobody_is_known(path, monkeypatch):
    monkeypatch.setattr(file_lock, "_LOCKS", path / "missing")
    assert holder_of(path) == 0
