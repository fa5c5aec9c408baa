"""Which windows a column of the heat map shows: a column may cover thousands of them, or a part of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memtui.core.block_sample import PARTS
from memtui.session.session import Session

if TYPE_CHECKING:
    from memtui.session.sample_arrays import SampleArrays

Column = NDArray[np.float32]  # shares of the pages of each pixel row that were touched
SAMPLED_WINDOWS = 2 * PARTS  # whose mean is a column where each has a random part of the memory


def window_stride(ends_ns: NDArray[np.int64], width_ns: float, before: int) -> int:
    """Return the stride of the windows that are read: a power of two, so that a column reads one or two windows.

    More windows would cost time and hardly show. The windows stay the same while time goes by: the stride of
    ``before`` stays as long as it is nearly right (0: there was none).

    Args:
        ends_ns: i8[n] of the windows in the picture.
        width_ns: of a column.
        before: the stride of the picture before.
    """
    each = width_ns * (len(ends_ns) - 1) / float(ends_ns[-1] - ends_ns[0]) if len(ends_ns) > 1 else 1.0
    if before and (before == 1 or each >= 0.9 * before) and each < 2.2 * before:
        return before
    return 1 << max(int(each), 1).bit_length() - 1


def picked_windows(low: int, high: int, stride: int) -> Sequence[int]:
    """Return the windows to read from ``low`` to before ``high``: one or two; none in an empty range."""
    if high <= low:
        return ()
    windows = range(-(-low // stride) * stride, high, stride)
    return windows[:2] or (low,)


def covering_window(samples: SampleArrays, index: int, edges_ns: NDArray[np.floating]) -> tuple[int, ...]:
    """Return the window in which the middle of a column lies, of a column in which no window ends.

    A quarter of slack bridges the target's pause. ``index``: the window that ends next; ``edges_ns``: f8[2].
    """
    starts_ns, ends_ns = samples.start_ns, samples.end_ns
    if index < len(ends_ns) and starts_ns[index] - (ends_ns[index] - starts_ns[index]) / 4 <= edges_ns.mean():
        return (index,)
    return ()


def stored_samples(reader: Session, samples: list[int], last: int) -> list[int]:
    """Return samples of the same column with stored page sets, in place of those that were downsampled away."""
    stored = (reader.pages.stored_sample(sample, last) for sample in samples)
    return sorted({sample for sample in stored if sample is not None})


def sampled_windows(windows: Sequence[int]) -> Sequence[int]:
    """Return the windows to read where each has a random part of the memory: up to the last of these."""
    return range(max(0, windows[-1] + 1 - SAMPLED_WINDOWS), windows[-1] + 1) if windows else windows


def mean_column(columns: list[Column]) -> Column:
    """Return the mean of columns, without what is not known (np.mean takes ten times as long on one or two)."""
    if len(columns) < 3:
        return columns[0] if len(columns) == 1 else (columns[0] + columns[1]) * np.float32(0.5)
    finite = np.isfinite(columns)
    with np.errstate(invalid="ignore"):  # nan where nothing is known
        return np.where(finite, columns, np.float32(0)).sum(0, dtype=np.float32) / finite.sum(0, dtype=np.float32)


def joined(parts: list[Column], rows: int) -> Column:
    """Return the columns of all processes as one, as high as the picture, which has that many pixel rows."""
    missing = max(rows - sum(len(part) for part in parts), 0)
    return np.concatenate((*parts, np.full(missing, np.nan, np.float32)))
