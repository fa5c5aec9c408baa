"""Completion scripts for shells, generated from the parser itself.

A parameter is completed by the name of its argument: PID by running processes, FILE of a command that reads one by
``*.memtui`` files and by the sessions in the state directory, by a prefix of their name; DIR by folders; choices by
themselves. What the parser gains later is completed, too.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memtui.core.argtypes import parsers_of

_KINDS = {"PID": "pid", "PID|NAME": "pid", "DIR": "dir", "FILE": "session"}
_KINDS |= dict.fromkeys(("GRID.toml", "LOG|DIR", "FILE|LOG"), "file")


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option or argument. ``kind``: "pid", "session", "file", "dir", "choice", "text"; "" for a flag."""

    flags: tuple[str, ...]
    kind: str
    name: str
    help: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its options and arguments, or with commands of its own, whose names begin with its own."""

    name: str
    help: str
    options: tuple[Parameter, ...]
    arguments: tuple[Parameter, ...]
    commands: tuple[Command, ...] = ()


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a shell."""
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return "\n".join(write(commands_of(parser))) + "\n"


def commands_of(parser: argparse.ArgumentParser) -> list[Command]:
    """Return the commands of a parser in the order of its help."""
    return [_command(name, own) for name, own in parsers_of(parser).items()]


def _command(name: str, parser: argparse.ArgumentParser) -> Command:
    parameters = [_parameter(a) for a in parser._actions if a.help != argparse.SUPPRESS]
    below = tuple(_command(f"{name} {verb}", own) for verb, own in parsers_of(parser).items())
    options = tuple(p for p in parameters if p.flags)
    return Command(name, parser.description or "", options, tuple(p for p in parameters if not p.flags), below)


def every(commands: Iterable[Command]) -> list[Command]:
    """Return the commands, each followed by its subcommands."""
    return [each for command in commands for each in (command, *every(command.commands))]


def _parameter(action: argparse.Action) -> Parameter:
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    flags = tuple(action.option_strings)
    choices = tuple(map(str, action.choices or ()))
    if flags and action.nargs == 0:
        kind = ""
    elif choices:
        kind = "choice"
    else:
        kind = _KINDS.get(name, "text")
        kind = "file" if kind == "session" and flags else kind
    return Parameter(flags, kind, name, action.help or "", choices)


def _bash(commands: list[Command]) -> Iterator[str]:
    yield "# memtui completion for bash: source <(memtui completion bash)"
    yield "_memtui() {"
    yield '  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command="" given=0 i'
    yield "  COMPREPLY=()"
    yield "  for ((i = 1; i < COMP_CWORD; i++)); do"
    yield "    case ${COMP_WORDS[i]} in"
    yield "      --) compopt -o default; return ;;"
    yield "      -*) ;;"
    yield '      *) case "$command ${COMP_WORDS[i]}" in'
    yield '           " "*) command=${COMP_WORDS[i]} ;;'
    for command in every(commands):
        if " " in command.name:
            yield f"           {shlex.quote(command.name)}) command={shlex.quote(command.name)} ;;"
    yield "         esac ;;"
    yield "    esac"
    yield "  done"
    yield '  if [ -z "$command" ]; then'
    yield f"    _memtui_words {shlex.quote(' '.join([*(c.name for c in commands), '--help', '--version']))}; return"
    yield "  fi"
    yield '  case "$command $prev" in'
    for command in every(commands):
        for option in command.options:
            if option.kind:
                patterns = "|".join(f'"{command.name} {flag}"' for flag in option.flags)
                yield f"    {patterns}) {_bash_action(option)}; return ;;"
    yield "  esac"
    yield '  case "$command" in'
    for command in every(commands):
        flags = shlex.quote(" ".join(flag for option in command.options for flag in option.flags))
        yield f"    {shlex.quote(command.name)})"
        yield f"      if [[ $cur == -* ]]; then _memtui_words {flags}; return; fi"
        for argument in command.arguments:
            yield f"      {_bash_action(argument)} ;;"
            break
        else:
            yield "      ;;"
    yield "  esac"
    yield "}"
    yield '_memtui_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }'
    yield '_memtui_pids() { _memtui_words "$(if [ "$EUID" = 0 ]; then ps -eo pid=; else ps -u "$EUID" -o pid=; fi)"; }'
    yield "_memtui_files() {  # what compgen is asked for: -f with a pattern, or -d; folders lead on in any case"
    yield "  compopt -o filenames"
    yield '  mapfile -t COMPREPLY < <({ compgen "$@" -- "$cur"; compgen -d -- "$cur"; } | sort -u)'
    yield "}"
    yield "_memtui_sessions() {"
    yield "  _memtui_files -f -X '!*.memtui'"
    yield "  [[ $cur == */* ]] && return  # a path is completed as it stands"
    yield "  local state=$XDG_STATE_HOME path"
    yield "  [[ $state == /* ]] || state=$HOME/.local/state"
    yield '  for path in "$state"/memtui/sessions/*.memtui; do'
    yield '    if [[ -e $path && ${path##*/} == "$cur"* ]]; then COMPREPLY+=("$path"); fi'
    yield "  done"
    yield "}"
    yield "complete -F _memtui memtui"


def _bash_action(parameter: Parameter) -> str:
    match parameter.kind:
        case "choice":
            return f"_memtui_words {shlex.quote(' '.join(parameter.choices))}"
        case "pid":
            return "_memtui_pids"
        case "session":
            return "_memtui_sessions"
        case "file":
            return "_memtui_files -f"
        case "dir":
            return "_memtui_files -d"
        case _:
            return ":"


