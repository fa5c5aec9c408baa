"""Files that are replaced whole, and places where a file may be written."""

from __future__ import annotations

import os
import stat

import pytest

from memtui.core import files
from memtui.core.errors import UserError
from memtui.core.files import check_place, ensure_folder, read_toml, write_atomically, write_safely


def mode_of(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_file_is_replaced_with_its_mode_less_the_umask_and_no_draft_stays(tmp_path):
    path = tmp_path / "a"
    path.write_text("a longer old text")
    path.chmod(0o777)
    (tmp_path / ".a.new").write_text("what a crash left")
    write_atomically(path, "new\n")
    assert (path.read_text(), mode_of(path)) == ("new\n", 0o640)
    os.umask(0)
    write_safely(path, "é")
    assert (path.read_bytes(), mode_of(path)) == ("é".encode(), 0o600)
    assert [left.name for left in tmp_path.iterdir()] == ["a"]


def test_text_is_on_the_disk_before_it_has_its_name_and_the_name_afterwards(tmp_path, monkeypatch):
    seen = []

    def sync(fd):
        there = "file" if stat.S_ISREG(os.fstat(fd).st_mode) else "folder"
        seen.append((there, (tmp_path / "a").exists(), (tmp_path / ".a.new").exists()))

    monkeypatch.setattr(files.os, "fsync", sync)
    write_atomically(tmp_path / "a", "text")
    assert seen == [("file", False, True), ("folder", True, False)]


def test_what_cannot_be_written_leaves_the_old_text_and_no_draft(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "a", "\ud800")
    assert (tmp_path / "a").read_text() == "old"
    assert [left.name for left in tmp_path.iterdir()] == ["a"]


def test_a_file_that_cannot_be_created_says_why(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(files.os, "open", refuse)
    with pytest.raises(PermissionError):
        write_atomically(tmp_path / "a", "text")


def test_toml_is_read_and_what_is_none_is_one_line(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('[x]\ny = ["z", 1]\n')
    assert read_toml(path) == {"x": {"y": ["z", 1]}}
    path.write_text("a = 1\nb = \n")
    with pytest.raises(UserError, match=r"a\.toml: is not TOML: .*line 2"):
        read_toml(path)
    path.write_text("a = " + "[" * 5000)
    with pytest.raises(UserError, match="is not TOML"):
        read_toml(path)


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        ("missing/x", "cannot be written: there is no folder .*missing; name another file"),
        ("file/x", "Not a directory"),
        ("folder", "is a folder; name a file"),
        ("to folder", "is a folder; name a file"),
        ("pipe", "is a pipe or a device, which is not replaced; name another file"),
        ("x" * 300, "File name too long"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_place_where_no_file_can_be(tmp_path, name, trouble, force):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "to folder").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=trouble):
        check_place(tmp_path / name, force=force)


@pytest.mark.parametrize("name", ["file", "to file", "to nothing"])
def test_what_is_there_is_replaced_by_force_only(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "to file").symlink_to("file")
    (tmp_path / "to nothing").symlink_to("nowhere")
    check_place(tmp_path / "new", force=False)
    check_place(tmp_path / name, force=True)
    with pytest.raises(UserError, match="exists already; choose another file or add --force"):
        check_place(tmp_path / name, force=False)


def test_a_folder_without_the_right_to_write_is_named_by_its_file(tmp_path, monkeypatch):
    """Root has every right, so the answer of the kernel is made up."""
    asked = []

    def access(path, mode, **_):
        asked.append((path, mode))
        return False

    monkeypatch.setattr(files.os, "access", access)
    with pytest.raises(UserError, match=r"/x: .*Permission denied"):
        check_place(tmp_path / "x", force=False)
    assert asked[0] == (tmp_path, os.W_OK | os.X_OK)  # then, which folder above stands in the way


def test_folders_are_created_for_their_owner_alone(tmp_path):
    path = ensure_folder(tmp_path / "a" / "b")
    assert (path, mode_of(path)) == (tmp_path / "a" / "b", 0o700)
    (path / "x").touch()
    assert ensure_folder(path) == path
    with pytest.raises(UserError, match=r"/x: .*; do this$"):
        ensure_folder(path / "x", "do this")
