"""Redaction by permission: what nobody declared harmless is hidden, also what is added tomorrow."""

from __future__ import annotations

import inspect
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from memtui.core.samples import Process
from memtui.reports.redact import RedactedSource
from memtui.reports.redact_allowed import HARMLESS, HARMLESS_COLUMNS, permitted, permitted_row
from memtui.reports.source import ReportSource, Source
from memtui.session.columns import columns_of
from memtui.session.process_reader import ProcessReader
from memtui.session.tables.samples import ProcessSampleRecord
from tests.support import sessions


@dataclass(frozen=True, slots=True)
class ProcessOfTomorrow(Process):
    cwd: str = "/home/ada/secret"
    score: float | None = 1.5
    tags: tuple[str, ...] = ("secret",)


PROCESS = ProcessOfTomorrow(1, 42, 1, 7, 0, "python /home/ada/secret.py")


def test_a_field_that_is_added_is_hidden():
    shown = permitted(PROCESS, command="command-1")
    assert (shown.key, shown.pid, shown.start_ticks, shown.command) == (1, 42, 7, "command-1")
    assert (shown.cwd, shown.score, shown.tags, shown.role) == ("", None, (), "")


def test_a_kind_of_record_that_is_added_cannot_pass():
    class Unknown(NamedTuple):
        name: str = "secret"

    with pytest.raises(KeyError):
        permitted(Unknown())


def test_a_column_that_is_added_is_hidden(tmp_path, monkeypatch):
    path = sessions.write_session(tmp_path / "s.memtui", sessions.messages(3))
    whole = ProcessReader.samples
    added = {"cgroup": "/user.slice/ada", "cgroup_bytes": 77}
    monkeypatch.setattr(ProcessReader, "samples", lambda *arguments: [row | added for row in whole(*arguments)])
    with closing(Source(path)) as source, closing(RedactedSource(path)) as hidden:
        (row, *_), (redacted, *_) = source.process_samples(0, 10), hidden.process_samples(0, 10)
    assert row["cgroup"] == "/user.slice/ada"
    assert (redacted["cgroup"], redacted["cgroup_bytes"]) == (None, None)
    assert redacted["wss_bytes"] == row["wss_bytes"] is not None


def test_every_question_is_answered_by_the_redacted_source_itself():
    """It inherits nothing, so what reports may ask tomorrow is not answered before somebody decided about it."""
    questions = {name for name in vars(ReportSource) if not name.startswith("_")}
    assert RedactedSource.__mro__ == (RedactedSource, object)
    assert questions - set(vars(RedactedSource)) == {"hello", "samples", "end"}  # which are made when it is opened
    assert "page_set" in questions
    assert not hasattr(RedactedSource, "tensor_map"), "a reader has it, reports do not ask for it"


def test_what_is_declared_is_there():
    for kind, names in HARMLESS.items():
        assert names <= set(inspect.signature(kind).parameters), kind
    assert set(columns_of(ProcessSampleRecord)) | {"sample", "process"} >= HARMLESS_COLUMNS
    assert permitted_row({"wss_bytes": 1, "new": 2, "status": "x"}, status="ok") == {
        "wss_bytes": 1, "new": None, "status": "ok"
    }  # fmt: skip
