"""The config file: defaults for options, named as on the command line and checked like it.

It is ``memtui/config.toml`` under ``$XDG_CONFIG_HOME`` or ``~/.config``, of the user who typed the command. Keys are
names of long options (``interval = 0.5``); a table with the name of a command (``[record]``) takes precedence for it.
Under sudo a child gives up root for good before it opens the file: root neither opens it nor follows a link to it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memtui.core.argtypes import leaves_of
from memtui.core.errors import UserError
from memtui.core.os_errors import READ, refused
from memtui.core.small_file import read_small_bytes

MAX_BYTES = 1 << 16
# Options of one call, which make no sense as defaults.
_NEVER = frozenset((
    "help", "version", "debug", "no-config", "force", "output", "json", "html", "to", "rank", "session", "again",
    "config", "grid", "shard", "set", "resume", "retry", "limit", "ratio", "run", "model",
))  # fmt: skip
_MOST_LISTED = 30  # names in one line; more do not help
Commands = dict[str, argparse.ArgumentParser]


def apply(commands: Commands, verb: str) -> None:
    """Give a command's parser the defaults of the user's file, if there is one.

    Raises:
        UserError: with file, key and what is allowed; also for tables of other commands.
    """
    path, text = _read()
    if text is None:
        return
    import tomllib

    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is not TOML: {error}") from None
    try:
        values = _defaults(commands, verb, document)
        for parser in leaves_of(commands[verb]):
            own = {action.dest for action in parser._actions}
            parser.set_defaults(**{name: value for name, value in values.items() if name in own})
    except ValueError as error:
        end = " " if str(error).endswith("?") else "; "
        raise UserError(f"{path}: {error}{end}--no-config goes on without the file") from None


def _defaults(commands: Commands, verb: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the values by argument. All keys are checked, whatever the command. Raises ValueError."""
    options = {
        name: {key: action for leaf in leaves_of(parser) for key, action in options_of(leaf).items()}
        for name, parser in commands.items()
    }
    every = {key: action for table in options.values() for key, action in table.items()}
    values: dict[str, Any] = {}
    tables = [key for key, value in document.items() if isinstance(value, dict)]
    for key, value in document.items():
        if key not in tables:
            parsed = _value(key, value, every)
            if key in options[verb]:
                values[options[verb][key].dest] = parsed
    for table in tables:
        if table not in options:
            raise ValueError(f"[{table}]: is not a command; {_meant(table, options)}")
        for key, value in document[table].items():
            parsed = _value(key, value, options[table], f"[{table}] ")
            if table == verb:
                values[options[verb][key].dest] = parsed
    return values


def options_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the options that may be set, by their long name."""
    options = {}
    for action in parser._actions:  # argparse has no public way to its own table
        for flag in action.option_strings:
            negated = isinstance(action, argparse.BooleanOptionalAction) and flag.startswith("--no-")
            if flag.startswith("--") and not negated and flag[2:] not in _NEVER:
                options[flag[2:]] = action
    return options


def _value(key: str, value: Any, options: dict[str, argparse.Action], where: str = "") -> Any:
    """Return a value in the type that the command line would have converted it to. Raises ValueError."""
    action = options.get(key)
    if action is None:
        raise ValueError(f"{where}{key}: is not an option that can be set here; {_meant(key, options)}")
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ValueError(f"{where}{key}: must be true or false, not {_as_toml(value)}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{where}{key}: must be {_kind(action)}, not {_as_toml(value)}")
    parsed: Any = str(value)
    if callable(action.type):
        try:
            parsed = action.type(parsed)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{where}{key}: {error}") from None
        except (TypeError, ValueError):
            raise ValueError(f"{where}{key}: must be {_kind(action)}, not {_as_toml(value)}") from None
    if action.choices is not None and parsed not in action.choices:
        raise ValueError(f"{where}{key}: must be {_kind(action)}, not {_as_toml(value)}")
    return parsed


def _meant(name: str, allowed: Iterable[str]) -> str:
    """Return the closest allowed name, or else all of them, as far as one line has room for them."""
    from difflib import get_close_matches

    names = sorted(allowed)
    if near := get_close_matches(name.lower().replace("_", "-"), names, 2, 0.7):
        return f"did you mean {' or '.join(near)}?"
    if len(names) <= _MOST_LISTED:
        return f"allowed: {', '.join(names) or 'nothing'}"
    return "allowed: long options of a command (memtui attach --help) that are not about one call"


def _kind(action: argparse.Action) -> str:
    if action.choices is not None:
        return f"one of {', '.join(map(str, action.choices))}"
    return "a text" if action.type is None else "a number or a text"


def _as_toml(value: Any) -> str:
    """Return a value as TOML would write it, cut short."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _read() -> tuple[Path, str | None]:
    """Return the place and text of the invoking user's file; no text where there is none. Raises UserError."""
    if getattr(os, "geteuid", lambda: -1)() != 0 or "SUDO_UID" not in os.environ:
        return _read_here()  # also on systems that know no such rights
    from memtui.core.privilege import as_invoker

    def read() -> tuple[str, str | None]:
        path, text = _read_here()
        return str(path), text

    path, text = as_invoker(read)
    return Path(path), text


def _read_here() -> tuple[Path, str | None]:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        # The XDG specification: a relative path is to be ignored.
        folder = Path(base) if Path(base).is_absolute() else Path.home() / ".config"
    except RuntimeError:
        return Path(), None  # the user has no home
    path = folder / "memtui" / "config.toml"
    try:
        return path, read_small_bytes(path, MAX_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError):
        return path, None
    except OSError as error:
        if not _in_reach(path):
            return path, None  # HOME is another user's, as after su without a login
        raise refused(path, error, READ, remedy="--no-config goes on without the file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not TOML: it is not UTF-8") from None


def _in_reach(path: Path) -> bool:
    """Whether the folder of a file can be searched."""
    try:
        os.lstat(path)
    except OSError:
        return False
    return True
