"""The messages between a worker and the holder of its memory limit: one JSON object a line, a dataclass for each.

Nothing here imports numpy, so that the holder, a process of root's, stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memtui.core.errors import FAILURE
from memtui.core.json_fields import fields_to_json, from_json


@dataclass(frozen=True, slots=True)
class LimitOrder:
    """The argument of the holder.

    Attributes:
        swap_bytes: size of the swap that the program needs; 0: none.
        folders: folders in which a swap file may lie.
        uid: user whose processes may join the cgroup.
    """

    swap_bytes: int
    folders: tuple[str, ...]
    uid: int


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request to put a process into the cgroup."""

    pid: int

    def to_dict(self) -> dict[str, Any]:
        return {"join": self.pid}


@dataclass(frozen=True, slots=True)
class LimitRequest:
    """A request to lower the limit of the cgroup to a size."""

    limit_bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {"limit": self.limit_bytes}


Request = JoinRequest | LimitRequest


def request_of(message: Mapping[str, Any]) -> Request:
    """Return the request in a line of the holder's input."""
    return JoinRequest(message["join"]) if "join" in message else LimitRequest(message["limit"])


@dataclass(frozen=True, slots=True)
class HolderReady:
    """The cgroup and the swap are set up.

    Attributes:
        version: version of the memory cgroups, 1 or 2.
        folder: folder of the cgroup.
        swap: description of the swap; "" without.
        swap_bytes: size of the swap.
    """

    version: int
    folder: str
    swap: str
    swap_bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {"ready": fields_to_json(self)}


@dataclass(frozen=True, slots=True)
class ProcessJoined:
    """The process of a ``JoinRequest`` is in the cgroup."""

    pid: int

    def to_dict(self) -> dict[str, Any]:
        return {"joined": self.pid}


@dataclass(frozen=True, slots=True)
class LimitReached:
    """The limit of the cgroup is as low as a ``LimitRequest`` asked for."""

    limit_bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {"limit": self.limit_bytes}


@dataclass(frozen=True, slots=True)
class HolderFailed:
    """A failure: the reason, as a line for the user (``failed``), and the exit status of the command (``code``)."""

    failed: str
    code: int = FAILURE


@dataclass(frozen=True, slots=True)
class HolderGone:
    """The last message of the holder. ``left`` names what it could not take down; "" where nothing is left."""

    left: str

    def to_dict(self) -> dict[str, Any]:
        return {"gone": not self.left, "left": self.left}


Reply = HolderReady | ProcessJoined | LimitReached | HolderFailed | HolderGone


def reply_of(message: Mapping[str, Any]) -> Reply:
    """Return the message in a line of the holder's output."""
    if "ready" in message:
        return from_json(HolderReady, message["ready"])
    if "joined" in message:
        return ProcessJoined(message["joined"])
    if "limit" in message:
        return LimitReached(message["limit"])
    if "gone" in message:
        return HolderGone(message["left"])
    return from_json(HolderFailed, message)
