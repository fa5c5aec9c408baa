"""Idle bits of page frames that only a test knows, where the kernel has none."""

from __future__ import annotations

import numpy as np

from memtui.probes.pages.idle.bitmap import BitPositions


class IdleBits:
    """In place of the kernel's: what was set stays set, until this test says that the page was touched."""

    def __init__(self) -> None:
        self.frames: set[int] = set()

    def idle(self, positions: BitPositions, check=lambda: None) -> np.ndarray:
        check()
        return np.array([frame in self.frames for frame in frames_of(positions)], bool)

    def set_bits(self, positions: BitPositions) -> None:
        self.frames.update(frames_of(positions))

    def close(self) -> None:
        pass


def frames_of(positions: BitPositions) -> list[int]:
    return (positions.words[positions._index] << np.uint64(6) | positions._bit).tolist()
