"""Which accessed pages several processes share: the same page frame behind an accessed page of each.

A working set counts pages of address space, as Denning defines it, so a frame that one process maps twice counts twice.
A frame that *several* processes map counts once over all of them: as often as in the process that maps it most often.
So the working set of a tree is never smaller than that of one of its processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import is_in, union1d
from memtui.core.page_sizes import BLOCK_BYTES, PAGE_BYTES, PAGE_SHIFT, PAGES_PER_BLOCK
from memtui.core.samples import Vma, VmaSizes

Numbers = NDArray[np.uint64]


def _none() -> Numbers:
    return np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class TouchedFrames:
    """Accessed pages of a process that another process may map, too. All its other pages are private.

    Attributes:
        pages: u8[n]; ``address >> 12`` of 4 KiB pages, each once.
        frames: u8[n]; the number of the page frame behind each (physical address >> 12).
        huge: u8[m]; ``address >> 21`` of 2 MiB pages, each once.
        huge_frames: u8[m]; the first of the 512 page frames behind each.
    """

    pages: Numbers = field(default_factory=_none)
    frames: Numbers = field(default_factory=_none)
    huge: Numbers = field(default_factory=_none)
    huge_frames: Numbers = field(default_factory=_none)

    def shared_sizes(self, vmas: Sequence[Vma]) -> VmaSizes:
        """Return the bytes of these pages by mapping; mappings without any are left out."""
        if not vmas or not (len(self.pages) or len(self.huge)):
            return ()
        starts = np.array([vma.start for vma in vmas], np.uint64) >> np.uint64(PAGE_SHIFT)
        ends = np.array([vma.end for vma in vmas], np.uint64) >> np.uint64(PAGE_SHIFT)
        sizes = np.zeros(len(vmas), np.int64)
        for numbers, size in ((self.pages, PAGE_BYTES), (self.huge * np.uint64(PAGES_PER_BLOCK), BLOCK_BYTES)):
            vma_index = np.searchsorted(starts, numbers, side="right") - 1
            vma_index = vma_index[(vma_index >= 0) & (numbers < ends[vma_index])]
            sizes += np.bincount(vma_index, minlength=len(vmas)) * size
        used = np.flatnonzero(sizes)
        return tuple((vmas[index].start, size) for index, size in zip(used.tolist(), sizes[used].tolist(), strict=True))


def in_common(touched: Sequence[TouchedFrames]) -> tuple[list[TouchedFrames], int]:
    """Return the pages of each process whose frames another one accessed, too, and the bytes that their sum overcounts.

    Args:
        touched: the pages of each process, in one window.

    Returns:
        The shared pages of each process, in the same order; and the sum of their bytes less the bytes of their union.
        A 2 MiB page that some process maps in parts is among the 4 KiB pages.
    """
    touched = _in_same_sizes(touched)
    small, too_many = _several([process.frames for process in touched])
    huge, too_many_huge = _several([process.huge_frames for process in touched])
    shared = [
        TouchedFrames(process.pages[s], process.frames[s], process.huge[h], process.huge_frames[h])
        for process, s, h in zip(touched, small, huge, strict=True)
    ]
    return shared, too_many * PAGE_BYTES + too_many_huge * BLOCK_BYTES


def _in_same_sizes(touched: Sequence[TouchedFrames]) -> Sequence[TouchedFrames]:
    """Return the same pages, with 2 MiB pages split into 4 KiB pages where some process maps their frames in parts."""
    if not any(len(process.huge) for process in touched):
        return touched
    in_parts = union1d(*(process.frames // np.uint64(PAGES_PER_BLOCK) for process in touched))
    parts = np.arange(PAGES_PER_BLOCK, dtype=np.uint64)
    result = []
    for process in touched:
        split = is_in(process.huge_frames // np.uint64(PAGES_PER_BLOCK), in_parts)
        pages = process.huge[split, None] * np.uint64(PAGES_PER_BLOCK) + parts
        frames = process.huge_frames[split, None] + parts
        result.append(
            TouchedFrames(
                np.concatenate((process.pages, pages.ravel())),
                np.concatenate((process.frames, frames.ravel())),
                process.huge[~split],
                process.huge_frames[~split],
            )
        )
    return result


def _several(frames: Sequence[Numbers]) -> tuple[list[NDArray[np.bool_]], int]:
    """Return a mask of each process's frames that another one has, too; and how many frames the sum overcounts."""
    sizes = [len(numbers) for numbers in frames]
    if np.count_nonzero(sizes) < 2:
        return [np.zeros(size, bool) for size in sizes], 0
    names, count = _renamed(np.concatenate(frames))
    parts = np.split(names, np.cumsum(sizes)[:-1])
    owners, total, largest = (np.zeros(count, np.intp) for _ in range(3))
    for part in parts:
        times = np.bincount(part, minlength=count)
        owners += times > 0
        total += times
        np.maximum(largest, times, out=largest)
    shared = owners > 1
    return [shared[part] for part in parts], int((total - largest)[shared].sum())


def _renamed(frames: Numbers) -> tuple[NDArray[np.intp], int]:
    """Return the frames renumbered to 0, 1, 2 and so on, and the count of different ones."""
    ordered, order = _sorted(frames)
    names = np.empty(len(frames), np.intp)
    names[order] = np.cumsum(np.concatenate(([0], ordered[1:] != ordered[:-1])))
    return names, int(names[order[-1]]) + 1


def _sorted(numbers: Numbers) -> tuple[Numbers, NDArray[np.intp]]:
    """Return the sorted numbers and their indices in the original (a stable argsort)."""
    bits = np.uint64(len(numbers).bit_length())
    if int(numbers.max()) >> (64 - int(bits)):
        order = np.argsort(numbers, kind="stable")
        return numbers[order], order
    # Number and index in one word: sorting words is several times as fast as sorting indices.
    packed = np.sort(numbers << bits | np.arange(len(numbers), dtype=np.uint64))
    return packed >> bits, (packed & (np.uint64(1) << bits) - np.uint64(1)).astype(np.intp)
