"""The idle bits of page frames.

/sys/kernel/mm/page_idle/bitmap, see Documentation/admin-guide/mm/idle_page_tracking.rst.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.probes.pages.page_frames import Numbers, Run, read, run_in_parallel, write
from memtui.probes.pages.thread_pool import ThreadPool

BITMAP = Path("/sys/kernel/mm/page_idle/bitmap")
_BLOCK_WORDS = 512  # the kernel reads and writes 4096 bytes of the bitmap at a time
_GAP_WORDS = 4  # reading this many words in between costs less than another call
_PART_WORDS = 512  # for less, waking another CPU takes longer than it saves


class BitPositions:
    """Positions of the idle bits of some page frames. Finding them takes longer than reading the bits: keep them."""

    def __init__(self, frames: Numbers) -> None:
        self.words, self._index = np.unique(frames >> np.uint64(6), return_inverse=True)
        self._bit = frames & np.uint64(63)

    def part(self, which: NDArray[np.bool_]) -> BitPositions:
        """Return the positions of some of the frames."""
        selected = BitPositions.__new__(BitPositions)
        index = self._index[which]
        used = np.zeros(len(self.words), bool)
        used[index] = True
        selected.words, selected._index = self.words[used], (np.cumsum(used) - 1)[index]
        selected._bit = self._bit[which]
        return selected

    @cached_property
    def runs(self) -> list[Run]:
        """Runs of words that are read at once: near each other and inside one block."""
        first, last = self._edges
        starts = self.words[first].astype(np.intp)
        lengths = self.words[last - 1].astype(np.intp) + 1 - starts
        ends = np.cumsum(lengths)
        return list(zip(starts.tolist(), (ends - lengths).tolist(), ends.tolist(), strict=True))

    @cached_property
    def bits(self) -> NDArray[np.intp]:
        """The index of each frame's bit in the concatenated bits of all runs."""
        first, last = self._edges
        lies = np.repeat(np.array([offset - word for word, offset, _ in self.runs], np.intp), last - first)
        return ((lies + self.words.astype(np.intp))[self._index] << 6) + self._bit.astype(np.intp)

    @property
    def size(self) -> int:
        """The count of words in all runs."""
        return self.runs[-1][2] if self.runs else 0

    @cached_property
    def _edges(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Start and end indices of the runs in ``words``."""
        if not len(self.words):
            return np.empty(0, np.intp), np.empty(0, np.intp)
        block = self.words // np.uint64(_BLOCK_WORDS)
        breaks = np.flatnonzero((np.diff(self.words) > _GAP_WORDS) | (block[1:] != block[:-1])) + 1
        return np.concatenate(([0], breaks)), np.concatenate((breaks, [len(self.words)]))


class IdleBitmap:
    """The idle bits of page frames. Setting one clears the accessed bits of the page, in all its mappings."""

    def __init__(self, pool: ThreadPool | None = None) -> None:
        """Open the bitmap. Raises OSError where the kernel has none, or this is not root.

        Args:
            pool: threads that share long work. The kernel looks up every mapping of a frame for its bit, which takes
                most of a window. An open file serves one caller at a time, so each thread has its own.
        """
        self._pool = pool
        self._files = [os.open(BITMAP, os.O_RDWR | os.O_CLOEXEC)]
        self._files += [os.open(BITMAP, os.O_RDWR | os.O_CLOEXEC) for _ in range(pool.count - 1 if pool else 0)]

    def idle(self, frames: BitPositions, check: Callable[[], None] = lambda: None) -> NDArray[np.bool_]:
        """Return for each frame whether its idle bit is still set: nobody accessed the page since it was set.

        ``check`` is called before each read, and may raise an error: the bits that were read say the same again.
        """
        raw = np.zeros(frames.size * 8, np.uint8)  # it stays 0 beyond the last page frame
        run_in_parallel(self._pool, self._files, frames.runs, _PART_WORDS, partial(read, raw.data, check=check))
        return np.unpackbits(raw, bitorder="little").view(bool)[frames.bits]

    def set_bits(self, frames: BitPositions) -> None:
        """Set the idle bits of these frames only. The bit of a frame that cannot be tracked stays as it is."""
        wanted = np.zeros(frames.size * 64, bool)
        wanted[frames.bits] = True
        data = np.packbits(wanted, bitorder="little").data
        run_in_parallel(self._pool, self._files, frames.runs, _PART_WORDS, partial(write, data))

    def close(self) -> None:
        for file in self._files:
            os.close(file)
