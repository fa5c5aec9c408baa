"""Finds the process that is to be observed by a number, a name or a rank, as pgrep would, but only one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.procfs import PROC, command_of, ranks_of
from memtui.core.text import some_of
from memtui.recording.targets import ancestors, find_target, is_own, others, parse_pid, recognisable

_MOST_NAMED = 6
_INTERPRETER = re.compile(r"(?:python|pypy|bash|sh|perl|ruby|node|julia)[\d.]*")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # options of Python whose value is an argument of its own


@dataclass(frozen=True, slots=True)
class _NamedProcess:
    pid: int
    names: frozenset[str]
    command: str


def find(text: str | None, rank: int | None) -> tuple[int, str]:
    """Return (the process that is meant, one line when that is not what was typed).

    Args:
        text: a PID, here or inside a container, or a name: of the program, of the script it runs (``train.py``) or the
            module (``-m``), or else any part of the command line.
        rank: its place in a training that was started as several processes; with a PID: at or below that process.

    Raises:
        UserError: no process matches, or several do, which the text names.
    """
    if text is not None and re.fullmatch(r"[-+]?\d+", text):
        pid, notice = find_target(parse_pid(text))
        if rank is None:
            return pid, notice
        inside = _below(pid, processes())
        where = f"PID {pid} and the processes below it"
    else:
        if text == "":
            raise UserError("an empty name is not a process; name a PID or a program")
        inside = processes() if text is None else _named(text, processes())
        where = f"those called {text!r}" if text else "all of them"
    if rank is not None:
        inside = [p for p in inside if ranks_of(p.pid).get("RANK") == rank]
    matches = _outermost(inside)
    if not matches:
        raise UserError(_nothing(text, rank, where))
    if len(matches) > 1:
        some = some_of(matches, _MOST_NAMED, lambda p: f"{p.pid} ({recognisable(p.pid, 50)})")
        what = " ".join([*([repr(text)] if text else []), *([f"rank {rank}"] if rank is not None else [])])
        raise UserError(f"{what} is {len(matches)} processes; name one by its PID: {some}")
    return matches[0].pid, f"process {matches[0].pid} ({recognisable(matches[0].pid, 160)})"


def processes(proc: Path = PROC) -> list[_NamedProcess]:
    """Return what runs and is neither memtui, nor what memtui was started from, nor the kernel's."""
    result = []
    for pid, _ in others(proc):
        folder = proc / str(pid)
        try:
            argv = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            title = (folder / "comm").read_text(errors="replace").rstrip("\n")
            command = command_of(pid)
        except OSError:
            continue
        if not is_own(command):
            result.append(_NamedProcess(pid, names_of(title, argv), command))
    return sorted(result, key=lambda p: p.pid)


def names_of(title: str, argv: list[str]) -> frozenset[str]:
    """Return what a process is called: its title, its program, what its interpreter runs, with and without ``.py``."""
    program = argv[0].rpartition("/")[2] if argv else ""
    names = {title, program}
    if _INTERPRETER.fullmatch(program):
        rest = iter(argv[1:])
        for word in rest:
            if word == "-m":
                names.add(next(rest, ""))
            elif word == "-c":
                pass  # what follows is a program text
            elif word in _WITH_VALUE:
                next(rest, None)
                continue
            elif word.startswith("-"):
                continue
            else:
                script = word.rpartition("/")[2]
                names |= {script, script.removesuffix(".py")}
            break
    return frozenset(names - {""})


def _named(text: str, candidates: list[_NamedProcess]) -> list[_NamedProcess]:
    """Return the processes of that name; without any, those with the text anywhere in the command line."""
    return [p for p in candidates if text in p.names] or [p for p in candidates if text.lower() in p.command.lower()]


def _below(root: int, candidates: list[_NamedProcess]) -> list[_NamedProcess]:
    """Return a process and its descendants."""
    return [p for p in candidates if p.pid == root or root in ancestors(p.pid)]


def _outermost(matches: Iterable[_NamedProcess]) -> list[_NamedProcess]:
    """Return the processes without descendants of another one: workers have the name of their parent."""
    matches = list(matches)
    pids = {p.pid for p in matches}
    return [p for p in matches if not pids & ancestors(p.pid)]


def _nothing(text: str | None, rank: int | None, where: str) -> str:
    if rank is None:
        return f"no process is called {text!r}, nor has it in its command line; `ps aux` shows what runs"
    return f"no process says RANK={rank} in its environment, which only its user and root may read; looked at {where}"
