"""Writes the pages of docs/reference that say what the program says: cli.md, keys.md, config.md, session-format.md.

Run as ``python docs/reference.py``; a test says when they are stale.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import memtui
from memtui.cli.config import options_of
from memtui.cli.parser import GROUPS, build_parser
from memtui.core.argtypes import leaves_of, parsers_of
from memtui.tui.screens.help_texts import ALONE
from memtui.tui.screens.memory.keys import KEYS

FOLDER = Path(__file__).parent / "reference"
MADE = "<!-- made by docs/reference.py -->"
_NAMES = {
    "question_mark": "?", "right_square_bracket": "]", "left_square_bracket": "[", "plus": "+", "equals_sign": "=",
    "minus": "-", "slash": "/", "escape": "Esc", "full_stop": ".", "comma": ",", "colon": ":", "tab": "Tab",
    "shift+tab": "shift+Tab", "pagedown": "page down", "pageup": "page up",
}  # fmt: skip
CONFIG = """# The configuration file

`~/.config/memtui/config.toml` (or under `$XDG_CONFIG_HOME`) sets options by their long names, for all commands that
have them or, in a table, for one. The command line goes before it, `--no-config` leaves it out.

    interval = 0.5
    color = "256"

    [record]
    tracker = "pagetable"
    filter = "exec,noaccess,pages<4"

Values are checked like those of the command line; a mistake is one line with file, key and what is allowed or was
perhaps meant. Under sudo it is your file still, and it is read as you.

What can be set, and for which commands:
"""


KEYS_HEAD = """# Keys

The same on a live run, on a saved session, and on one that another terminal still records. On the screen `?` shows
them, about the chosen panel first, and `:` finds an action by its name.
"""
CLI = """# The command line

`memtui COMMAND`. Without a command: what runs, and your sessions, to choose from.

Exit codes: 0; 2 for bad input and 1 for a failure, each with one line on standard error (`--debug` shows where it came
from); 3 where `--stop-when` ended a recording; of `run` and `record -- CMD` that of the program. Every command has
`--help`, `--debug` and `--no-config` (do not read the configuration file).
"""
SHARED = ("observation", "screen")  # groups of options that several commands have


def cli() -> str:
    """Every command with its arguments and options."""
    parsers = parsers_of(build_parser())
    lines = [CLI, MADE]
    for title, group in GROUPS.items():
        lines += ["", f"## {title.capitalize()}"]
        for name in group:
            below = parsers_of(parsers[name])
            lines += ["", f"### memtui {name}", "", _sentence(parsers[name].description)]
            if not below:
                lines += _options(parsers[name])
            for verb, own in below.items():
                lines += ["", f"#### memtui {name} {verb}", "", _sentence(own.description), *_options(own)]
    for title in SHARED:
        lines += ["", f"## Options of {title}", "", "| | |", "|---|---|"]
        found: dict[str, str] = {}
        for parser in parsers.values():
            for leaf in leaves_of(parser):
                found |= {line: line for line in map(_line, _group(leaf, title))}
        lines += found
    return "\n".join(lines) + "\n"


def _group(parser: argparse.ArgumentParser, title: str) -> list[argparse.Action]:
    return [action for group in parser._action_groups if group.title == title for action in group._group_actions]


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    shared = [title for title in SHARED if _group(parser, title)]
    elsewhere = [action for title in shared for action in _group(parser, title)]
    own = [
        action
        for action in parser._actions
        if action not in elsewhere and action.dest not in ("help", "debug", "no_config")
    ]
    if own:
        yield from ("", "| | |", "|---|---|", *map(_line, own))
    if shared:
        yield from ("", f"And the options of {' and '.join(shared)}, see below.")


def _line(action: argparse.Action) -> str:
    value = action.metavar or "|".join(map(str, action.choices or ()))
    names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    takes = f" {value}" if action.option_strings and action.nargs != 0 and value else ""
    text = _whole(action.help)
    if action.choices and action.metavar and str(action.choices[0]) not in text:
        text += f" ({', '.join(map(str, action.choices))})"
    return f"| `{_cell(names + takes)}` | {_cell(text)} |"


def _sentence(text: str | None) -> str:
    whole = _whole(text)
    return f"{whole[:1].upper()}{whole[1:]}."


def _whole(text: str | None) -> str:
    return " ".join((text or "").replace("%%", "%").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def keys() -> str:
    """Every key of the memory screen, and the help of the other screens."""
    lines = [KEYS_HEAD, MADE, "", "| key | does |", "|---|---|"]
    for binding in KEYS:
        names = " ".join(f"`{_NAMES.get(key, key)}`" for key in binding.key.split(","))
        lines.append(f"| {_cell(names)} | {binding.description} |")
    lines += ["| click | the cursor: one moment for all panels, and the address and pages under it in the heat map |"]
    lines += ["", "## Other screens", "", "As `?` shows it there."]
    for name, text in ALONE.items():
        lines += ["", f"### {name.capitalize()}", ""]
        lines += [f"    {line}".rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(lines) + "\n"


def config() -> str:
    """What may be set, and for which commands."""
    commands: dict[str, list[str]] = {}
    about: dict[str, argparse.Action] = {}
    for name, parser in parsers_of(build_parser()).items():
        for leaf in leaves_of(parser):
            for key, action in options_of(leaf).items():
                about.setdefault(key, action)
                if name not in commands.setdefault(key, []):
                    commands[key].append(name)
    lines = [CONFIG, MADE, "", "| key | value | commands |", "|---|---|---|"]
    for key in sorted(commands):
        action = about[key]
        value = (
            "true or false" if action.nargs == 0 else ", ".join(map(str, action.choices or ())) or str(action.metavar)
        )
        lines.append(f"| `{key}` | {_cell(value)} | {', '.join(commands[key])} |")
    return "\n".join(lines) + "\n"


SESSION = """# The format of a session

A session is one SQLite file. Other programs read it with any SQLite library; `memtui export` writes the same as CSV,
Parquet or JSON, which is the better way for whoever wants figures and not bits. Sessions of formats 6 and newer are
read; a newer one is refused in one line. A session that is still recorded is read while it grows (write-ahead log).

Blobs are zlib streams of little-endian 64-bit integers, some with a head of counts and names as JSON
(`memtui/session/blobs.py`); page sets are described in `memtui/core/page_set.py`.
"""


def session_format() -> str:
    """The schema, with its comments."""
    schema = (Path(memtui.__file__).parent / "session" / "schema.sql").read_text()
    return f"{SESSION}\n{MADE}\n\n```sql\n{schema.strip()}\n```\n"


PAGES = {"cli.md": cli, "keys.md": keys, "config.md": config, "session-format.md": session_format}


def main() -> None:
    """Write all of them."""
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make())


if __name__ == "__main__":
    main()
