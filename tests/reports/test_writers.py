"""Exports come whole or not at all: where one failed, no folder is left, and one that was there is as it was."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memtui.core.errors import UserError
from memtui.reports.export import export, writers
from tests.support.cli import memtui, refused
from tests.support.folders import contents
from tests.support.in_process import memtui_here
from tests.support.live import needs_root
from tests.support.memory_logs import mxnet_log
from tests.support.sessions import messages, write_session

WITH_PAGES = ("csv", "json", "svg", "html", "parquet", "chrome", "perfetto")
OF_STEPS = ("zpp", "analysis", "mxnet")


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Path:
    return write_session(tmp_path_factory.mktemp("session") / "s.memtui", messages(20))


@pytest.fixture(params=[OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def broken_off(request, monkeypatch) -> type[BaseException]:
    """The last file of every form cannot be written to its end; what the caller sees."""

    def breaking(
        files: Callable[[writers.ReportSource], writers.Files],
    ) -> Callable[[writers.ReportSource], writers.Files]:
        def made(reader: writers.ReportSource) -> writers.Files:
            yield from files(reader)

            def fail(file) -> None:
                file.write(b"half of ")
                raise request.param

            yield "last", fail

        return made

    monkeypatch.setattr(writers, "FORMS", {name: breaking(files) for name, files in writers.FORMS.items()})
    return UserError if isinstance(request.param, OSError) else KeyboardInterrupt


@pytest.mark.parametrize("form", WITH_PAGES)
def test_an_export_that_fails_leaves_no_folder(form, session, broken_off, tmp_path):
    if form == "parquet":
        pytest.importorskip("pyarrow")
    with pytest.raises(broken_off):
        export(session, form, tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_was_there_is_as_it_was(force, session, broken_off, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    if force:
        (tmp_path / "samples.csv").write_text("of the last time")
    before = contents(tmp_path)
    with pytest.raises(broken_off):
        export(session, "csv", tmp_path, force=force)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("form", OF_STEPS)
def test_what_a_session_has_nothing_for_leaves_no_folder(form, session, tmp_path):
    refused(memtui_here("export", session, "--to", form, "-o", tmp_path / "out"), "")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_leaves_the_others_unwritten(session, tmp_path):
    (tmp_path / "meta.json").write_text("mine")
    refused(memtui_here("export", session, "--to", "csv", "-o", tmp_path), "meta.json: exists already")
    assert contents(tmp_path) == {"meta.json": b"mine"}
    (tmp_path / "meta.json").unlink()
    (tmp_path / "vmas.csv").mkdir()
    refused(memtui_here("export", session, "--to", "csv", "-o", tmp_path, "--force"), "vmas.csv: is a folder")
    assert [path.name for path in tmp_path.iterdir()] == ["vmas.csv"]


def test_a_file_in_place_of_the_folder_is_named(session, tmp_path):
    (tmp_path / "out").write_text("mine")
    refused(memtui_here("export", session, "--to", "csv", "-o", tmp_path / "out"), "cannot be written: Not a directory")
    refused(memtui_here("export", session, "--to", "csv", "-o", tmp_path / "out" / "x"), "cannot be written")
    assert contents(tmp_path) == {"out": b"mine"}


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@needs_root
@pytest.mark.parametrize("words", [("export", "--to", "csv"), ("export", "--to", "json"), ("breakdown", "--to", "svg")])
def test_a_disk_that_is_full(words, session, small_disk, tmp_path):
    if words[0] == "breakdown":
        session = tmp_path / "rnn.log"
        session.write_bytes(mxnet_log())
    (small_disk / "mine").write_bytes(b"x" * 60_000)
    before = contents(small_disk)
    done = memtui(words[0], session, *words[1:], "-o", small_disk / "out")
    refused(done, "")
    assert contents(small_disk) == before
    assert [path.name for path in small_disk.iterdir()] == ["mine"]
