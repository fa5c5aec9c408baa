"""Data sets: those that come along, files of others, and what is said of wrong ones. Networks: what is said of them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.errors import UserError
from memtui.training.datasets import check_files, load, shape_of
from memtui.training.learning_curve import minimum_at, shortfall
from memtui.training.network_specs import SEQUENCES, check_shapes, data_shape, layers_of


def test_digits_come_along():
    data = load("digits", (1, 8, 8), None, 1)
    assert (len(data.images), len(data.test_images)) == (1498, 299)
    assert data.shape == (1, 8, 8)
    assert data.images.dtype == np.float32
    assert float(data.images.max()) == 1.0
    assert sorted(set(data.labels.tolist())) == list(range(10))
    # The first digit of the file, a 0, as scikit-learn has it.
    assert (data.images[0, 0, 0] * 16).astype(int).tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert data.labels[:5].tolist() == [0, 1, 2, 3, 4]


def test_digits_are_enlarged_for_networks_of_mnist():
    data = load("digits", shape_of("digits", (1, 28, 28)), None, 1)
    assert data.shape == (1, 28, 28)
    assert (data.images[0, 0, 2:5, 8:11] == 5 / 16).all()
    assert not data.images[:, :, :2].any()


@pytest.mark.parametrize("shape", [(64,), (3, 32, 32), (1, 28, 28)])
def test_clusters_are_the_same_for_the_same_seed(shape):
    one, same, other = (load("clusters", shape, None, seed) for seed in (1, 1, 2))
    assert one.shape == shape
    assert np.array_equal(one.images, same.images)
    assert not np.array_equal(one.images, other.images)
    assert (len(one.images), len(one.test_images)) == ((5000, 2000) if len(shape) == 1 else (1000, 400))


def idx(values: np.ndarray, magic: int | None = None) -> bytes:
    magic = {3: 2051, 1: 2049}[values.ndim] if magic is None else magic
    return struct.pack(f">{1 + values.ndim}i", magic, *values.shape) + values.astype(np.uint8).tobytes()


def packed(data: bytes) -> bytes:
    """Compress without the time: the workers of a run name their tests alike."""
    return gzip.compress(data, mtime=0)


def mnist(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    for part, many in (("train", 20), ("t10k", 7)):
        images = idx(rng.integers(0, 256, (many, 28, 28)))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(packed(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(many) % 10))
    return folder


def test_mnist_is_read_as_it_is_and_compressed(tmp_path):
    data = load("mnist", (1, 28, 28), str(mnist(tmp_path)), 1)
    assert data.images.shape == (20, 1, 28, 28)
    assert data.test_labels.tolist() == list(range(7))
    assert 0 <= float(data.images.min()) <= float(data.images.max()) <= 1
    check_files("mnist", str(tmp_path))


def cifar(folder: Path, name: str, heads: int) -> Path:
    rng = np.random.default_rng(0)
    batches = [f"data_batch_{n}.bin" for n in range(1, 6)]
    for file in [*batches, "test_batch.bin"] if heads == 1 else ["train.bin", "test.bin"]:
        rows = rng.integers(0, 256, (6, heads + 3072), np.uint8)
        rows[:, :heads] = np.arange(6)[:, None] + (90 if heads == 2 else 0)
        (folder / file).write_bytes(rows.tobytes())
    return folder


@pytest.mark.parametrize(("name", "heads", "many"), [("cifar10", 1, 30), ("cifar100", 2, 6)])
def test_cifar_is_read_from_its_binary_files(name, heads, many, tmp_path):
    inside = tmp_path / ("cifar-10-batches-bin" if heads == 1 else "cifar-100-binary")
    inside.mkdir()
    cifar(inside, name, heads)
    data = load(name, (3, 32, 32), str(tmp_path), 1)
    assert data.images.shape == (many, 3, 32, 32)
    assert data.labels[:6].tolist() == [n + (90 if heads == 2 else 0) for n in range(6)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnist", r"has no train-images-idx3-ubyte; MNIST is train-images-idx3-ubyte, .* with .gz"),
        ("cifar10", r"has no data_batch_1.bin; cifar10 is data_batch_1.bin, .*test_batch.bin \(the binary version\)"),
        ("cifar100", r"has no train.bin; cifar100 is train.bin, test.bin"),
    ],
)
def test_of_missing_files_it_is_said_which_are_expected(name, message, tmp_path):
    for ask in (lambda: check_files(name, str(tmp_path)), lambda: load(name, (3, 32, 32), str(tmp_path), 1)):
        with pytest.raises(UserError, match=message):
            ask()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train-images-idx3-ubyte.gz", packed(b"\0" * 99), "is not an IDX file of images"),
        ("train-images-idx3-ubyte.gz", b"\x1f\x8b" + b"x" * 30, "cannot be read"),
        ("train-images-idx3-ubyte.gz", packed(idx(np.zeros((2, 28, 28))))[:-9], "cannot be read"),
        ("train-images-idx3-ubyte.gz", packed(idx(np.zeros((20, 28, 28)))[:-1]), "is truncated"),
        ("train-images-idx3-ubyte.gz", packed(idx(np.zeros((20, 8, 8)))), "has images of 8x8"),
        ("train-images-idx3-ubyte.gz", packed(idx(np.zeros((3, 28, 28)))), "has 3 images and 20 labels"),
        ("t10k-labels-idx1-ubyte", idx(np.full(7, 12)), "has the label 12"),
        ("t10k-labels-idx1-ubyte", b"", "is not an IDX file of labels"),
        ("t10k-labels-idx1-ubyte", idx(np.zeros(7), magic=2051), "is not an IDX file of labels"),
        ("t10k-labels-idx1-ubyte", struct.pack(">2i", 2049, -5), "is truncated"),
        ("t10k-labels-idx1-ubyte", struct.pack(">2i", 2049, 1 << 30), "is truncated"),
    ],
)
def test_a_wrong_file_of_mnist_is_a_line(file, content, message, tmp_path):
    (mnist(tmp_path) / file).write_bytes(content)
    with pytest.raises(UserError, match=message):
        load("mnist", (1, 28, 28), str(tmp_path), 1)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is truncated"), (b"x" * 3074, "is truncated"), (b"\xff" * 3073, "label 255")]
)
def test_a_wrong_file_of_cifar_is_a_line(content, message, tmp_path):
    (cifar(tmp_path, "cifar10", 1) / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load("cifar10", (3, 32, 32), str(tmp_path), 1)


@pytest.mark.parametrize("name", SEQUENCES)
def test_each_named_network_takes_data(name):
    layers = layers_of(name, 10)
    check_shapes(layers, data_shape(name), 10)
    check_shapes(layers, shape_of("digits", data_shape(name)), 10)


FC = {"layer": "FullyConnected", "units": "outputs"}


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        ("fcRelu", "there is no sequence fcRelu; did you mean fcReLu"),
        ([{"layer": "Relu"}, FC], "layer 0: there is no layer Relu; did you mean ReLu"),
        ([{"layer": "ReLu", "slope": 1}, FC], "layer 0: ReLu has no parameter slope"),
        ([{"layer": "FullyConnected"}], "layer 0: FullyConnected needs units"),
        ([{"layer": "FullyConnected", "units": 0}], "layer 0: units of FullyConnected cannot be 0"),
        ([{"layer": "FullyConnected", "units": True}], "units of FullyConnected cannot be True"),
        ([{"layer": "FullyConnected", "unit": 3}], "has no parameter unit; did you mean units"),
        ([{"layer": "MaxPool", "kernel_size": [1, 2, 3]}, FC], "kernel_size of MaxPool cannot be"),
        ([{"layer": "Block", "head": {"layer": "ReLu"}}], "head of Block cannot be"),
        ([{"layer": "Residual", "layers": [{"layer": "No"}]}, FC], "layer 0.layers.0.: there is no layer No"),
        ([{"layer": "ReLu"}], "no layer with weights"),
        ([], "no layer with weights"),
        ([3], "layer 0 is not a table"),
    ],
)
def test_a_wrong_network_is_a_line(sequence, message):
    with pytest.raises(UserError, match=message):
        layers_of(sequence, 10)


@pytest.mark.parametrize(
    ("sequence", "shape", "message"),
    [
        ([FC], (1, 8, 8), r"gets 1x8x8: flatten=true makes a vector"),
        (
            [{"layer": "Convolutional", "filter_dim": 3, "num_of_filters": 2}, FC],
            (64,),
            "needs channels, height and width",
        ),
        ("liao_mnist", (1, 8, 8), "a window of 5x5 does not fit into 20x2x2"),
        ([{"layer": "FullyConnected", "units": 3}], (64,), "ends with a vector of 3, and there are 10 classes"),
        (
            [{"layer": "Residual", "layers": [{"layer": "FullyConnected", "units": 3}]}, FC],
            (64,),
            "there is no sum of both",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_a_line(sequence, shape, message):
    with pytest.raises(UserError, match=message):
        check_shapes(layers_of(sequence, 10), shape, 10)


def test_the_minimum_accuracy_of_the_seed():
    """8, 15, 35 and 28 percent with [(1, 1), (3, 30)]: stops after epoch 4."""
    minimum = [(1, 1.0), (3, 30.0)]
    result = [shortfall(minimum, epoch, accuracy) for epoch, accuracy in enumerate((8, 15, 35, 28), 1)]
    assert result == [None, None, None, "expected 30 after 3 epochs, got 28"]
    assert [shortfall([(10, 30.0)], epoch, 20) for epoch in range(1, 5)] == [None] * 4
    assert shortfall([(1, 10.0)], 1, 8) == "expected 10 after 1 epoch, got 8"


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 100)), max_size=4), st.integers(1, 9), st.floats(0, 100))
def test_training_stops_where_it_is_below_what_is_asked_for(minimum, epoch, accuracy):
    least = minimum_at(minimum, epoch)
    assert (shortfall(minimum, epoch, accuracy) is not None) == (least is not None and accuracy < least)
