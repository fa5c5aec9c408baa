"""Allocations added up by category, by one of two sets of rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES, StepTrace
from memtui.core.options import RULES
from memtui.formats.mxnet_tags import COMPAT, PADDING_BYTES, compat_key, kind_of_key, raw_tag, tag_for

OWN_RULES, COMPAT_RULES = RULES


class Item(NamedTuple):
    """Allocations that are alike. ``key``: their category in an analysis file, which has nothing else of them."""

    tag: str
    kind: int
    bytes: int
    allocations: int
    key: str | None = None


class Bar(NamedTuple):
    """A category: ``share`` of the total, 0 to 1."""

    key: str
    name: str
    bytes: int
    allocations: int
    share: float


class Breakdown(NamedTuple):
    """Categories, the largest first, and the allocations without a category, which are in no total."""

    bars: tuple[Bar, ...]
    dropped: tuple[Item, ...]

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all bars."""
        return sum(bar.bytes for bar in self.bars)

    @property
    def allocations(self) -> int:
        """Return the number of allocations in all bars."""
        return sum(bar.allocations for bar in self.bars)

    def sum_of(self, keys: Sequence[str]) -> int:
        """Return the bytes of some categories."""
        return sum(bar.bytes for bar in self.bars if bar.key in keys)


def items_of(trace: StepTrace, rows: NDArray[np.integer], *, tagged: bool) -> list[Item]:
    """Return the allocations in some rows of a trace. ``tagged``: names of operations are tags of an MXNet log."""
    keys = np.stack((trace.category[rows], trace.layer[rows], trace.op[rows]))
    alike, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    groups = alike.shape[1]
    sizes = np.bincount(group, trace.delta_bytes[rows], groups).astype(np.int64).tolist()  # below 2**53: exact
    counts = np.bincount(group, minlength=groups).tolist()
    items = []
    for (kind, layer, op), size, count in zip(alike.T.tolist(), sizes, counts, strict=True):
        name = trace.name(op)
        tag = name if tagged else tag_for(kind, trace.name(layer), name)
        items.append(Item(tag, kind, size, count))
    return items


def items_of_sums(sums: Mapping[str, tuple[float, Sequence[str]]]) -> list[Item]:
    """Return the categories of an analysis file."""
    return [Item(key, kind_of_key(key), int(total), len(tags), key) for key, (total, tags) in sums.items()]


def without_padding(items: Iterable[Item], coarse: Sequence[str]) -> list[Item]:
    """Return items without the padding of MXNet's pool; items with a size in whole MB (``coarse``) stay."""
    in_mb = Counter(coarse)
    requested = []
    for item in items:
        padded = max(0, item.allocations - in_mb[item.tag])
        requested.append(item._replace(bytes=max(0, item.bytes - PADDING_BYTES * padded)))
    return requested


def break_down(items: Iterable[Item], rules: str) -> Breakdown:
    """Add allocations up by ``COMPAT_RULES``, which drop unknown allocations, or by ``OWN_RULES``."""
    sums: dict[str, list[int]] = {}
    dropped = []
    for item in items:
        key = _key(item, rules)
        if key is None:
            dropped.append(item)
            continue
        of_key = sums.setdefault(key, [0, 0])
        of_key[0] += item.bytes
        of_key[1] += item.allocations
    total = sum(size for size, _ in sums.values())
    bars = [
        Bar(key, COMPAT.get(key, key) if rules == COMPAT_RULES else key, size, count, size / total if total else 0.0)
        for key, (size, count) in sums.items()
    ]
    return Breakdown(tuple(sorted(bars, key=lambda bar: -bar.bytes)), tuple(dropped))


def _key(item: Item, rules: str) -> str | None:
    if rules == COMPAT_RULES:
        return item.key or compat_key(raw_tag(item.tag))
    return CATEGORIES[item.kind]
