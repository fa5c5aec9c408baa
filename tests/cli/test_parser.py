"""Every command has one shape and one place; the help has them by what a user wants."""

from __future__ import annotations

import pytest

from memtui.cli.parser import GROUPS, TAKE_PROGRAMS, build_parser, commands, given_options
from memtui.core.argtypes import parsers_of


def test_every_command_is_in_one_group_under_its_name():
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    assert [command.name for command in commands().values()] == names == list(parsers_of(build_parser()))
    assert set(TAKE_PROGRAMS) <= set(names)


def test_the_help_has_each_command_below_its_group():
    lines = build_parser().format_help().splitlines()
    for title, group in GROUPS.items():
        start = lines.index(f"{title}:") + 1
        section = lines[start : lines.index("", start)]
        assert [line.split()[0] for line in section if line[2:3].strip()] == list(group)


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (("attach", "1"), {}),
        (("attach", "1", "--interval", "0.2"), {"interval": "--interval"}),
        (("attach", "1", "--inter", "1", "--no-pause"), {"interval": "--interval", "pause": "--no-pause"}),
        (("record", "1", "-o", "x"), {"output": "--output"}),
    ],
)
def test_what_was_given_is_distinguished_from_defaults(words, flags):
    assert given_options(words[0], words) == flags
