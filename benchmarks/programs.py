"""Programs of others that memtui is measured beside. They are not part of memtui: this only finds where they lie."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.run import ROOT
from benchmarks.table import Skip

VARIABLE = "MEMTUI_PEERS"
"""Folders with these programs, separated by colons; each program lies in one of them, or a folder below, or on PATH."""
SOURCES = {
    "masim": "https://github.com/sjp38/masim",
    "wss-v2": "https://github.com/brendangregg/wss",
    "wss.pl": "https://github.com/brendangregg/wss",
}


def find(name: str) -> Path:
    """The program. Raises Skip, which says where it comes from."""
    folders = os.environ.get(VARIABLE) or str(ROOT / "build" / "peers")
    for folder in map(Path, folders.split(os.pathsep)):
        for place in (folder / name, *sorted(folder.glob(f"*/{name}"))):
            if place.is_file() and os.access(place, os.X_OK):
                return place
    if found := shutil.which(name):
        return Path(found)
    raise Skip(f"{name} is neither in {VARIABLE} nor on PATH ({SOURCES[name]})")
