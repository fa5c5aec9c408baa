"""The command line: parses, calls a command and prints; each command imports what it needs itself."""

from __future__ import annotations

import argparse
import atexit
import gc
import sys
from functools import partial
from pathlib import Path

from memtui.cli.parser import TAKE_PROGRAMS, build_parser, given_options, refuse_misplaced_option
from memtui.core.argtypes import Parser, parsers_of
from memtui.core.console import Console
from memtui.core.errors import (
    FAILURE,
    INTERRUPTED,
    UserError,
    complain,
    open_standard_streams,
    output_failed,
    silence,
)
from memtui.core.text import one_line


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for bad input, 1 for a failure."""
    open_standard_streams()
    if arguments is None:
        atexit.register(gc.freeze)  # the interpreter would collect once more, just before all is gone
    try:
        return _run_command(arguments) or _flushed()
    except SystemExit:  # --help, --version, or arguments that cannot be parsed
        if code := _flushed():
            return code
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        _silenced_full()


def _flushed() -> int:
    """Return 0, or the exit code where standard output does not take what was printed."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return output_failed(error)
    return 0


def _run_command(arguments: list[str] | None) -> int:
    """Parse the arguments, run their command, and return its exit code."""
    parser = build_parser()
    own, program = _without_program(list(sys.argv[1:] if arguments is None else arguments))
    options = parser.parse_args(own)
    console = Console(options.verb)
    if options.run is None:
        if program:
            parser.error("a program needs a command before it, as in memtui run -- python train.py")
        if not console.interactive:
            parser.print_help()
            return 0
    try:
        options = _with_config(parser, own, options)
        options.given = partial(given_options, options.verb, own)
        if program[:1] == ["--"]:
            program = program[1:]
        else:
            refuse_misplaced_option(parser, options.verb, program)
        options.command = program
        code: int = _choose() if options.run is None else options.run.run(options, console)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        silence(sys.stdout)  # `memtui report FILE | head`: the reader has enough
        return 0
    except Exception as error:
        if options.debug:
            raise
        return _refuse(options, _as_user_error(options, error))


def _without_program(argv: list[str]) -> tuple[list[str], list[str]]:
    """Return memtui's own arguments, and those of the program after ``--``."""
    if "--" in argv and argv[0] in ("--", *TAKE_PROGRAMS):  # for other commands ``--`` means what argparse makes of it
        return argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    return argv, []


def _as_user_error(options: argparse.Namespace, error: Exception) -> UserError:
    """Return an error that ended the command as the user sees it."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError):
        from memtui.core.os_errors import unhandled

        if error.filename is None and _silenced_full():
            error.filename = "standard output"
        return unhandled(error, _possible_paths(options))
    return UserError(f"{type(error).__name__}: {error} (--debug shows where)", FAILURE)


def _refuse(options: argparse.Namespace, error: UserError) -> int:
    complain(one_line(f"memtui {options.verb}: {error}"))
    return error.code


def _silenced_full() -> bool:
    """Whether standard output cannot be written (a full disk), which is silenced: Python would complain at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        silence(sys.stdout)
        return True
    return False


def _possible_paths(options: argparse.Namespace) -> list[str]:
    """Return the arguments of the command line that may name a file."""
    names = []
    for value in vars(options).values():
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str | Path):
                names.append(str(each))
    return names


def _with_config(parser: Parser, argv: list[str], options: argparse.Namespace) -> argparse.Namespace:
    """Return the options parsed again, with the defaults of the user's config file."""
    if options.no_config or options.verb == "completion":
        return options
    from memtui.cli.config import apply

    apply(parsers_of(parser), options.verb)
    return parser.parse_args(argv)


def _choose() -> int:
    """Show the home screen; then run the command that was chosen, as if it had been typed."""
    from memtui.cli.home import choose_from_home

    code, chosen = choose_from_home()
    return main(list(chosen)) if chosen is not None else code


if __name__ == "__main__":
    sys.exit(main())
