"""What the damon tracker and the process that holds DAMON's interface send each other: a line of JSON per message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memtui.probes.pages.damon.regions import Regions


@dataclass(frozen=True, slots=True)
class Watch:
    """An order: watch a process from now on. ``serial`` comes back with what is seen of it."""

    watch: int
    serial: int


@dataclass(frozen=True, slots=True)
class Forget:
    """An order: watch a process no longer."""

    forget: int


@dataclass(frozen=True, slots=True)
class Pace:
    """An order: windows of this length, with or without a flush; None: watch nothing for now."""

    interval_ns: int | None
    flush: bool


Order = Watch | Forget | Pace


@dataclass(frozen=True, slots=True)
class Ready:
    """The interface is taken; ``found`` is the tree of files as it was (``sysfs.Tree``)."""

    found: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Accessed:
    """What was seen in an interval that ended at ``t_ns``: pid, serial and accessed regions of each process."""

    t_ns: int
    touched: Sequence[tuple[int, int, Regions]]


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong, in a line."""

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
