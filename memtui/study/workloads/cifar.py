"""CIFAR-10 from its binary files: ``data_batch_1.bin`` ... and ``test_batch.bin``, as they are distributed.

A file is a sequence of records: a byte with the class, then 32 x 32 bytes of red, of green and of blue
(https://www.cs.toronto.edu/~kriz/cifar.html). Nothing is downloaded here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIDE, CHANNELS, CLASSES = 32, 3, 10
RECORD_BYTES = 1 + SIDE * SIDE * CHANNELS
TRAINING, VALIDATION = "data_batch_*.bin", "test_batch.bin"


def check_folder(folder: Path) -> None:
    """Raise ValueError, with one line, where a folder lacks the files, and OSError where it cannot be read."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: is not a folder")
    next(folder.iterdir(), None)  # glob in an unreadable folder returns nothing and raises nothing
    paths = [*sorted(folder.glob(TRAINING)), *folder.glob(VALIDATION)]
    if not any(path.name != VALIDATION for path in paths):
        raise ValueError(f"{folder}: has no data_batch_1.bin; the binary version of CIFAR-10 has")
    for path in paths:
        size = path.stat().st_size
        if not size or size % RECORD_BYTES:
            raise ValueError(
                f"{path}: {size} bytes are not whole records of {RECORD_BYTES}: not CIFAR-10's binary version"
            )


def read_images(folder: Path, count: int, *, validation: bool = False) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the first images of the training or of the test set, at most ``count``.

    Returns:
        Images f4[n, 32, 32, 3] between 0 and 1, and labels i8[n] below 10.

    Raises:
        ValueError: the files are missing or damaged.
        OSError: they cannot be read.
    """
    check_folder(folder)
    paths = [folder / VALIDATION] if validation else sorted(folder.glob(TRAINING))
    images = np.empty((count, SIDE, SIDE, CHANNELS), np.float32)
    labels = np.empty(count, np.int64)
    have = 0
    for path in paths:
        if have == count or not path.exists():
            break
        rows = np.fromfile(path, np.uint8, (count - have) * RECORD_BYTES).reshape(-1, RECORD_BYTES)
        if (rows[:, 0] >= CLASSES).any():
            raise ValueError(f"{path}: has a class above {CLASSES - 1}: not CIFAR-10's binary version")
        part = slice(have, have + len(rows))
        planes = rows[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE)
        np.multiply(planes.transpose(0, 2, 3, 1), np.float32(1 / 255), out=images[part], casting="unsafe")
        labels[part] = rows[:, 0]
        have += len(rows)
    return images[:have], labels[:have]
