"""Shell completion: the scripts run in the shells themselves and offer what the parser knows."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memtui.cli.completion_scripts import commands_of, every
from memtui.cli.export import FORMATS
from memtui.cli.parser import build_parser
from memtui.core.options import PLACE


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> dict[str, Path]:
    """The scripts of all shells, as the command prints them."""
    folder, made = tmp_path_factory.mktemp("completion"), {}
    for shell in ("bash", "zsh", "fish"):
        done = subprocess.run(
            [sys.executable, "-m", "memtui", "completion", shell], capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        made[shell] = folder / f"memtui.{shell}"
        made[shell].write_text(done.stdout)
    return made


@pytest.fixture
def saved(tmp_path_factory, monkeypatch) -> Path:
    """A state directory with two sessions in it."""
    state = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    sessions = state / "memtui" / "sessions"
    sessions.mkdir(parents=True)
    for name in ("train-1.memtui", "train-2.memtui", "train-2.log"):
        (sessions / name).touch()
    return sessions


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "none"))
    for name in ("one.memtui", "two words.memtui", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    return tmp_path


def bash(script: Path, folder: Path, *words: str) -> list[str]:
    """Return what bash offers for the last argument."""
    line = (
        f'source {script}; compopt() {{ :; }}; COMP_WORDS=(memtui "$@"); COMP_CWORD=$#; _memtui; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "--norc", "-c", line, "bash", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.splitlines()))


def test_every_command_and_option_is_offered(scripts, folder):
    commands = commands_of(build_parser())
    assert {"attach", "record", "export", "completion"} <= {command.name for command in commands}
    assert set(bash(scripts["bash"], folder, "")) == {*(c.name for c in commands), "--help", "--version"}
    for command in every(commands):
        flags = {flag for option in command.options for flag in option.flags}
        assert set(bash(scripts["bash"], folder, *command.name.split(), "-")) == flags
        assert "--debug" in flags or command.commands


def test_words_are_completed_by_what_they_are(scripts, folder):
    def offered(*words: str) -> list[str]:
        return bash(scripts["bash"], folder, *words)

    assert offered("exp") == ["export"]
    assert offered("replay", "") == ["one.memtui", "runs", "two words.memtui"]
    assert offered("replay", "--ascii", "tw") == ["two words.memtui"]
    assert offered("export", "one.memtui", "--to", "") == sorted(FORMATS)
    assert offered("export", "one.memtui", "-o", "") == ["runs"]
    assert offered("record", "-o", "") == ["notes.txt", "one.memtui", "runs", "two words.memtui"]
    assert offered("attach", "--tracker", "pa") == ["pagetable"]
    assert offered("attach", "--interval", "") == []
    assert offered("record", "--no-p") == ["--no-pause"]
    assert offered("completion", "") == ["bash", "fish", "zsh"]
    assert str(os.getpid()) in offered("attach", "")
    assert offered("run", "--", "no") == []  # bash's own completion takes over


def test_commands_of_a_command_are_offered(scripts, folder):
    def offered(*words: str) -> list[str]:
        return bash(scripts["bash"], folder, *words)

    assert offered("place", "") == sorted(PLACE)
    assert offered("place", "so") == ["solve"]
    assert offered("place", "solve", "") == ["one.memtui", "runs", "two words.memtui"]
    assert offered("place", "solve", "one.memtui", "--form") == ["--formulation"]
    assert offered("place", "solve", "--formulation", "as") == ["async"]
    assert offered("place", "profile", "--form") == []
    assert offered("place", "profile", "-o", "") == ["notes.txt", "one.memtui", "runs", "two words.memtui"]
    assert "--html" in offered("compare", "-")
    assert "--html" not in offered("place", "compare", "-")


@pytest.mark.parametrize("command", ["replay", "report", "export"])
def test_saved_sessions_are_offered(command, scripts, folder, saved, monkeypatch):
    here, there = ["one.memtui", "runs", "two words.memtui"], [f"{saved}/train-1.memtui", f"{saved}/train-2.memtui"]
    assert bash(scripts["bash"], folder, command, "") == sorted(here + there)
    assert bash(scripts["bash"], folder, command, "tr") == there
    assert bash(scripts["bash"], folder, command, f"{saved}/") == there
    assert bash(scripts["bash"], folder, command, "./") == [f"./{name}" for name in here]
    assert bash(scripts["bash"], folder, command, "log") == []
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(folder))
    assert bash(scripts["bash"], folder, command, "train") == []
    (folder / ".local").mkdir()
    (folder / ".local" / "state").symlink_to(saved.parent.parent)
    assert bash(scripts["bash"], folder, command, "train-1") == [
        f"{folder}/.local/state/memtui/sessions/train-1.memtui"
    ]


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish(scripts, folder, saved):
    def offered(line: str) -> set[str]:
        code = f"source {scripts['fish']}; complete -C '{line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", code], cwd=folder, capture_output=True, text=True, check=True, timeout=30
        )
        assert done.stderr == ""
        return {row.partition("\t")[0] for row in done.stdout.splitlines()}

    assert {"attach", "report"} <= offered("memtui ")
    assert {"one.memtui", "two words.memtui"} <= {name.replace("\\ ", " ") for name in offered("memtui replay ")}
    assert {f"{saved}/train-1.memtui", f"{saved}/train-2.memtui"} <= offered("memtui replay ")
    assert offered("memtui report train-2") == {f"{saved}/train-2.memtui"}
    assert offered("memtui export x --to ") == set(FORMATS)
    assert "--no-pause" in offered("memtui record --no")
    assert offered("memtui place sol") == {"solve"}
    assert "--limit" in offered("memtui place solve x --li")
    assert "--html" not in offered("memtui place compare x --ht")
    assert "--html" in offered("memtui compare x --ht")
    assert str(os.getpid()) in offered("memtui attach ")


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(TERM="dumb", COLUMNS="200", LINES="60")
            os.execvp(command[0], command)
        self.seen = ""

    def type(self, text: str, shows: str, seconds: float = 60.0) -> None:
        """Type, and wait until something stands there that did not before."""
        self.seen = ""
        os.write(self._fd, text.encode())
        end = time.monotonic() + seconds
        while shows not in self.seen and time.monotonic() < end:
            if select.select([self._fd], [], [], 0.2)[0]:
                self.seen += os.read(self._fd, 65536).decode(errors="replace")
        assert shows in self.seen, self.seen

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._fd)


@pytest.mark.parametrize(
    ("shell", "words", "setup"),
    [
        ("bash", ("bash", "--norc", "--noprofile", "-i"), "bind 'set bell-style none'"),
        ("zsh", ("zsh", "-f", "-i"), "autoload -U compinit; compinit -D -u"),
    ],
)
def test_the_tab_key(shell, words, setup, scripts, folder, saved):
    """What a user sees after Tab."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    terminal = Terminal(folder, *words)
    try:
        terminal.type(f"{setup}; source {scripts[shell]}; echo go-$((1+1))\n", "go-2")
        terminal.type("memtui replay tw\t", "two\\ words.memtui")
        terminal.type("\x15memtui report train-2\t", f"{saved}/train-2.memtui")
        terminal.type("\x15memtui export x --to \t\t", "parquet")
        terminal.type("\x15memtui compl\t", "memtui completion")
        terminal.type("\x15memtui place sol\t", "memtui place solve")
        terminal.type("--formulation asy\t", "async")
        terminal.type("\x15memtui attach --no-p\t", "--no-pause")
    finally:
        terminal.close()
