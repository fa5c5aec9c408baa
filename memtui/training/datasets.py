"""Data sets to train on: bundled digits, generated clusters, and files of MNIST and CIFAR. Without torch."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.core.errors import UserError
from memtui.core.os_errors import READ, refused
from memtui.core.small_file import read_small_bytes
from memtui.training.network_specs import Shape

Images = NDArray[np.float32]
Labels = NDArray[np.int64]
CLASSES = {"digits": 10, "clusters": 10, "mnist": 10, "cifar10": 10, "cifar100": 100}
_DIGITS, _EVERY = 1797, 6  # number of digits; one in six is held out for the test
_PHOTO = (3, 32, 32)
_IDX = {"images": 2051, "labels": 2049}  # magic numbers: http://yann.lecun.com/exdb/mnist/
_MOST_BYTES = 1 << 30  # of a file, packed or not: the largest of these has 0.15 GiB


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """Examples for training, and held-out examples for the test.

    Attributes:
        images, test_images: f4[n, *shape], from 0 to 1 where they are pictures.
        labels, test_labels: i8[n], from 0.
    """

    images: Images
    labels: Labels
    test_images: Images
    test_labels: Labels

    @property
    def shape(self) -> Shape:
        """Shape of one example."""
        return tuple(self.images.shape[1:])


def shape_of(name: str, wanted: Shape) -> Shape:
    """Return the shape of an example; ``wanted``: the shape of data that would be generated for the network."""
    if name == "clusters":
        return wanted
    if name == "digits":
        return (1, 28, 28) if wanted == (1, 28, 28) else (1, 8, 8)
    return (1, 28, 28) if name == "mnist" else _PHOTO


def examples(name: str, shape: Shape) -> int | None:
    """Return the number of training examples; None for a data set read from files."""
    if name == "digits":
        return _DIGITS - _DIGITS // _EVERY
    return _clusters(shape)[0] if name == "clusters" else None


def check_batch(batch_size: int, examples: int) -> None:
    """Raise UserError for a batch that cannot be filled."""
    if batch_size > examples:
        raise UserError(f"batch_size is at most the number of examples, {examples}, not {batch_size}")


def load(name: str, shape: Shape, folder: str | None, seed: int) -> Data:
    """Return a data set by name.

    Args:
        name: a key of ``CLASSES``.
        shape: the result of ``shape_of``.
        folder: folder with the files of a data set that is not bundled.
        seed: seed of generated data.

    Raises:
        UserError: files are missing (the message lists the expected ones), damaged or of another kind.
    """
    if name == "digits":
        return _digits(shape)
    if name == "clusters":
        return clusters(shape, seed)
    return (_mnist if name == "mnist" else _cifar)(Path(folder or "."), name)


def check_files(name: str, folder: str | None) -> None:
    """Raise UserError unless the files of a data set exist; a bundled or generated data set needs no files."""
    if name == "mnist":
        for part, kind in _MNIST:
            _idx_path(Path(folder or "."), part, kind)
    elif name in _CIFAR:
        _cifar_paths(Path(folder or "."), name)


def _digits(shape: Shape) -> Data:
    """Load the digits; one in six is held out. For 28x28 each pixel becomes 3x3, with a border of two."""
    raw = np.frombuffer(lzma.decompress(files("memtui.training").joinpath("data/digits.xz").read_bytes()), np.uint8)
    images = raw[: 64 * _DIGITS].reshape(_DIGITS, 1, 8, 8).astype(np.float32) / np.float32(16)
    if shape[-1] == 28:
        images = np.pad(images.repeat(3, 2).repeat(3, 3), ((0, 0), (0, 0), (2, 2), (2, 2)))
    return _parted(images, raw[64 * _DIGITS :].astype(np.int64), np.arange(_DIGITS) % _EVERY == _EVERY - 1)


def _parted(images: Images, labels: Labels, is_test: NDArray[np.bool_]) -> Data:
    return Data(images[~is_test], labels[~is_test], images[is_test], labels[is_test])


def _clusters(shape: Shape) -> tuple[int, int]:
    """Return the numbers of training and test examples."""
    return (5000, 2000) if len(shape) == 1 else (1000, 400)


def clusters(shape: Shape, seed: int) -> Data:
    """Return ten Gaussian clusters: 5,000 training and 2,000 test examples of vectors, 1,000 and 400 of pictures."""
    rng = np.random.default_rng(seed)
    count, test_count = _clusters(shape)
    labels = rng.integers(0, 10, count + test_count)
    if len(shape) == 1:
        centres = rng.normal(0, _APART / shape[0] ** 0.5, (10, *shape)).astype(np.float32)
    else:  # patches, which convolutions and pools can tell apart
        size = -(-shape[1] // 4), -(-shape[2] // 4)
        patches = rng.normal(0, 0.5, (10, shape[0], *size)).astype(np.float32)
        centres = patches.repeat(4, 2).repeat(4, 3)[:, :, : shape[1], : shape[2]]
    images = rng.standard_normal((count + test_count, *shape), np.float32)
    images += centres[labels]
    return Data(images[:count], labels[:count], images[count:], labels[count:])


_APART = 4.2  # spread of the centres: a network of 64-100-30-10 then reaches an accuracy of about 96 %

_MNIST = tuple((part, kind) for part in ("train", "t10k") for kind in _IDX)
_CIFAR = {
    "cifar10": ("cifar-10-batches-bin", tuple(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin", 1),
    "cifar100": ("cifar-100-binary", ("train.bin",), "test.bin", 2),
}


def _idx_path(folder: Path, part: str, kind: str) -> Path:
    dims = 3 if kind == "images" else 1
    names = [f"{part}-{kind}{dot}idx{dims}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    wanted = ", ".join(f"{part}-{kind}-idx{3 if kind == 'images' else 1}-ubyte" for part, kind in _MNIST)
    raise UserError(f"{folder}: has no {names[0]}; MNIST is {wanted}, each as it is or with .gz")


def _mnist(folder: Path, _: str) -> Data:
    parts = [_idx(_idx_path(folder, part, kind), kind) for part, kind in _MNIST]
    images = [part.astype(np.float32)[:, None] / np.float32(255) for part in parts[::2]]
    labels = [part.astype(np.int64) for part in parts[1::2]]
    for some, named, (part, _kind) in zip(images, labels, _MNIST[::2], strict=True):
        if len(some) != len(named):
            raise UserError(f"{folder}: {part} has {len(some)} images and {len(named)} labels")
        _check_labels(named, 10, folder / f"{part}-labels")
    return Data(images[0], labels[0], images[1], labels[1])


def _idx(path: Path, kind: str) -> NDArray[np.uint8]:
    """Return i8[n, rows, columns] or [n]: big-endian head, then bytes."""
    raw = _read(path)
    dims = 3 if kind == "images" else 1
    head = np.frombuffer(raw, ">i4", min(1 + dims, len(raw) // 4))
    if not len(head) or head[0] != _IDX[kind]:
        raise UserError(f"{path}: is not an IDX file of {kind}: it does not begin with {_IDX[kind]}")
    shape = tuple(head[1:].tolist())
    if len(shape) < dims or min(shape) < 1 or len(raw) != 4 * (1 + dims) + int(np.prod(shape, dtype=np.int64)):
        raise UserError(f"{path}: is truncated, or longer than its head says")
    if dims == 3 and shape[1:] != (28, 28):
        raise UserError(f"{path}: has images of {shape[1]}x{shape[2]}, not of 28x28")
    return np.frombuffer(raw, np.uint8, offset=4 * (1 + dims)).reshape(shape)


def _read(path: Path) -> bytes:
    try:
        raw = read_small_bytes(path, _MOST_BYTES)
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
                raw = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise refused(path, error, READ) from None
    if len(raw) > _MOST_BYTES:
        raise UserError(f"{path}: unpacks to more than {_MOST_BYTES >> 30} GiB")
    return raw


def _cifar_paths(folder: Path, name: str) -> tuple[list[Path], Path]:
    inside, train, test, _ = _CIFAR[name]
    for candidate in (folder, folder / inside):
        if (candidate / test).is_file():
            folder = candidate
    for part in (*train, test):
        if not (folder / part).is_file():
            raise UserError(f"{folder}: has no {part}; {name} is {', '.join((*train, test))} (the binary version)")
    return [folder / part for part in train], folder / test


def _cifar(folder: Path, name: str) -> Data:
    train, test = _cifar_paths(folder, name)
    return Data(*_records(train, name), *_records([test], name))


def _records(paths: Iterable[Path], name: str) -> tuple[Images, Labels]:
    """Return images and labels from records of one label byte (CIFAR-100: coarse and fine) and 3,072 of the picture."""
    heads = _CIFAR[name][3]
    parts = []
    for path in paths:
        raw = np.frombuffer(_read(path), np.uint8)
        if not len(raw) or len(raw) % (heads + 3072):
            raise UserError(f"{path}: is truncated, or not the binary version of {name}: records have {heads + 3072} B")
        parts.append(raw.reshape(-1, heads + 3072))
        _check_labels(parts[-1][:, heads - 1], CLASSES[name], path)
    whole = np.concatenate(parts)
    images = whole[:, heads:].astype(np.float32).reshape(-1, *_PHOTO) / np.float32(255)
    return images, whole[:, heads - 1].astype(np.int64)


def _check_labels(labels: NDArray[Any], classes: int, path: Path) -> None:
    if len(labels) and int(labels.max()) >= classes:
        raise UserError(f"{path}: has the label {int(labels.max())}, and there are {classes} classes")
