"""Recordings of real machines: what a GPU's driver and PyTorch's allocator said there (made by `make gpu-check`)."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from tests.support.repository import ROOT

H200 = ROOT / "tests" / "recordings" / "h200"  # NVIDIA H200, driver 580.159.04, torch 2.11.0+cu130
HISTORIES = ("plain", "streams", "graphs", "expandable")


def recording(name: str) -> Any:
    """Return a recording of the H200, from JSON."""
    return json.loads(lzma.decompress((H200 / f"{name}.json.xz").read_bytes()))


def unpacked(name: str, folder: Path) -> Path:
    """Write a recording of the H200 as plain JSON into a folder, and return its path."""
    path = folder / f"{name}.json"
    path.write_bytes(lzma.decompress((H200 / f"{name}.json.xz").read_bytes()))
    return path
