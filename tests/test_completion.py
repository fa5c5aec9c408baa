"""Shell completion: the scripts run in the shells themselves and offer what the parser knows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.cli import _build_parser
from memtui.completion import commands_of


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
def folder(tmp_path):
    for name in ("one.memtui", "two words.memtui", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    return tmp_path


def bash(script: Path, folder: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    line = (
        f'source {script}; compopt() {{ :; }}; COMP_WORDS=(memtui "$@"); COMP_CWORD=$#; _memtui; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "--norc", "-c", line, "bash", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.splitlines()))


def test_every_command_and_option_is_offered(scripts, folder):
    commands = commands_of(_build_parser())
    assert {"attach", "record", "export", "completion"} <= {command.name for command in commands}
    assert set(bash(scripts["bash"], folder, "")) == {*(c.name for c in commands), "--help", "--version"}
    for command in commands:
        flags = {flag for option in command.options for flag in option.flags}
        assert set(bash(scripts["bash"], folder, command.name, "-")) == flags
        assert "--debug" in flags


def test_words_are_completed_by_what_they_are(scripts, folder):
    def offered(*words: str) -> list[str]:
        return bash(scripts["bash"], folder, *words)

    assert offered("exp") == ["export"]
    assert offered("replay", "") == ["one.memtui", "runs", "two words.memtui"]
    assert offered("replay", "--ascii", "tw") == ["two words.memtui"]
    assert offered("export", "one.memtui", "--to", "") == ["csv", "html", "json", "parquet", "svg"]
    assert offered("export", "one.memtui", "-o", "") == ["runs"]
    assert offered("record", "-o", "") == ["notes.txt", "one.memtui", "runs", "two words.memtui"]
    assert offered("attach", "--tracker", "pa") == ["pagetable"]
    assert offered("attach", "--interval", "") == []
    assert offered("record", "--no-p") == ["--no-pause"]
    assert offered("completion", "") == ["bash", "fish", "zsh"]
    assert str(os.getpid()) in offered("attach", "")
    assert offered("run", "--", "no") == []  # bash's own completion takes over


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish(scripts, folder):
    def offered(line: str) -> set[str]:
        code = f"source {scripts['fish']}; complete -C '{line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", code], cwd=folder, capture_output=True, text=True, check=True, timeout=30
        )
        assert done.stderr == ""
        return {row.partition("\t")[0] for row in done.stdout.splitlines()}

    assert {"attach", "report"} <= offered("memtui ")
    assert {"one.memtui", "two words.memtui"} <= {name.replace("\\ ", " ") for name in offered("memtui replay ")}
    assert offered("memtui export x --to ") == {"csv", "html", "json", "parquet", "svg"}
    assert "--no-pause" in offered("memtui record --no")
    assert str(os.getpid()) in offered("memtui attach ")


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh(scripts, folder):
    """The script in a zsh of its own, on a terminal: what stands there after Tab."""
    import pty
    import select
    import time

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(TERM="dumb", COLUMNS="200", LINES="60")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    seen = ""

    def until(what: str, seconds: float = 30.0) -> None:
        nonlocal seen
        end = time.monotonic() + seconds
        while what not in seen and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 65536).decode(errors="replace")
        assert what in seen, seen

    try:
        setup = f"autoload -U compinit; compinit -D -u; source {scripts['zsh']}; print go-$((1+1))"
        os.write(terminal, f"{setup}\n".encode())
        until("go-2")
        os.write(terminal, b"memtui replay one\t")
        until("one.memtui")
        os.write(terminal, b"\x15")
        seen = ""
        os.write(terminal, b"memtui export x --to \t\t")
        until("parquet")
        os.write(terminal, b"\x15")
        seen = ""
        os.write(terminal, b"memtui att\t")
        until("memtui attach")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)
