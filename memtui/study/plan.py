"""The runs of a study, their order and their expected time. Nothing is started here."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memtui.core.json_fields import to_json

RECORD, BLOCKS, ALTERNATE = "record", "blocks", "alternate"
BARE, CONTAINER = "", "container"


@dataclass(frozen=True, slots=True)
class Run:
    """One program, observed once.

    Attributes:
        group: name that its repeats share in a report: "0.5 s, 1 thread".
        program: command line.
        expected_s: expected duration, start and end included.
        repeat: number of the repeat, from 0.
        seed: seed of data, weights and order; it belongs to the repeat.
        tracker: option of ``memtui record``, as ``filter`` and ``pause``.
        filter: see ``tracker``.
        pause: see ``tracker``.
        interval_s: length of a window.
        cpus: number of CPUs for the program, the first of those that memtui may use.
        place: ``BARE``, or in a ``CONTAINER``.
        limit_s: duration from the first step (or from the start, without steps) to the end; None: the program ends.
        kind: ``RECORD``: recorded from start to end. ``BLOCKS``: recorded in some blocks of time, and left alone in
            others. ``ALTERNATE``: recorded from start to end, with windows of ``interval_s`` in some blocks of time,
            and of ``other_interval_s`` in others.
        pairs: number of pairs of blocks.
        block_s: length of a block.
        other_interval_s: see ``kind``.
        environment: additional variables of the program.
        memory_share: limit on memory from the first step on, as a share of the working set of ``memory_of``; 0: no
            limit, but faults are counted; None: neither.
        memory_of: group of the recording with that working set.
        needs_steps: whether ``limit_s`` counts from the first step, however late it is, and never from the start.
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

    def key(self, surroundings: Iterable[str]) -> str:
        """Return the run's key in a state file, which is equal while program, conditions and machine are equal.

        Args:
            surroundings: versions and machine.
        """
        fixed = to_json(self)
        fixed.pop("expected_s")
        if not self.needs_steps:  # the key of versions before this field
            del fixed["memory_share"], fixed["memory_of"], fixed["needs_steps"]
        if self.other_interval_s is None:
            del fixed["other_interval_s"]
        text = json.dumps([fixed, *surroundings], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def interleaved(by_repeat: Sequence[Sequence[Run]], seed: int) -> list[Run]:
    """Return all runs: one repeat after the other, each in an order of its own.

    So drift over time affects all groups alike, and the runs that are compared are close in time.
    """
    chance = random.Random(seed)
    return [run for runs in by_repeat for run in chance.sample(list(runs), len(runs))]


class TimeLeft:
    """The remaining time of the runs: their expected times, corrected by the times of the finished runs."""

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
