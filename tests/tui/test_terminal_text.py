"""What a program printed, as lines: progress bars, colours, hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.tui.presenters.terminal_text import CHARACTERS, LINE_CHARACTERS, LINES, TerminalText


def lines_of(*texts: str) -> list[str]:
    paper = TerminalText()
    for text in texts:
        paper.feed(text)
    return [line.rstrip() for line in paper.lines]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb\n", ["a", "b", ""]),
        ("a\r\nb", ["a", "b"]),
        ("  1%|#   |\r 50%|##  |\r100%|####|\ndone", ["100%|####|", "done"]),
        ("long words\rshort", ["shortwords"]),  # as on a terminal, which erases nothing by itself
        ("long words\r\x1b[Kshort", ["short"]),
        ("long words\x1b[2K\rshort", ["short"]),
        ("abc\x1b[1Kd", ["   d"]),
        ("abc\b\bX", ["aXc"]),
        ("a\tb", ["a       b"]),
        ("\x1b[1;31mred\x1b[0m \x1b[38;5;9mtoo\x1b[m", ["red too"]),
        ("\x1b]8;;https://x.org\x1b\\link\x1b]8;;\x1b\\ \x1b]0;title\x07text", ["link text"]),
        ("\x1b(Bplain\x1b7", ["plain"]),
        ("epoch 1\nbatch 1\x1b[A\repoch 2\nbatch 9", ["epoch 2", "batch 9"]),  # tqdm with two bars
        ("one\ntwo\nthree\x1b[2A\x1b[Jnew", ["one  new"]),
        ("abc\x1b[2Gx\x1b[5Cy", ["axc    y"]),
        ("\x1b[999999999999999999999Ax", ["x"]),
        ("bell\x07 and \x9b31m", ["bell\x07 and \x9b31m"]),  # left to ``visible``
    ],
)
def test_lines_are_as_on_a_terminal(text, lines):
    assert lines_of(text) == lines
    assert lines_of(*text) == lines, "piece by piece it is the same"


@given(st.text(alphabet="ab\r\n\b\t\x1b[]0;1234567ABCDGKJm\x07\\é", max_size=60), st.integers(0, 60))
def test_pieces_make_no_difference_and_nothing_breaks(text, at):
    assert lines_of(text[:at], text[at:]) == lines_of(text)


def test_what_is_kept_is_bounded():
    paper = TerminalText()
    for text in ("x" * 1_000_000, "\n" * 50_000, "\x1b[512Cx\n" * 30_000, "\t" * 10_000, "\x1b]52;c;" + "A" * 100_000):
        paper.feed(text)
        assert len(paper.lines) <= LINES
        assert max(map(len, paper.lines)) <= LINE_CHARACTERS
        assert sum(map(len, paper.lines)) <= CHARACTERS + LINE_CHARACTERS
    assert paper.first > 70_000
    assert len(paper._rest) < 5000
