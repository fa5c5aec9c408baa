"""Which kind of tensors the rows of a heat map show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.heat_layout import Layout, intersect
from memtui.analysis.step_trace import CATEGORIES
from memtui.analysis.tensor_pages import TensorMap

NO_KIND = 255
LEAST = 4  # a bin is of a kind when tensors hold this part of it: 1 / 4


def bin_kinds(layout: Layout, tensors: TensorMap) -> NDArray[np.uint8]:
    """u1[bins]: number of the kind that holds most of each bin, where tensors hold a quarter; else ``NO_KIND``."""
    count = len(CATEGORIES)
    starts = tensors.start.astype(np.uint64)
    ends = starts + tensors.size_bytes.astype(np.uint64)
    parts, part_ends, which = intersect(starts, ends, layout.starts, layout.ends)
    held = np.zeros(len(layout.bin_bytes) * count, np.int64)
    np.add.at(held, layout.bin_of(parts) * count + tensors.category[which], (part_ends - parts).astype(np.int64))
    by_bin = held.reshape(-1, count)
    kinds = np.where(by_bin.sum(axis=1) * LEAST >= np.maximum(layout.bin_bytes, 1), by_bin.argmax(axis=1), NO_KIND)
    # A bin without bytes of its own repeats another one, as the picture does.
    return np.where(layout.source >= 0, kinds[layout.source], NO_KIND).astype(np.uint8)
