"""The command line in this process."""

from __future__ import annotations

from memtui.cli.main import main


def run(capsys, *words: str) -> tuple[int, str, str]:
    try:
        code = main(list(words))
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr()
    return code, said.out, said.err
