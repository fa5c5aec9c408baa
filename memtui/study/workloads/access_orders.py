"""Orders of page touches that are known beforehand, and what an LRU memory makes of them, touch by touch.

This is the truth that a reuse curve from windows is held against: it knows no window.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

ORDERS = ("cyclic", "zipf")
ZIPF_EXPONENT = 0.8  # with the usual 1 so few pages get most touches that memories of all sizes look alike

Pages = NDArray[np.int64]


def touch_order(order: str, pages: int, per_step: int, seed: int) -> Iterator[Pages]:
    """Page numbers below ``pages`` that each step touches, ``per_step`` of them, for ever; the same everywhere.

    ``cyclic`` goes round a ring: an LRU memory that does not hold all of it misses every touch. ``zipf`` draws each
    page by chance, the k-th most popular one proportional to ``1 / k**ZIPF_EXPONENT``; popular ones lie anywhere.

    Raises:
        ValueError: another order.
    """
    if order == "cyclic":
        return _cyclic(pages, per_step)
    if order == "zipf":
        return _zipf(pages, per_step, seed)
    raise ValueError(f"{order!r} is none of {', '.join(ORDERS)}")


def _cyclic(pages: int, per_step: int) -> Iterator[Pages]:
    step = np.arange(per_step, dtype=np.int64)
    first = 0
    while True:
        yield (first + step) % pages
        first = (first + per_step) % pages


def _zipf(pages: int, per_step: int, seed: int) -> Iterator[Pages]:
    chance = np.random.default_rng(seed)
    where = chance.permutation(pages).astype(np.int64)
    weights = np.arange(1, pages + 1) ** -ZIPF_EXPONENT
    below = np.cumsum(weights) / weights.sum()
    while True:
        yield where[np.searchsorted(below[:-1], chance.random(per_step), side="right")]


def lru_misses(steps: Sequence[Pages], capacity_pages: int) -> NDArray[np.int64]:
    """Misses of each step in an LRU memory of so many pages that is empty at first; i8[len(steps)]."""
    held: OrderedDict[int, None] = OrderedDict()
    found = np.zeros(len(steps), np.int64)
    for at, touched in enumerate(steps):
        for page in touched.tolist():
            if page in held:
                held.move_to_end(page)
                continue
            found[at] += 1
            held[page] = None
            if len(held) > capacity_pages:
                held.popitem(last=False)
    return found
