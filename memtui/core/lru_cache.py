"""A least-recently-used cache of decoded objects."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """A mapping bounded by the number of items and their total bytes; the newest item always stays."""

    def __init__(self, most: int, most_bytes: int | None = None) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._items: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: K) -> bool:
        return key in self._items

    def __getitem__(self, key: K) -> V:
        self._items.move_to_end(key)
        return self._items[key][0]

    def put(self, key: K, value: V, size_bytes: int = 0) -> None:
        """Add an item of a size that the caller knows."""
        _, before = self._items.pop(key, (None, 0))
        self._items[key] = value, size_bytes
        self.total_bytes += size_bytes - before
        while len(self._items) > 1 and (
            len(self._items) > self._most or (self._most_bytes is not None and self.total_bytes > self._most_bytes)
        ):
            _, (_, freed) = self._items.popitem(last=False)
            self.total_bytes -= freed

    def drop(self, out_of_sight: Callable[[K], bool]) -> None:
        """Remove the items of which this is true."""
        for key in [key for key in self._items if out_of_sight(key)]:
            _, freed = self._items.pop(key)
            self.total_bytes -= freed

    def clear(self) -> None:
        """Remove all items."""
        self._items.clear()
        self.total_bytes = 0
