"""Finds the process somebody means by a name or by its rank in a training, as pgrep would, but only one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from memtui.candidates import is_own
from memtui.errors import UserError
from memtui.foreign import short_command
from memtui.masking import mask_secrets
from memtui.probes.process import PROC, command_of, ranks_of
from memtui.target import ancestors, find_target, others, parse_pid

_MOST_NAMED = 6
_INTERPRETER = re.compile(r"(?:python|pypy|bash|sh|perl|ruby|node|julia)[\d.]*")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # options of Python whose value is a word of its own


@dataclass(frozen=True, slots=True)
class _Found:
    pid: int
    names: frozenset[str]
    command: str


def find(text: str | None, rank: int | None) -> tuple[int, str]:
    """(the process that is meant, one line when that is not what was typed).

    Args:
        text: a PID, here or inside a container, or a name: of the program, of the script it runs (``train.py``) or the
            module (``-m``), or else any part of the command line.
        rank: its place in a training that was started as several processes; with a PID: at or below that process.

    Raises:
        UserError: there is none, or more than one; that names them.
    """
    if text is not None and re.fullmatch(r"[-+]?\d+", text):
        pid, notice = find_target(parse_pid(text))
        if rank is None:
            return pid, notice
        inside = _below(pid, processes())
        where = f"PID {pid} and the processes below it"
    else:
        if text == "":
            raise UserError("an empty name is no process; name a PID or a program")
        inside = processes() if text is None else _named(text, processes())
        where = f"those called {text!r}" if text else "all of them"
    if rank is not None:
        inside = [p for p in inside if ranks_of(p.pid).get("RANK") == rank]
    found = _outermost(inside)
    if not found:
        raise UserError(_nothing(text, rank, where))
    if len(found) > 1:
        some = ", ".join(f"{p.pid} ({_short(p, 50)})" for p in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        what = " ".join([*([repr(text)] if text else []), *([f"rank {rank}"] if rank is not None else [])])
        raise UserError(f"{what} is {len(found)} processes; name one by its PID: {some}{more}")
    return found[0].pid, f"process {found[0].pid} ({_short(found[0], 160)})"


def processes(proc: Path = PROC) -> list[_Found]:
    """What runs and is neither memtui, nor what memtui was started from, nor the kernel's."""
    found = []
    for pid, _ in others(proc):
        folder = proc / str(pid)
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            title = (folder / "comm").read_text(errors="replace").rstrip("\n")
            command = command_of(pid)
        except OSError:
            continue
        if not is_own(command):
            found.append(_Found(pid, names_of(title, words), command))
    return sorted(found, key=lambda p: p.pid)


def names_of(title: str, words: list[str]) -> frozenset[str]:
    """What a process is called: its title, its program, and what its interpreter runs, with and without ``.py``."""
    program = os.path.basename(words[0]) if words else ""
    found = {title, program}
    if _INTERPRETER.fullmatch(program):
        rest = iter(words[1:])
        for word in rest:
            if word == "-m":
                found.add(next(rest, ""))
            elif word == "-c":
                pass  # what follows is a program text
            elif word in _WITH_VALUE:
                next(rest, None)
                continue
            elif word.startswith("-"):
                continue
            else:
                script = os.path.basename(word)
                found |= {script, script.removesuffix(".py")}
            break
    return frozenset(found - {""})


def _named(text: str, every: list[_Found]) -> list[_Found]:
    """Those that are called so; if none is, those with the text anywhere in the command line."""
    return [p for p in every if text in p.names] or [p for p in every if text.lower() in p.command.lower()]


def _below(root: int, every: list[_Found]) -> list[_Found]:
    """A process and all that come from it."""
    return [p for p in every if p.pid == root or root in _ancestors(p.pid)]


def _outermost(some: Iterable[_Found]) -> list[_Found]:
    """Without those that another of them started: workers carry the name and the environment of their parent."""
    some = list(some)
    pids = {p.pid for p in some}
    return [p for p in some if not pids & _ancestors(p.pid)]


def _ancestors(pid: int) -> set[int]:
    try:
        return ancestors(pid)
    except ProcessLookupError:
        return set()


def _short(process: _Found, characters: int) -> str:
    return short_command(mask_secrets(process.command), characters)


def _nothing(text: str | None, rank: int | None, where: str) -> str:
    if rank is None:
        return f"no process is called {text!r}, nor has it in its command line; `ps aux` shows what runs"
    return f"no process says RANK={rank} in its environment, which only its user and root may read; looked at {where}"