def _zsh(commands: list[Command]) -> Iterator[str]:
    yield "#compdef memtui"
    yield "# memtui completion for zsh: memtui completion zsh > a folder of $fpath/_memtui"
    yield "_memtui() {"
    yield "  local -a commands; local state line; typeset -A opt_args"
    yield "  commands=("
    for command in commands:
        yield f"    {shlex.quote(f'{command.name}:{command.help}')}"
    yield "  )"
    first = "'(- *)--version[show the version]' '(- *)--help[show a help text]'"
    yield f"  _arguments -C {first} '1: :->command' '*:: :->rest'"
    yield "  case $state in"
    yield "    command) _describe command commands ;;"
    yield "    rest)"
    yield "      if (( ${words[(I)--]} && ${words[(I)--]} < CURRENT )); then"
    yield "        shift ${words[(I)--]} words; (( CURRENT -= ${words[(I)--]} )); _normal; return"
    yield "      fi"
    yield "      case $words[1] in"
    for command in commands:
        if command.commands:
            yield f"        {command.name})"
            yield f"          _arguments -C {_zsh_specs(command)} '*:: :->below'"
            yield "          case $words[1] in"
            for below in command.commands:
                yield f"            {below.name.split()[-1]}) _arguments {_zsh_specs(below)} ;;"
            yield "          esac ;;"
        else:
            yield f"        {command.name}) _arguments {_zsh_specs(command)} ;;"
    yield "      esac ;;"
    yield "  esac"
    yield "}"
    yield "_memtui_sessions() {"
    yield "  local state=$XDG_STATE_HOME file; local -a saved names"
    yield "  [[ $state == /* ]] || state=$HOME/.local/state"
    yield "  if [[ $PREFIX != */* ]]; then  # a path is completed as it stands"
    yield "    for file in $state/memtui/sessions/*.memtui(N); do"
    yield '      [[ ${file:t} == "$PREFIX"* ]] && saved+=($file) names+=(${file:t})'
    yield "    done"
    yield "    (( $#saved )) && compadd -U -d names -a saved"
    yield "  fi"
    yield '  _files -g "*.memtui"'
    yield "}"
    yield 'if [ "$funcstack[1]" = _memtui ]; then _memtui "$@"; else compdef _memtui memtui; fi'


def _zsh_specs(command: Command) -> str:
    """Return the options and the first argument, as ``_arguments`` takes them."""
    specs = [spec for option in command.options for spec in _zsh_options(option)]
    specs += [shlex.quote(f"1:{_zsh_stripped(p.name)}:{_zsh_action(p)}") for p in command.arguments[:1]]
    return " ".join(specs)


def _zsh_options(parameter: Parameter) -> Iterator[str]:
    for flag in parameter.flags:
        value = f":{_zsh_stripped(parameter.name)}:{_zsh_action(parameter)}" if parameter.kind else ""
        yield shlex.quote(f"{flag}[{_zsh_stripped(parameter.help)}]{value}")


def _zsh_stripped(text: str) -> str:
    """Return the text without characters that have a meaning in a specification of zsh."""
    return re.sub(r"[\[\]:\\]", " ", text)


def _zsh_action(parameter: Parameter) -> str:
    return {
        "choice": f"({' '.join(parameter.choices)})",
        "pid": "_pids",
        "session": "_memtui_sessions",
        "file": "_files",
        "dir": "_files -/",
    }.get(parameter.kind, " ")


def _fish(commands: list[Command]) -> Iterator[str]:
    yield "# memtui completion for fish: memtui completion fish > ~/.config/fish/completions/memtui.fish"
    yield "function __memtui_sessions"
    yield "  __fish_complete_suffix .memtui"
    yield "  set -l state $HOME/.local/state"
    yield "  string match -q -- '/*' \"$XDG_STATE_HOME\"; and set state $XDG_STATE_HOME"
    yield "  for path in $state/memtui/sessions/*.memtui"
    yield "    printf '%s\\tsaved session\\n' $path"
    yield "  end"
    yield "end"
    yield "complete -c memtui -f"
    yield "complete -c memtui -n 'contains -- -- (commandline -opc)' -F"
    for command in commands:
        about = _fish_quoted(command.help)
        yield f"complete -c memtui -n __fish_use_subcommand -a {command.name} -d {about}"
    for command in every(commands):
        own = command.name.split()
        tests = [f"__fish_seen_subcommand_from {name}" for name in own]
        # A name may be a command of memtui and a subcommand, too. Where a subcommand is chosen, no command follows it.
        tests += [
            f"not __fish_seen_subcommand_from {each.name}"
            for each in commands
            if own == [command.name] and f"{each.name} {command.name}" in (below.name for below in each.commands)
        ]
        if command.commands:
            below = " ".join(each.name.split()[-1] for each in command.commands)
            tests.append(f"not __fish_seen_subcommand_from {below}")
        seen = f"-n '{'; and '.join(tests)}'"
        for parameter in command.options:
            names = " ".join(f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in parameter.flags)
            value = {"": "", "file": "-r -F"}.get(parameter.kind, f"-x {_fish_action(parameter)}")
            yield f"complete -c memtui {seen} {names} -d {_fish_quoted(parameter.help)} {value}".rstrip()
        for parameter in command.arguments[:1]:
            yield f"complete -c memtui {seen} {_fish_action(parameter)}".rstrip()


def _fish_action(parameter: Parameter) -> str:
    return {
        "choice": f"-a {_fish_quoted(' '.join(parameter.choices))}",
        "pid": "-a '(__fish_complete_pids)'",
        "session": "-a '(__memtui_sessions)'",
        "file": "-F",
        "dir": "-a '(__fish_complete_directories)'",
    }.get(parameter.kind, "")


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
