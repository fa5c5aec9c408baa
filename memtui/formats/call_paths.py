"""Call stacks as names of operations: ``main (train.py:9)/step (train.py:31)``, the innermost call last."""

from __future__ import annotations

from collections.abc import Iterable

from memtui.core.text import storable

MOST_CALL, MOST_PATH, MOST_PATHS = 500, 4000, 4 << 20  # characters of a call, of those around it too, of all paths


class CallPaths:
    """Numbers the paths of a file, within a limit on all of them together: then they are the innermost call only.

    Attributes:
        names: the paths, by number.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._room = MOST_PATHS  # for those of more than one call

    def number(self, path: str) -> int:
        """Return the number of a path."""
        if path not in self.names:
            if len(path) > self._room:
                path = path.rpartition("/")[2]
            self._room -= len(path)
        return self.names.setdefault(path, len(self.names))


def call_path(calls: Iterable[str]) -> str:
    """Return a path of calls, of which the innermost comes first; the outer ones are left out where it grows long."""
    path: list[str] = []
    room = MOST_PATH
    for call in map(call_name, calls):
        room -= len(call) + 1
        if path and room < 0:
            break
        path.append(call)
    return "/".join(reversed(path))


def call_name(call: str) -> str:
    """Return a call as a part of a path."""
    return storable(call.replace("/", "\N{DIVISION SLASH}"))[:MOST_CALL]
