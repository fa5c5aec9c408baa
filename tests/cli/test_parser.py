"""Every command has one shape and one place; the help has them by what a user wants."""

from __future__ import annotations

import pytest

from memtui.cli.parser import (
    GROUPS,
    TAKE_PROGRAMS,
    build_parser,
    commands,
    given_options,
    refuse_misplaced_option,
)
from memtui.core.argtypes import parsers_of
from memtui.core.errors import UserError
from tests.support.cli import memtui


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


@pytest.mark.parametrize(
    "program",
    [
        ("true", "--interval", "2"),
        ("true", "--output", "-"),
        ("true", "--force"),  # takes no value here, either
        ("true", "--unknown"),
        ("--interval",),  # the name of the program
        (),
    ],
)
def test_options_of_a_program_are_its_own(program):
    refuse_misplaced_option(build_parser(), "record", program)


@pytest.mark.parametrize("program", [("true", "--interval"), ("true", "--interval", "--lr", "1")])
def test_an_option_without_its_value_was_perhaps_meant_for_memtui(program):
    with pytest.raises(UserError, match="--interval behind -- has no value"):
        refuse_misplaced_option(build_parser(), "record", program)


def test_a_second_separator_says_that_it_is_the_programs(tmp_path):
    done = memtui("record", "-o", tmp_path / "s.memtui", "--tracker", "rss", "--", "--", "echo", "--interval")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "--interval")
