"""Configurations by chance, as wide as a convolution is used: what a model of its cost is fitted to.

A grid has few values of each parameter, and all that a model could learn lies on its lines. The same seed gives the
same configurations everywhere, so that machines can share them and databases can be compared.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from memtui.bench.configuration import Configuration, make
from memtui.workloads.operators.base import Parameters, Value

SEED = 0
OF_A_KIND = 10  # configurations of each kernel, stride and grouping: chance alone would leave some of them out
KERNELS, STRIDES, GROUPINGS = (1, 3, 5, 7), (1, 2), ("dense", "grouped", "depthwise")
BATCHES = (1, 2, 4, 8, 16, 32)
CHANNELS = (3, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
SIDES = (7, 8, 14, 16, 20, 28, 32, 40, 56, 64, 80, 112, 128, 160, 224)
GROUPS = (2, 4, 8)
# One call on one thread of a CPU stays below 100 ms: a dense convolution makes 10 to 50 GFLOP/s there, one in groups as
# few as 2, one with a group a channel a part of one.
MOST_FLOPS = {"dense": 10**9, "grouped": 10**8, "depthwise": 5 * 10**7}
MOST_BYTES = 64 << 20


def conv2d(usual: Parameters) -> list[Configuration]:
    """240 convolutions: each kernel, stride and grouping ten times, with batch, channels and size by chance.

    Args:
        usual: the conditions.
    """
    chance = random.Random(SEED)
    found: dict[Configuration, None] = {}
    for kind in itertools.product(KERNELS, STRIDES, GROUPINGS):
        wanted = len(found) + OF_A_KIND
        while len(found) < wanted:
            if (made := _drawn(chance, *kind, usual)) is not None:
                found[made] = None
    return list(found)


def _drawn(chance: random.Random, k: int, s: int, grouping: str, usual: Parameters) -> Configuration | None:
    """One by chance; None: it would take too long, or cannot be."""
    n, cin, cout, h, groups = (_one(chance, some) for some in (BATCHES, CHANNELS, CHANNELS, SIDES, GROUPS))
    if grouping == "dense":
        groups = 1
    elif grouping == "depthwise":
        groups = cout = cin
    given: dict[str, Value] = {"n": n, "cin": cin, "cout": cout, "h": h, "k": k, "s": s, "groups": groups}
    if cin % groups or cout % groups:
        return None
    made = make("conv2d", {**given, **usual})
    # A forward pass of fp32 decides, whatever the conditions: they must not change what is in the space.
    operator, p = made.operator, made.parameters
    small = operator.flops(p) <= MOST_FLOPS[grouping] and operator.moved_bytes(p, 4) <= MOST_BYTES
    return made if small else None


def _one(chance: random.Random, values: Sequence[int]) -> int:
    """One of them. Of Python's generator only ``random`` gives the same numbers in every version."""
    return values[int(chance.random() * len(values))]
