"""Messages between the damon tracker and the process that owns DAMON's interface: a line of JSON for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memtui.probes.pages.damon.regions import Regions


@dataclass(frozen=True, slots=True)
class Watch:
    """An order: watch a process from now on. Reports about the process carry the same ``serial``."""

    watch: int
    serial: int


@dataclass(frozen=True, slots=True)
class Forget:
    """An order: stop watching a process."""

    forget: int


@dataclass(frozen=True, slots=True)
class Pace:
    """An order: windows of this length, with or without a flush; None: watch nothing for now."""

    interval_ns: int | None
    flush: bool


Order = Watch | Forget | Pace


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker owns the interface; ``found`` is the tree of files as it was before (``sysfs.Tree``)."""

    found: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Accessed:
    """The result of an interval that ended at ``t_ns``: pid, serial and accessed regions of each process."""

    t_ns: int
    touched: Sequence[tuple[int, int, Regions]]


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error, as one line of text."""

    error: str


Report = Ready | Accessed | Trouble


def to_line(message: Order | Report) -> bytes:
    """Return one line of JSON."""
    return json.dumps({name: getattr(message, name) for name in message.__slots__}).encode() + b"\n"


def parse_order(line: bytes) -> Order:
    """Undo ``to_line``. Raises ValueError and TypeError."""
    fields = json.loads(line)
    return (Watch if "watch" in fields else Forget if "forget" in fields else Pace)(**fields)


def parse_report(line: bytes) -> Report:
    """Undo ``to_line``. Raises ValueError and TypeError."""
    fields = json.loads(line)
    return (Ready if "found" in fields else Accessed if "touched" in fields else Trouble)(**fields)
