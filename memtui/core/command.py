"""One shape for every command: what it is called, what it takes, and what runs it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from memtui.core.argtypes import Parser
from memtui.core.console import Console


class Command(NamedTuple):
    """A command of ``memtui``.

    The module that has it is imported for every ``memtui --help``, so what ``run`` needs is imported when it runs.

    Attributes:
        name: the word that is typed.
        summary: one line of ``memtui --help``.
        add_arguments: adds its options and arguments to a parser.
        run: runs it and returns the exit code. The namespace has ``command``, the words behind ``--``, ``verb``, and
            ``given()``: the flags that stand on the command line, by argument, without defaults of a config file.
            It may raise UserError.
        has_commands: it has commands of its own, and these take the options that every command has.
    """

    name: str
    summary: str
    add_arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace, Console], int]
    has_commands: bool = False
