"""Screens as text, compared with those that were stored."""

from __future__ import annotations

import os

from tests.support.repository import ROOT

FOLDER = ROOT / "tests" / "goldens"


def compare(name: str, text: str) -> None:
    path = FOLDER / f"{name}.txt"
    if os.environ.get("MEMTUI_GOLDENS") == "write":
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    assert text + "\n" == path.read_text(), f"{path} is another picture"
