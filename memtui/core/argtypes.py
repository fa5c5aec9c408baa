"""The parser of the command line, and the types of its options, which check a text and convert its unit."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from memtui.core.errors import BAD_INPUT, complain, output_failed
from memtui.core.options import (
    DURATION_NS,
    INTERVAL_NS,
    LEAST_MAX_BYTES,
    MAX_OVERHEAD_PPM,
    MAX_PAUSE_NS,
    MOST_SEED,
    TIMINGS,
)
from memtui.core.text import one_line

_STARTS_PROGRAMS = ("run", "trace")


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line.

    Attributes:
        elsewhere: by option that this command does not have: the command that has it.
    """

    elsewhere: Mapping[str, str] = MappingProxyType({})

    def error(self, message: str) -> NoReturn:
        self._refuse(message, self.prog)

    @staticmethod
    def _refuse(message: str, prog: str) -> NoReturn:
        end = " " if message.endswith("?") else "; "
        complain(one_line(f"{prog}: {message}{end}see {prog} --help"))
        sys.exit(BAD_INPUT)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print as in argparse; a failed write is reported in one line."""
        try:
            super()._print_message(message, file)
        except OSError as error:
            sys.exit(output_failed(error))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as in argparse, but the error for an unknown argument names the command and its help."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            verb = getattr(options, "verb", "")
            self._refuse(f"unrecognized arguments: {' '.join(unknown)}", f"{self.prog} {verb}".strip())
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Check as in argparse, but suggest the closest choice, and call a command a command."""
        if action.choices is None or value in action.choices:
            return
        names = [str(name) for name in action.choices]
        from difflib import get_close_matches

        near = get_close_matches(str(value), names, 1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        if isinstance(action, argparse._SubParsersAction):
            if str(value).isdecimal() and "attach" in names:
                meant = f"did you mean {self.prog} attach {value}?"
            raise argparse.ArgumentError(None, f"there is no command {value!r}; {meant}")
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {meant}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as in argparse, but suggest the closest option, and tell options from unexpected arguments."""
        options, unknown = super().parse_known_args(args, namespace)
        for word in (word.partition("=")[0] for word in unknown if word.startswith("-")):
            if word in self.elsewhere:
                self.error(f"{word} is an option of {self.elsewhere[word]}")
            if not word.startswith("--"):
                continue
            from difflib import get_close_matches

            if near := get_close_matches(word, self._option_string_actions, 1, 0.75):
                self.error(f"there is no {word}; did you mean {near[0]}?")
        verb = getattr(options, "verb", "")
        if verb in _STARTS_PROGRAMS and any(not word.startswith("-") for word in unknown):
            self.error(f"a program comes after --, as in memtui {verb} -- {' '.join(unknown)}")
        return options, unknown


def tables_of(parser: argparse.ArgumentParser) -> list[argparse._SubParsersAction[Any]]:
    """Return the subparser actions of a parser; argparse has no public way to get them."""
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def parsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command."""
    return {name: command for table in tables_of(parser) for name, command in table.choices.items()}


def leaves_of(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parsers that take the options of a command: its own, or those of its subcommands."""
    return [leaf for command in parsers_of(parser).values() for leaf in leaves_of(command)] or [parser]


def group_of(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Return the group with that title; create it where it is missing."""
    return next((g for g in parser._action_groups if g.title == title), None) or parser.add_argument_group(title)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    parser.add_argument("--no-config", action="store_true", help="do not read your config file")


def add_json(parser: argparse._ActionsContainer, help: str = "as one JSON document") -> None:  # noqa: A002
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help=help)


def checked(parse: Callable[[str], Any], text: str) -> Any:
    """Return ``parse(text)``; a ValueError becomes argparse's error."""
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_UNITS_S = {"ms": 1e-3, "s": 1, "min": 60, "m": 60, "h": 3600}  # "ms" before "s"


def _seconds(text: str) -> float:
    """Parse a time, in seconds where no unit follows: ``1.5``, ``200ms``, ``10min``."""
    unit = next((unit for unit in _UNITS_S if text.endswith(unit)), "")
    try:
        value = float(text.removesuffix(unit)) * _UNITS_S.get(unit, 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, not {text!r}") from None
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"must be above 0 seconds, not {text}")
    return value


def _seconds_within(text: str, bounds_ns: tuple[int, int], bounds: str) -> float:
    """``bounds``: the same in words, with the unit."""
    value = _seconds(text)
    if not bounds_ns[0] <= value * 1e9 <= bounds_ns[1]:
        raise argparse.ArgumentTypeError(f"must be {bounds}, not {text}")
    return value


def interval(text: str) -> float:
    """Parse ``--interval``."""
    return _seconds_within(text, INTERVAL_NS, "from 0.001 to 3600 seconds")


def max_pause(text: str) -> float:
    """Parse ``--max-pause``."""
    return _seconds_within(text, MAX_PAUSE_NS, "from 0.005 to 5 seconds")


def duration(text: str) -> float:
    """Parse ``--duration``."""
    return _seconds_within(text, DURATION_NS, "from 1 ms to ten years, in seconds")


def path(text: str) -> Path:
    """Parse the path of a file or a folder."""
    if not text:
        raise argparse.ArgumentTypeError("must be a name, not nothing")
    if "\0" in text:
        raise argparse.ArgumentTypeError("must be a name, and none has a NUL character")
    return Path(text)


def moment(text: str) -> float:
    """Parse ``--from``, ``--until`` of an import."""
    return _seconds_within(text, (0, DURATION_NS[1]), "at most ten years, in seconds")


def percent(text: str) -> float:
    """Parse ``--fraction``: a share in per cent, with or without the sign."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of per cent, such as 5, not {text!r}") from None
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"must be from 0 to 100 per cent, not {text}")
    return value


def overhead(text: str) -> int | None:
    """Parse ``--max-overhead``: per cent, with or without the sign; return parts per million, None for ``none``."""
    from memtui.core.units import parse_budget_ppm

    try:
        return parse_budget_ppm(text, MAX_OVERHEAD_PPM)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be {error}, not {text!r}") from None


def blocks(text: str) -> int:
    """Parse ``--blocks``."""
    return whole_number(text, 1, 1000)


def rank(text: str) -> int:
    """Parse ``--rank``."""
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise argparse.ArgumentTypeError(f"must be a whole number from 0, not {text!r}")
    return int(text)


def max_size(text: str) -> int | None:
    """Parse ``--max-size``; None lets the file grow."""
    from memtui.core.units import parse_size

    if text == "none":
        return None
    try:
        value = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; none lets it grow") from None
    if value < LEAST_MAX_BYTES:
        raise argparse.ArgumentTypeError(f"must be at least {LEAST_MAX_BYTES >> 20}MiB, not {text}")
    return value


def size(text: str) -> int:
    """Parse ``--limit``."""
    from memtui.core.units import parse_size

    try:
        value = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not value:
        raise argparse.ArgumentTypeError("must be above 0 bytes; --ratio 1:0 is a plan without fast memory")
    return value


def timings(text: str) -> tuple[str, ...]:
    """Parse ``--mode`` of memtui place: ways of timing, in the order of ``options.TIMINGS``."""
    names = [name.strip() for name in text.split(",")]
    if wrong := [name for name in names if name not in TIMINGS]:
        raise argparse.ArgumentTypeError(f"there is no way of timing {wrong[0]!r}: name some of {', '.join(TIMINGS)}")
    return tuple(way for way in TIMINGS if way in names)


def batch(text: str) -> int:
    """Parse ``--batch``."""
    return whole_number(text, 1, 1 << 20)


def device(text: str) -> str:
    """Parse ``--device``."""
    kind, colon, number = text.partition(":")
    if text == "cuda":
        return "cuda:0"
    if text != "cpu" and not (kind == "cuda" and colon and number.isascii() and number.isdigit() and len(number) < 4):
        raise argparse.ArgumentTypeError(f"must be cpu or cuda:N, not {text!r}")
    return text


def threads(text: str) -> int:
    """Parse ``--threads``."""
    return whole_number(text, 1, 4096)


def windows(text: str) -> int:
    """Parse ``--windows``: from two there is an interval."""
    return whole_number(text, 1, 1000)


def window_seconds(text: str) -> float:
    """Parse ``--seconds`` of a window."""
    return _seconds_within(text, (10**7, 3_600 * 10**9), "from 0.01 to 3600 seconds")


def megahertz(text: str) -> float:
    """Parse ``--clock`` of ``bench predict``."""
    return _number(text, "MHz", "from above 0 to 100000 MHz", lambda value: 0 < value <= 1e5)


def watts(text: str) -> float:
    """Parse ``--assume-watts``."""
    return _number(text, "watts", "above 0 watts", lambda value: 0 < value <= 1e6)


def grams_a_kwh(text: str) -> float:
    """Parse ``--gco2-per-kwh``."""
    return _number(text, "grams", "from 0 to 10000 grams", lambda value: 0 <= value <= 10_000)


def _number(text: str, unit: str, allowed: str, is_allowed: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of {unit}, not {text!r}") from None
    if not (math.isfinite(value) and is_allowed(value)):
        raise argparse.ArgumentTypeError(f"must be {allowed}, not {text}")
    return value


def seed(text: str) -> int:
    """Parse ``--seed``: of random numbers, as PyTorch and NumPy take it."""
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= MOST_SEED):
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to {MOST_SEED}, not {text!r}")
    return int(text)


def jobs(text: str) -> int:
    """Parse ``--jobs``: an array of Slurm has 1000 tasks at most, unless another limit is configured."""
    return whole_number(text, 1, 1000)


def steps(text: str) -> int:
    """Parse the count of steps from one whose allocations are recorded to the next."""
    return whole_number(text, 1, 1_000_000)


def whole_number(text: str, low: int, high: int) -> int:
    """Read a whole number of a range."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and low <= int(text) <= high):
        raise argparse.ArgumentTypeError(f"must be a whole number from {low} to {high}, not {text!r}")
    return int(text)
