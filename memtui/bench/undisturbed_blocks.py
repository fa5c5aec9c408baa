"""The blocks of the windows of a row that count: those in which the CPU ran at its full speed, by the yardstick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memtui.analysis.robust_mean import mean_interval
from memtui.bench.cpu_speed import scaled_to_reference, share_that_follows
from memtui.bench.plan import BenchWindow

ENOUGH = 5  # quiet blocks for each median of an interval
FEW = 10  # quiet blocks are worth less than all blocks
WIDE = 0.05  # half an interval by its middle: more is a row to repeat


@dataclass(frozen=True)
class UndisturbedBlocks:
    """Blocks that count.

    Attributes:
        parts: f8[n] nanoseconds a call; each gives one median, and their interval is that of the time.
        quiet: share of the blocks between readings at the CPU's full speed; None without a yardstick.
        disturbed: whether there are too few quiet blocks.
        sheltered: whether enough quiet blocks lie between other quiet blocks; then only those count, since a neighbour
            that comes and goes within a block, between two fast readings, is not seen.
        measured_ns: median of the quiet blocks as measured, before they were scaled to the reference speed.
        speed: speed of the CPU by its reference speed; None where the reference is not known.
        follows: share of the time that follows the speed, used for scaling; None: not known, so nothing was scaled.
    """

    parts: list[NDArray[np.float64]]
    quiet: float | None = None
    disturbed: bool = False
    sheltered: bool = True
    measured_ns: float | None = None
    speed: float | None = None
    follows: float | None = None

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """(mean, low, high) of the medians; None for one part."""
        return mean_interval([float(np.median(part)) for part in self.parts])

    @property
    def wide(self) -> bool:
        """Whether the interval of the time is too wide."""
        interval = self.interval
        return interval is not None and interval[2] - interval[0] > WIDE * interval[0]


def counted(
    windows: Sequence[BenchWindow], parts: int, limit_ns: float | None, reference_ns: float | None = None
) -> UndisturbedBlocks:
    """Return the blocks of a row that count.

    Args:
        windows: at least one.
        parts: number of parts of the quiet blocks, in the order of time; a window may have no quiet block.
        limit_ns: longest time of the yardstick at the CPU's full speed; None without a yardstick: all blocks count
            and each window is a part.
        reference_ns: time of the yardstick at the speed to which blocks are scaled; ``limit_ns`` when not given.
    """
    each = [np.asarray(w.block_ns, np.float64) for w in windows]
    if limit_ns is None:
        return UndisturbedBlocks(each)
    fast = [np.asarray(w.yard_ns) <= limit_ns for w in windows]
    among = [_between_others(some) for some in fast]
    blocks = np.concatenate(each)
    share = float(np.concatenate(fast).mean())
    sheltered = enough(len(blocks), sum(int(some.sum()) for some in among), parts)
    chosen = np.concatenate(among if sheltered else fast)
    quiet = blocks[chosen]
    disturbed = not enough(len(blocks), len(quiet), parts)
    if disturbed and len(quiet) < FEW:
        return UndisturbedBlocks(each, share, True, False)
    yards = np.concatenate([np.asarray(w.yard_ns, np.float64) for w in windows])
    follows = share_that_follows(blocks, yards)
    same = scaled_to_reference(quiet, yards[chosen], reference_ns or limit_ns, follows)
    return UndisturbedBlocks(
        np.array_split(same, min(parts, len(same))),
        share,
        disturbed,
        sheltered,
        float(np.median(quiet)),
        None if reference_ns is None else reference_ns / float(np.median(yards[chosen])),
        follows,
    )


def _between_others(fast: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the fast blocks of a window whose neighbours are fast, too."""
    among = fast.copy()
    among[1:] &= fast[:-1]
    among[:-1] &= fast[1:]
    return among


def quiet_blocks(block_ns: ArrayLike, yard_ns: ArrayLike, limit_ns: float) -> NDArray[np.float64]:
    """Return the blocks in which the CPU ran at its full speed.

    Args:
        block_ns: f8[n].
        yard_ns: f8[n], the longer of the readings before and after each block.
        limit_ns: longest reading at full speed.
    """
    return np.asarray(block_ns, np.float64)[np.asarray(yard_ns) <= limit_ns]


def enough(blocks: int, quiet: int, parts: int) -> bool:
    """Whether ``quiet`` of ``blocks`` blocks are enough for a median in each of ``parts`` parts.

    Where calls take long there are few blocks; then half of the blocks have to be quiet.
    """
    return quiet >= max(parts, min(parts * ENOUGH, blocks // 2))
