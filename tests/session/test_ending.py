"""The end of a session, read alone."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from memtui.core.samples import End
from memtui.session.ending import stored_end
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from tests.support.sessions import messages, write_session


def test_it_is_the_end_that_a_reader_of_the_whole_session_has(tmp_path):
    path = write_session(tmp_path / "s.memtui", messages(2))
    end = stored_end(path)
    assert end is not None
    with closing(Session(path)) as session:
        assert session.end == end
    *begun, last = messages(2)
    assert isinstance(last, End)
    assert stored_end(write_session(tmp_path / "t.memtui", begun)) is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("[]", "its end: it has another form"),
        ('{"t_ns": 1}', "its end: .*'kind'"),
        ('{"t_ns": "1", "kind": "stopped"}', "its end: End.t_ns holds another type"),
        (7, "its end: it has another form"),
        ("{", "its end: "),
    ],
)
def test_one_that_is_damaged_is_one_line(value, says, tmp_path):
    path = write_session(tmp_path / "s.memtui", messages(2))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'end'", (value,))
    with pytest.raises(SessionError, match=f"s.memtui: is damaged: {says}"):
        stored_end(path)


def test_what_is_no_session(tmp_path):
    with pytest.raises(SessionError):
        stored_end(tmp_path / "none.memtui")


@pytest.mark.parametrize(
    ("end", "bad"),
    [
        (End(1, "target exited", "killed by SIGKILL"), True),
        (End(1, "target exited", "exited with code 1"), True),
        (End(1, "target exited", "exited"), False),
        (End(1, "target exited"), False),
        (End(1, "stopped", "killed by SIGKILL"), False),
    ],
)
def test_which_ends_are_bad(end, bad):
    assert end.is_bad is bad


def test_it_takes_few_modules():
    code = "import sys, memtui.cli.record, memtui.session.ending; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
