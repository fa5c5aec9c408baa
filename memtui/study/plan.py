"""What a study starts: its runs, in which order, and how long they take. Nothing is started here."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

RECORD, BLOCKS, ALTERNATE = "record", "blocks", "alternate"
BARE, CONTAINER = "", "container"


@dataclass(frozen=True, slots=True)
class Run:
    """One program, observed once.

    Attributes:
        group: what its repeats share, as a report calls it: "0.5 s, 1 thread".
        program: command line.
        expected_s: how long it takes, start and end included, as far as that is known beforehand.
        repeat: number of the repeat, from 0.
        seed: of data, weights and order; it belongs to the repeat.
        tracker: of ``memtui record``, as ``filter`` and ``pause``.
        filter: see ``tracker``.
        pause: see ``tracker``.
        interval_s: length of a window.
        cpus: the program may use so many CPUs, the first of those that memtui may use.
        place: ``BARE``, or in a ``CONTAINER``.
        limit_s: its end, so long after its first step (or its start, where it counts none); None: it ends by itself.
        kind: ``RECORD``: recorded from begin to end. ``BLOCKS``: in some blocks of time, and left alone in others.
            ``ALTERNATE``: recorded from begin to end, with windows of ``interval_s`` in some blocks of time, and of
            ``other_interval_s`` in others.
        pairs: of such blocks.
        block_s: length of a block.
        other_interval_s: see ``kind``.
        environment: variables that the program gets besides.
        memory_share: it may keep so much of the working set of ``memory_of`` from its first step on; 0: no limit, but
            its faults are counted; None: neither.
        memory_of: group of the recording whose working set that is.
        needs_steps: ``limit_s`` begins with the first step, however late that is, and not with the start.
    """

    group: str
    program: tuple[str, ...]
    expected_s: float
    repeat: int = 0
    seed: int = 0
    tracker: str = "auto"
    filter: str = "none"
    pause: bool = True
    interval_s: float = 0.2
    cpus: int = 1
    place: str = BARE
    limit_s: float | None = None
    kind: str = RECORD
    pairs: int = 0
    block_s: float = 0.0
    environment: tuple[tuple[str, str], ...] = ()
    memory_share: float | None = None
    memory_of: str = ""
    needs_steps: bool = False
    other_interval_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> Run:
        environment = tuple((name, value) for name, value in message["environment"])
        return cls(**{**message, "program": tuple(message["program"]), "environment": environment})

    def key(self, surroundings: Iterable[str]) -> str:
        """Return the run's name in a state file: the same as long as program, conditions and machine are the same.

        Args:
            surroundings: versions and machine.
        """
        fixed = self.to_dict()
        fixed.pop("expected_s")
        if not self.needs_steps:  # as it was before there were such runs
            del fixed["memory_share"], fixed["memory_of"], fixed["needs_steps"]
        if self.other_interval_s is None:
            del fixed["other_interval_s"]
        text = json.dumps([fixed, *surroundings], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def interleaved(by_repeat: Sequence[Sequence[Run]], seed: int) -> list[Run]:
    """Return all runs: one repeat after the other, each in an order of its own.

    What drifts with time then touches all groups alike, and what is compared lies near each other in time.
    """
    chance = random.Random(seed)
    return [run for runs in by_repeat for run in chance.sample(list(runs), len(runs))]


class TimeLeft:
    """How long the runs still take: their expected times, corrected by how long the finished ones took."""

    def __init__(self, expected_s: Sequence[float]) -> None:
        self._waiting_s = sum(expected_s)
        self._expected_s = self._took_s = 0.0

    def done(self, expected_s: float, took_s: float) -> None:
        """Count a run that ended."""
        self._waiting_s -= expected_s
        self._expected_s += expected_s
        self._took_s += took_s

    @property
    def seconds(self) -> float:
        factor = self._took_s / self._expected_s if self._expected_s else 1.0
        return max(self._waiting_s, 0.0) * factor
