"""Call stacks as names of operations: ``main (train.py:9)/step (train.py:31)``, the innermost call last."""

from __future__ import annotations

from collections.abc import Iterable

from memtui.core.text import utf8_safe

MOST_CALL, MOST_PATH, MOST_PATHS = 500, 4000, 4 << 20  # characters of a call, of those around it too, of all paths


class CallPaths:
    """Numbers the paths of a file, within a limit on all of them together: then they are the innermost call only.

    Attributes:
        names: the paths, by number.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._paths: list[str] = []  # the same, by number
        self._room = MOST_PATHS  # for those of more than one call

    def number(self, path: str) -> int:
        """Return the number of a path."""
        return self.names[self.fit(path, path.rpartition("/")[2])]

    def fit(self, path: str, innermost: str) -> str:
        """Return a path, or its innermost call where there is no room for the whole path; equal ones are one text."""
        if path not in self.names:
            if len(path) > self._room:
                path = innermost
            self._room -= len(path)
            if path not in self.names:
                self.names[path] = len(self._paths)
                self._paths.append(path)
        return self._paths[self.names[path]]


def call_path(calls: Iterable[str]) -> str:
    """Return a path of calls, of which the innermost comes first; the outer ones are left out where it grows long."""
    return path_of(map(call_name, calls), "/")


def path_of(names: Iterable[str], separator: str) -> str:
    """Return a path of names, as ``call_path`` does."""
    path: list[str] = []
    room = MOST_PATH
    for name in names:
        room -= len(name) + 1
        if path and room < 0:
            break
        path.append(name)
    return separator.join(reversed(path))


def call_name(call: str) -> str:
    """Return a call as a part of a path."""
    return utf8_safe(call.replace("/", "\N{DIVISION SLASH}"))[:MOST_CALL]
