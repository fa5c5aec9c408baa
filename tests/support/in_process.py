"""The command line in this process."""

from __future__ import annotations

import io
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from memtui.cli.main import main


def run(capsys, *words: str) -> tuple[int, str, str]:
    try:
        code = main(list(words))
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr()
    return code, said.out, said.err


def memtui_here(*words: object, cwd: Path | str = ".", timeout: float = 0) -> subprocess.CompletedProcess[str]:
    """Run what ``tests.support.cli.memtui`` runs, without a process of its own; nothing ends it after ``timeout``."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), chdir(cwd):
        try:
            code = main(list(map(str, words)))
        except SystemExit as left:
            code = left.code
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
