"""The published procedure of MemSnoop for one sample, written here from its description, to measure memtui beside it.

Idle page tracking as darchr/MemSnoop used it (2018-2019): stop the process, take the whole machine's idle bitmap, read
the page frames of every mapping and set the idle bits of whole words of 64 frames, one seek and one 8-byte write each
and each word once, then read the page frames again and take every present page whose bit is not set as touched, and
let the process go on. What the original spawns a shell for is a system call here, and what it does page by page is
numpy's work, so that nothing but the procedure itself is compared.
"""

from __future__ import annotations

import os
import signal

import numpy as np
from numpy.typing import NDArray

from memtui.probes.pages.idle.bitmap import BITMAP
from memtui.probes.proc_maps import parse_maps, read_maps

Numbers = NDArray[np.uint64]
_PRESENT = np.uint64(1 << 63)
_FRAME = np.uint64((1 << 55) - 1)
_ALL = b"\xff" * 8
_READ_BYTES = 4096  # the kernel gives no more of the bitmap at once


class MemSnoop:
    """Samples of one process. Root of the machine only."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._bitmap = os.open(BITMAP, os.O_RDWR | os.O_CLOEXEC)
        self.calls = 0  # made to read and write page frames and idle bits in the last sample

    def sample(self) -> Numbers:
        """Numbers of the pages touched since the last sample; of the first one all that are resident."""
        os.kill(self._pid, signal.SIGSTOP)
        try:
            ranges = [(v.start >> 12, v.end >> 12) for v in parse_maps(read_maps(self._pid))]
            self.calls = 0
            before = self._whole_bitmap()
            pagemap = os.open(f"/proc/{self._pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._mark(pagemap, ranges)
                return self._touched(pagemap, ranges, before)
            finally:
                os.close(pagemap)
        finally:
            os.kill(self._pid, signal.SIGCONT)

    def _whole_bitmap(self) -> Numbers:
        os.lseek(self._bitmap, 0, os.SEEK_SET)
        parts = []
        while part := os.read(self._bitmap, _READ_BYTES):
            parts.append(part)
        self.calls += len(parts)
        return np.frombuffer(b"".join(parts), np.uint64)

    def _frames(self, pagemap: int, first: int, last: int) -> tuple[Numbers, Numbers]:
        """(numbers, frames) of the present pages of one mapping."""
        self.calls += 1
        words = np.frombuffer(os.pread(pagemap, (last - first) * 8, first * 8), np.uint64)
        present = np.flatnonzero(words & _PRESENT)
        return present.astype(np.uint64) + np.uint64(first), words[present] & _FRAME

    def _mark(self, pagemap: int, ranges: list[tuple[int, int]]) -> None:
        marked: set[int] = set()
        lseek, write, bitmap = os.lseek, os.write, self._bitmap
        for first, last in ranges:
            words = set(np.unique(self._frames(pagemap, first, last)[1] >> np.uint64(6)).tolist()) - marked
            marked |= words
            for word in words:
                lseek(bitmap, word * 8, 0)
                write(bitmap, _ALL)
        self.calls += 2 * len(marked)

    def _touched(self, pagemap: int, ranges: list[tuple[int, int]], idle: Numbers) -> Numbers:
        found = []
        for first, last in ranges:
            numbers, frames = self._frames(pagemap, first, last)
            known = frames >> np.uint64(6) < len(idle)
            numbers, frames = numbers[known], frames[known]
            bits = idle[(frames >> np.uint64(6)).astype(np.intp)] >> (frames & np.uint64(63)) & np.uint64(1)
            found.append(numbers[bits == 0])
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    def close(self) -> None:
        os.close(self._bitmap)
