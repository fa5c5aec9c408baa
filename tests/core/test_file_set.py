"""Files that come all at once or not at all, and folders that are taken away again."""

from __future__ import annotations

import gzip

from memtui.core.file_set import all_or_none, make_folder, take_away
from tests.support.folders import contents, names_in


def test_folders_that_others_use_meanwhile_stay(tmp_path):
    created = make_folder(tmp_path / "a" / "b")
    assert created == [tmp_path / "a", tmp_path / "a" / "b"]
    (tmp_path / "a" / "theirs").write_text("x")
    take_away(created)
    assert contents(tmp_path) == {"a/theirs": b"x"}
    assert not (tmp_path / "a" / "b").exists()


def test_names_come_all_at_once(tmp_path):
    with all_or_none(tmp_path / "out", force=False) as files:
        files.write("one", lambda file: file.write(b"1"))
        files.write("two", lambda file: file.write(b"2"))
        assert not {"one", "two"} & set(names_in(tmp_path / "out"))
        assert files.finish() == [tmp_path / "out" / "one", tmp_path / "out" / "two"]
    assert contents(tmp_path / "out") == {"one": b"1", "two": b"2"}


def test_a_packed_set_has_the_same_content_and_the_same_bytes_each_time(tmp_path):
    for folder in ("a", "b"):
        with all_or_none(tmp_path / folder, force=False, packed=True) as files:
            files.write("one.txt", lambda file: file.write(b"1" * 1000))
            assert [path.name for path in files.finish()] == ["one.txt.gz"]
    first, second = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert first == second
    assert gzip.decompress(first["one.txt.gz"]) == b"1" * 1000
