"""The streams of a command: results and lines for the user never mix, and neither acts on a terminal."""

from __future__ import annotations

import argparse
import json
import sys

import pytest

from memtui.core.console import Console


@pytest.fixture
def console() -> Console:
    return Console("export")


def test_results_are_on_standard_output_and_notices_are_not(console, capsys):
    console.print("a\x1b[2J\nb")
    console.print_line("c\x1b[2J\nd")
    console.notify("careful\n\x1b[2J")
    console.notify("")
    output = capsys.readouterr()
    assert output.out == "a\\x1b[2J\nb\nc\\x1b[2J\\nd\n"
    assert output.err == "memtui export: careful\\n\\x1b[2J\n"


def test_a_document_is_json_alone_also_inside_of_a_progress_line(console, capsys):
    with console.progress("writing"):
        console.print_json({"a": None})
    output = capsys.readouterr()
    assert json.loads(output.out) == {"schema_version": 1, "a": None}
    assert output.err == ""


@pytest.mark.parametrize(
    ("tui", "as_json", "stdin", "stdout", "wanted"),
    [
        (True, False, True, True, True),
        (False, False, True, True, False),
        (True, True, True, True, False),
        (True, False, False, True, False),
        (True, False, True, False, False),
    ],
)
def test_a_screen_is_for_somebody_at_a_terminal(console, monkeypatch, tui, as_json, stdin, stdout, wanted):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: stdin)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: stdout)
    assert console.wants_screen(argparse.Namespace(tui=tui, json=as_json)) is wanted


def test_lines_that_are_too_wide_go_on_under_their_text_on_a_terminal_alone(console, capsys, monkeypatch):
    page = "working set  median 12 MiB  of 40 MiB\nreuse        none"
    console.print_page(page, 13)
    monkeypatch.setattr("memtui.core.console.output_columns", lambda: 30)
    console.print_page(page, 13)
    wrapped = "working set  median 12 MiB  of\n             40 MiB\nreuse        none"
    assert capsys.readouterr().out == f"{page}\n{wrapped}\n"
