"""What every benchmark is given: how long it may take, and a folder for its sessions."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


@dataclass(slots=True)
class Run:
    """One run of the benchmarks.

    Attributes:
        quick: fewer and shorter measurements, to see that everything works.
        folder: empty, gone afterwards.
        cache: kept between runs.
        kept: what one benchmark measured and another one wants, too.
        tables: further tables, printed below that of the figures.
    """

    quick: bool
    folder: Path
    cache: Path = ROOT / "build" / "benchmarks"
    kept: dict[Any, Any] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)


def memtui(*words: object) -> list[str]:
    """The command as installed beside this interpreter, or else as a module."""
    script = shutil.which("memtui", path=str(Path(sys.executable).parent))
    return [*([script] if script else [sys.executable, "-m", "memtui"]), *map(str, words)]


def say(text: str) -> None:
    """A word about the progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)
