"""The interface of all commands: name, arguments, and the function that runs them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from memtui.core.argtypes import Parser
from memtui.core.console import Console


class Command(NamedTuple):
    """A command of ``memtui``.

    Its module is imported for every ``memtui --help``, so ``run`` imports what it needs when it runs.

    Attributes:
        name: the word that is typed.
        summary: one line of ``memtui --help``.
        add_arguments: adds its options and arguments to a parser.
        run: runs the command and returns the exit code. The namespace has ``command`` (the arguments after ``--``),
            ``verb``, and ``given()``: the flags on the command line, by argument, without defaults of a config file.
            It may raise UserError.
        has_commands: the command has subcommands, and these take the options that every command has.
    """

    name: str
    summary: str
    add_arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace, Console], int]
    has_commands: bool = False
