"""Known orders of page accesses, and the misses of an LRU memory, access by access.

This is the ground truth for a reuse curve from windows: it does not depend on a window.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

ORDERS = ("cyclic", "zipf")
ZIPF_EXPONENT = 0.8  # with the usual 1, so few pages get most accesses that memories of all sizes miss alike

Pages = NDArray[np.int64]


def touch_order(order: str, pages: int, per_step: int, seed: int) -> Iterator[Pages]:
    """Yield the page numbers of each step, ``per_step`` numbers below ``pages``, for ever; the same on every machine.

    ``cyclic`` goes round a ring: an LRU memory smaller than the ring misses every access. ``zipf`` draws pages at
    random, the k-th most popular page proportional to ``1 / k**ZIPF_EXPONENT``; popular pages lie anywhere.

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
    """Return the misses of each step in an LRU memory of ``capacity_pages`` that starts empty; i8[len(steps)]."""
    cached: OrderedDict[int, None] = OrderedDict()
    misses = np.zeros(len(steps), np.int64)
    for step, touched in enumerate(steps):
        for page in touched.tolist():
            if page in cached:
                cached.move_to_end(page)
                continue
            misses[step] += 1
            cached[page] = None
            if len(cached) > capacity_pages:
                cached.popitem(last=False)
    return misses
