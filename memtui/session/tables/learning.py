"""How well a training learns, as records: loss, accuracy and the least accuracy that is required."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from memtui.core.text import utf8_safe
from memtui.core.tracer_messages import LearningProgress
from memtui.session.validation import MAX_INTEGER, MAX_REAL, parse_json

MAX_POINTS = 1 << 12  # of one message
MAX_ABOUT = 1 << 18  # characters


@dataclass(frozen=True, slots=True)
class LearningColumns:
    """How well a process learns at one moment.

    ``loss`` is a mean since the point before; None: not measured, not finite, or none wanted.
    """

    pid: int
    t_ns: int
    iteration: int
    epoch: int
    loss: float | None
    accuracy: float | None
    minimum: float | None


@dataclass(frozen=True, slots=True)
class LearningRecord(LearningColumns):
    """A moment of learning with its number."""

    id: int


@dataclass(frozen=True, slots=True)
class LearningAboutRecord:
    """What a process trains, as JSON."""

    pid: int
    about: str


@dataclass(frozen=True, slots=True)
class LearningPoint(LearningColumns):
    """One moment of a training."""


class About(NamedTuple):
    """What a process trains.

    Attributes:
        network, rule: their names.
        settings: of ``memtui train``.
        segments: layers with weights and the layers after them, by their names; empty where not reported.
        direct: errors reach each segment directly, so that only one segment has to be stored.
    """

    pid: int
    network: str
    rule: str
    settings: dict[str, Any]
    segments: tuple[tuple[str, ...], ...]
    direct: bool


def learning_records(numbers: Iterator[int], message: LearningProgress) -> list[LearningRecord]:
    """Return the records of a message's points. Raises ValueError for values that are impossible."""
    places, values = np.asarray(message.places), np.asarray(message.values)
    if places.shape != values.shape or places.ndim != 2 or len(places) != 3 or places.shape[1] > MAX_POINTS:
        raise ValueError("points of learning have three places and three values each")
    if places.size and (int(places.min()) < 0 or int(places.max()) >= MAX_INTEGER):
        raise ValueError("a point of learning is nowhere")
    points = zip(places.T.tolist(), values.T.tolist(), strict=True)
    return [
        LearningRecord(*(message.pid, *step_fields, *map(_real, value), next(numbers))) for step_fields, value in points
    ]


def about_record(message: LearningProgress) -> LearningAboutRecord:
    """Return the record of what is trained. Raises ValueError."""
    if not isinstance(message.about, str) or len(message.about) > MAX_ABOUT:
        raise ValueError("what is trained is not a text, or too long a one")
    about_of(message.pid, message.about)
    return LearningAboutRecord(message.pid, utf8_safe(message.about))


def about_of(pid: int, text: str) -> About:
    """Return what a process reported that it trains. Raises ValueError."""
    values = parse_json(text)
    if not isinstance(values, dict):
        raise ValueError("what is trained is not a table")
    network, rule, settings = values.get("network"), values.get("type"), values.get("settings", {})
    segments, direct = values.get("segments", []), values.get("direct", False)
    if not (isinstance(network, str) and isinstance(rule, str) and isinstance(settings, dict)):
        raise ValueError("what is trained has no name")
    if not isinstance(segments, list) or not all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in segments
    ):
        raise ValueError("segments are lists of names")
    return About(pid, network, rule, settings, tuple(map(tuple, segments)), direct is True)


def about_text(about: About) -> str:
    """Undo ``about_of``."""
    values = {"network": about.network, "type": about.rule, "settings": about.settings, "direct": about.direct}
    return json.dumps(values | {"segments": about.segments})


def _real(value: float) -> float | None:
    return value if math.isfinite(value) and abs(value) < MAX_REAL else None
