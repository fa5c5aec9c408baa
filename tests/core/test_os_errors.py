"""What the operating system refuses: which file, what for, why, what to do; and small files, read within limits."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.core.errors import FAILURE, UserError
from memtui.core.os_errors import READ, refused, unhandled, why
from memtui.core.small_file import check_readable, read_small, read_small_bytes
from memtui.core.text import one_line


def real_error(path: Path | str, flags: int = os.O_RDONLY) -> OSError:
    try:
        os.close(os.open(path, flags))
    except OSError as error:
        return error
    raise AssertionError("it was opened")


def test_each_real_error_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    cases = [
        (tmp_path / "none", os.O_RDONLY, "No such file or directory; check the name"),
        (tmp_path, os.O_WRONLY, "Is a directory; it is a folder; name a file"),
        (tmp_path / "file" / "x", os.O_RDONLY, "Not a directory; a part of the name is a file"),
        (tmp_path / "loop", os.O_RDONLY, "symbolic links point at one another"),
        (tmp_path / ("n" * 300), os.O_RDONLY, "File name too long; name a shorter one"),
    ]
    for path, flags, words in cases:
        error = refused(path, real_error(path, flags), READ)
        assert str(error).startswith(f"{path}: cannot be read: ")
        assert words in str(error)
        assert error.code == 2


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.EINVAL, errno.EDQUOT, errno.EAGAIN, errno.EIO]
)
def test_others_have_a_remedy_too(number):
    assert str(refused("x", OSError(number, os.strerror(number)))).startswith(
        f"x: cannot be used: {os.strerror(number)}; "
    )


def sqlite_error(code: int, text: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "Cannot allocate memory; end something, or ask for less"),
        (sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full"), "database or disk is full; make room there"),
        (sqlite_error(sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error"), "disk I/O error; the disk has an error"),
        (sqlite_error(sqlite3.SQLITE_IOERR_NOMEM, "disk I/O error"), "disk I/O error; end something, or ask for less"),
        (sqlite_error(sqlite3.SQLITE_READONLY, "a readonly database"), "a readonly database; nothing can be written"),
        (sqlite_error(sqlite3.SQLITE_CANTOPEN, "unable to open"), "unable to open; check that the file and its folder"),
    ],
)
def test_what_sqlite_and_python_lack_has_the_remedy_of_the_system(error, says):
    assert str(refused("x", error)).startswith(f"x: cannot be used: {says}")


def test_an_error_without_a_number_is_its_text():
    assert why("x", sqlite3.DatabaseError("file is not a database")) == "file is not a database"


def test_who_is_denied_what_and_whom_to_ask(tmp_path):
    """As an ordinary user, whom root's files refuse."""
    program = (
        "import os, sys; from memtui.core.os_errors import refused\n"
        "os.setgid(65534); os.setuid(65534) if os.geteuid() == 0 else None\n"
        "try: open(sys.argv[1])\nexcept OSError as error: print(refused(sys.argv[1], error, 'read'))"
    )
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    done = subprocess.run([sys.executable, "-c", program, "/root/x.toml"], capture_output=True, text=True, check=True)
    assert "/root/x.toml: cannot be read: Permission denied (nobody may not enter /root); " in done.stdout
    assert "name another place, or ask root, the owner, for the right" in done.stdout


def test_what_the_user_named_is_bad_input_and_the_rest_a_failure(tmp_path):
    error = FileNotFoundError(errno.ENOENT, "No such file or directory", str(tmp_path / "a" / "b"))
    for named in (tmp_path / "a" / "b", tmp_path / "a", tmp_path / "a" / "b" / "c", f"data={tmp_path}/a"):
        assert unhandled(error, [str(named)]).code == 2
    for named in (tmp_path / "ab", "", "data=", tmp_path / "a" / "bc"):
        assert unhandled(error, [str(named)]).code == FAILURE
    nameless = unhandled(OSError(errno.EMFILE, "Too many open files"), ["x"])
    assert (nameless.code, str(nameless)) == (
        FAILURE, "Too many open files; this process has all the files open that it may; raise ulimit -n"
    )  # fmt: skip


def test_small_files_are_plain_text_within_a_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert read_small(path) == "x = 1\n"
    assert read_small_bytes(path, 9) == path.read_bytes()
    with pytest.raises(UserError, match=r"is larger than 8 B"):
        read_small(path, 8)
    path.write_bytes(b"x = \xff")
    with pytest.raises(UserError, match="is not text: byte 4 is not UTF-8"):
        read_small(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match=r"is larger than 1\.00 MiB"):
        read_small(path)


@pytest.mark.parametrize("read", [read_small, check_readable])
def test_pipes_devices_and_folders_are_refused_at_once(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as unix_socket:
        unix_socket.bind(str(tmp_path / "socket"))
        for path, kind in (
            (tmp_path / "pipe", "is not a file, but a pipe"),
            (tmp_path, "is not a file, but a folder"),
            (Path("/dev/zero"), "is not a file, but a device"),
            (tmp_path / "socket", "No such device or address; it is a pipe or a device"),
        ):
            with pytest.raises(UserError, match=kind):
                read(path)


def test_messages_are_cut_in_the_middle_of_what_is_long():
    line = one_line(f"memtui x: {'a' * 100_000}: is \x1b[31m too long: {'b' * 100_000}; name a shorter one")
    assert len(line) < 1000
    assert "a…a" in line
    assert r"is \x1b[31m too long" in line
    assert line.endswith("; name a shorter one")
    assert len(one_line("a b " * 100_000)) == 2000
    short = "memtui x: /some/path: why; what"
    assert one_line(short) == short
