"""Synthetic pictures in the shape of CIFAR-10: 32 x 32 pixels, 3 colours, 10 classes, float32, no download.

Each class is a wave of its own direction, length and colour; each picture shows it at one of 16 phases under noise, so
a network has to learn filters before it can tell classes apart, and its loss falls over some hundred steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SIDE = 32
CHANNELS = 3
CLASSES = 10
IMAGE_BYTES = SIDE * SIDE * CHANNELS * 4

_PHASES = 16
_CHUNK = 128  # 1.5 MiB: noise and wave meet in the cache
_WAVE = np.float32(0.2)  # height of the wave
_NOISE = np.float32(0.6)  # width of the even noise in each pixel; with the wave on both sides it fills 0..1
_LABEL_NOISE = 0.02  # a few wrong labels keep the loss from reaching 0


def _waves() -> NDArray[np.float32]:
    """f4[CLASSES * _PHASES, SIDE, SIDE, CHANNELS], values of +-_WAVE."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    waves = np.empty((CLASSES, _PHASES, SIDE, SIDE, CHANNELS), np.float32)
    for kind in range(CLASSES):
        angle, periods = np.pi * kind / CLASSES, 3 + kind % 3 * 2
        along = 2 * np.pi * periods * (x * np.cos(angle) + y * np.sin(angle))
        for phase in range(_PHASES):
            for channel in range(CHANNELS):
                shift = 2 * np.pi * (phase / _PHASES + channel * (kind % 4) / 8)
                waves[kind, phase, :, :, channel] = _WAVE * np.sin(along + shift)
    return waves.reshape(-1, SIDE, SIDE, CHANNELS)


def make_images(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Make a data set: the same for the same count and seed on every machine.

    Returns:
        Images f4[count, SIDE, SIDE, CHANNELS] between 0 and 1, and labels i8[count] below ``CLASSES``.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    phases = rng.integers(0, _PHASES, count)
    images = np.empty((count, SIDE, SIDE, CHANNELS), np.float32)
    waves = _waves()
    waves += _WAVE
    for first in range(0, count, _CHUNK):
        chunk = images[first : first + _CHUNK]
        rng.random(out=chunk, dtype=np.float32)
        chunk *= _NOISE
        chunk += waves[labels[first : first + _CHUNK] * _PHASES + phases[first : first + _CHUNK]]
    wrong = rng.random(count) < _LABEL_NOISE
    labels[wrong] = rng.integers(0, CLASSES, int(wrong.sum()))
    return images, labels
