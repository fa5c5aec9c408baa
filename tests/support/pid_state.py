"""What objects of memtui still keep of a process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator


def places_of(pid: int, owner: object) -> set[str]:
    """Return the paths of all containers below an object in which a pid is a key or a member: ``_tracker.running``."""
    return set(_places(pid, owner, "", set()))


def _places(pid: int, value: object, path: str, visited: set[int]) -> Iterator[str]:
    if id(value) in visited:
        return
    visited.add(id(value))
    if isinstance(value, (dict, set, frozenset, list, tuple, deque)):
        if any(_is(pid, key) for key in value):
            yield path
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _places(pid, inner, path, visited)
    elif type(value).__module__.startswith(("memtui.", "tests.")):
        for name in sorted({*getattr(value, "__dict__", ()), *_slots(type(value))}):
            yield from _places(pid, getattr(value, name, None), f"{path}.{name}".lstrip("."), visited)


def _is(pid: int, key: object) -> bool:
    """Whether this is the pid, or a key of several parts of which one is."""
    return (type(key) is int and key == pid) or (isinstance(key, tuple) and any(_is(pid, part) for part in key))


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = getattr(base, "__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
