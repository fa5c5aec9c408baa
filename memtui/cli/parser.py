"""The parser of the command line: commands grouped by what a user wants, and the options that were typed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import pairwise

from memtui.core.argtypes import Parser, add_common, tables_of
from memtui.core.command import Command
from memtui.core.errors import UserError

# By what a user wants; each names the module and the command in it.
GROUPS: Mapping[str, Mapping[str, str]] = {
    "watch": {
        "demo": "memtui.cli.attach:DEMO",
        "attach": "memtui.cli.attach:ATTACH",
        "run": "memtui.cli.attach:RUN",
        "trace": "memtui.cli.attach:TRACE",
        "record": "memtui.cli.record:RECORD",
        "list": "memtui.cli.recordings:LIST",
        "mark": "memtui.cli.recordings:MARK",
        "stop": "memtui.cli.recordings:STOP",
    },
    "look back": {
        "replay": "memtui.cli.replay:REPLAY",
        "report": "memtui.cli.report:REPORT",
        "compare": "memtui.cli.compare:COMPARE",
        "breakdown": "memtui.reports.breakdown.arguments:BREAKDOWN",
        "export": "memtui.cli.export:EXPORT",
        "import": "memtui.cli.import_files:IMPORT",
    },
    "measure": {
        "bench": "memtui.bench.arguments:BENCH",
        "place": "memtui.placement.arguments:PLACE",
        "train": "memtui.training.arguments:TRAIN",
        "tune": "memtui.training.tune.arguments:TUNE",
    },
    "study": {
        "study": "memtui.study.arguments:STUDY",
        "calibrate": "memtui.study.arguments:CALIBRATE",
    },
    "keep house": {
        "doctor": "memtui.cli.doctor:DOCTOR",
        "completion": "memtui.cli.completion:COMPLETION",
    },
}
TAKE_PROGRAMS = ("run", "trace", "record", "study")  # behind --


def commands() -> dict[str, Command]:
    """Return every command by name, in the order of the help."""
    return {name: _load(reference) for group in GROUPS.values() for name, reference in group.items()}


def _load(reference: str) -> Command:
    module, _, name = reference.partition(":")
    command: Command = getattr(import_module(module), name)
    return command


class RootParser(Parser):
    """The parser of ``memtui``: its help groups the commands by what a user wants."""

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        lines = {action.metavar: action for table in tables_of(self) for action in table._choices_actions}
        for title, group in GROUPS.items():
            formatter.start_section(title)
            formatter.add_arguments([lines[name] for name in group])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments(self._optionals._group_actions)
        formatter.end_section()
        return formatter.format_help()


def build_parser() -> Parser:
    """Return the parser of all commands; ``run`` of what it returns is the ``Command`` that was typed."""
    from memtui._version import __version__

    parser = RootParser(
        prog="memtui",
        description="Watch the memory, time and energy of machine-learning training, page by page. "
        "Without a command: what runs, and your sessions, to choose from.",
    )
    parser.add_argument("--version", action="version", version=f"memtui {__version__}")
    parser.set_defaults(run=None, debug=False, verb="", no_config=True)
    added = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for name, command in commands().items():
        own = added.add_parser(name, help=command.summary, description=command.summary)
        own.set_defaults(run=command, verb=name)
        if not command.has_commands:
            add_common(own)
        command.add_arguments(own)
    return parser


def refuse_misplaced_option(parser: Parser, verb: str, program: Sequence[str]) -> None:
    """Raise UserError where an option without its value was probably meant for memtui.

    Everything behind ``--`` is the program's. A second ``--`` in front of the program says so of such an option, too.
    """
    if not program or verb not in TAKE_PROGRAMS:
        return
    actions: Mapping[str, argparse.Action] = tables_of(parser)[0].choices[verb]._option_string_actions
    for word, following in pairwise([*program[1:], "--"]):
        action = actions.get(word)
        lacks_value = following.startswith("-") and following != "-"
        if action is not None and word.startswith("--") and action.nargs != 0 and lacks_value:
            raise UserError(
                f"{word} behind -- has no value; for memtui it stands before: memtui {verb} {word} {action.metavar} -- "
                f"{program[0]} ...; for {program[0]}: memtui {verb} -- -- {program[0]} ..."
            )


def given_options(verb: str, argv: Sequence[str]) -> dict[str, str]:
    """Return the options that stand on the command line, in their long form, by argument; defaults are left out.

    Args:
        verb: the command.
        argv: the command line, up to ``--``; it has been parsed before without an error.
    """
    parser = build_parser()
    options = {a.dest: a for a in tables_of(parser)[0].choices[verb]._actions if a.option_strings}
    parser._defaults.clear()
    for action in options.values():
        action.default = argparse.SUPPRESS
    values = vars(parser.parse_args(argv))
    flags: dict[str, str] = {}
    for dest in options.keys() & values.keys():
        long = [flag for flag in options[dest].option_strings if flag.startswith("--")]
        flags[dest] = next((flag for flag in long if flag.startswith("--no-") == (values[dest] is False)), long[0])
    return flags
