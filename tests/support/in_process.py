"""The command line in this process."""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stderr, redirect_stdout

from memtui.cli.main import main


def run(capsys, *words: str) -> tuple[int, str, str]:
    try:
        code = main(list(words))
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr()
    return code, said.out, said.err


def memtui_here(*words: object, **_: object) -> subprocess.CompletedProcess[str]:
    """Run what ``tests.support.cli.memtui`` runs, without the start of a process and its imports."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(list(map(str, words)))
        except SystemExit as left:
            code = left.code
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
