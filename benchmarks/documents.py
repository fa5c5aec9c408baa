"""Puts what was measured into its place in a document: between two comments that name it."""

from __future__ import annotations

from pathlib import Path

BEGIN, END = "<!-- measured: {} -->", "<!-- end of {} -->"


def has_place(path: Path, name: str) -> bool:
    """Whether the document has the two comments, in order."""
    text = path.read_text()
    begin = text.find(BEGIN.format(name))
    return 0 <= begin < text.find(END.format(name))


def put(path: Path, name: str, text: str) -> None:
    """Replace what stands between them. Raises ValueError where there is no place."""
    if not has_place(path, name):
        raise ValueError(f"{path} has no place for {name}")
    head, begin, rest = path.read_text().partition(BEGIN.format(name))
    _, end, tail = rest.partition(END.format(name))
    path.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}")
