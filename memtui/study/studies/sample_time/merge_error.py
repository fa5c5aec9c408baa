"""The error of merged windows, from one run whose windows are fine in some blocks of time and coarse in others.

Two runs of a program differ in speed and in the addresses of their memory, and so in the pages of a window, whatever
the method is. Neighbouring blocks of one run differ by little, and over pairs in random order the difference is chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.slowdown import Block
from memtui.analysis.statistics import MedianInterval, mean, ratio_of_pairs
from memtui.analysis.window_merging import merge_windows
from memtui.core.page_set import PageSet
from memtui.study.recorded_run import Trace

OFF = 0.1  # of the requested length: a window that differs by more is left out


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Neighbouring windows of one length.

    Attributes:
        pair: number of its pair of blocks.
        fine: whether these are the short windows.
        windows: page sets in order of time; None for a window that is unknown or does not count.
    """

    pair: int
    fine: bool
    windows: Sequence[PageSet | None]


@dataclass(frozen=True, slots=True)
class MergeError:
    """The size of coarse windows compared with the union of ``count`` fine windows.

    Attributes:
        beyond: relative difference, median over pairs with its 95 % interval (binomial order statistics); -0.02: coarse
            windows have 2 % less.
        coarse_bytes: mean size of the coarse windows of all whole pairs, likewise ``merged_bytes``.
        coarse_windows: number of coarse windows, likewise ``merged_windows``.
    """

    beyond: MedianInterval
    coarse_bytes: float
    merged_bytes: float
    coarse_windows: int
    merged_windows: int


def merge_error(stretches: Sequence[Stretch], count: int) -> MergeError | None:
    """Compare coarse windows with the union of ``count`` neighbouring fine windows of the same pair.

    Returns:
        None without a pair that has both.

    Raises:
        ValueError: ``count`` below 1.
    """
    sizes: dict[int, dict[bool, list[int]]] = {}
    for stretch in stretches:
        merged = merge_windows(stretch.windows, count if stretch.fine else 1)
        pair_sizes = sizes.setdefault(stretch.pair, {}).setdefault(stretch.fine, [])
        pair_sizes += [pages.size_bytes for pages in merged]
    whole = [pair for pair in sizes.values() if pair.get(True) and pair.get(False)]
    ratio = ratio_of_pairs([mean(pair[False]) for pair in whole], [mean(pair[True]) for pair in whole])
    if ratio is None:
        return None
    low, high = (None if bound is None else bound - 1 for bound in (ratio.low, ratio.high))
    coarse, fine = ([size for pair in whole for size in pair[kind]] for kind in (False, True))
    return MergeError(
        MedianInterval(ratio.median - 1, low, high, ratio.confidence, ratio.count),
        float(np.mean(coarse)),
        float(np.mean(fine)),
        len(coarse),
        len(fine),
    )


def stretches_of(trace: Trace, blocks: Sequence[Block], fine_s: float, coarse_s: float) -> tuple[list[Stretch], int]:
    """Return (stretches, windows left out) of a run that alternated.

    A window in which the length was changed started before its block, and so is in no block. Left out are windows that
    were disturbed, are not of training, or do not have the requested length (``OFF``).

    Args:
        trace: the run.
        blocks: blocks of the run; observed blocks have fine windows.
        fine_s: length of the fine windows, s.
        coarse_s: length of the coarse windows, s.
    """
    samples = trace.samples
    undisturbed = np.array([not text for text in samples.disturbed], bool)
    stretches, left_out = [], 0
    for block in blocks:
        good = undisturbed & trace.training & is_as_long(trace, fine_s if block.observed else coarse_s)
        within = (samples.start_ns >= block.begin_s * 1e9) & (samples.end_ns <= block.end_s * 1e9)
        windows = [trace.pages[window] if good[window] else None for window in np.flatnonzero(within).tolist()]
        left_out += sum(pages is None for pages in windows)
        stretches.append(Stretch(block.pair, block.observed, windows))
    return stretches, left_out


def is_as_long(trace: Trace, seconds: float) -> NDArray[np.bool_]:
    """Return bool[n]: the windows that have the requested length, within ``OFF``."""
    return np.abs((trace.samples.end_ns - trace.samples.start_ns) / (seconds * 1e9) - 1) <= OFF
