"""Messages by which the supervisor of a recording in the background reports its start, or a failure, to the screen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from memtui.core.json_fields import from_json, to_json
from memtui.recording.registry import Running


@dataclass(frozen=True, slots=True)
class Began:
    """The first window is being recorded. ``log``: of the program's output; empty when there is none."""

    path: str
    log: str
    pid: int
    id: str
    notice: str
    owner_notice: str


@dataclass(frozen=True, slots=True)
class RecordedAlready:
    """The process that was requested, ``pid``, is recorded by ``running``."""

    running: Running
    pid: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The user pressed ^C."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing was recorded; ``code`` is the exit code."""

    error: str
    code: int


StartMessage = Began | RecordedAlready | Interrupted | Failed
_KINDS: dict[str, type[StartMessage]] = {
    "began": Began,
    "already": RecordedAlready,
    "interrupted": Interrupted,
    "failed": Failed,
}


def to_line(message: StartMessage) -> bytes:
    """Return one line of JSON: an object whose only key is the kind of the message."""
    kind = next(name for name, type_ in _KINDS.items() if isinstance(message, type_))
    return json.dumps({kind: to_json(message)}).encode() + b"\n"


def from_dict(values: dict[str, Any]) -> StartMessage:
    """Undo ``to_line``, of the object on the line. Raises ValueError and KeyError."""
    ((kind, fields),) = values.items()
    return from_json(_KINDS[kind], fields)
