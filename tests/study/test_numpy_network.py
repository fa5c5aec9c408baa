"""The numpy network: gradients against numerical differentiation, and the same network as torch's."""

from __future__ import annotations

import numpy as np
import pytest

from memtui.study.workloads.data import make_images
from memtui.study.workloads.numpy_layers import (
    Convolution,
    Dense,
    Dropout,
    Flatten,
    MaxPool,
    ReLU,
    softmax_cross_entropy,
)
from memtui.study.workloads.numpy_network import NumpyNetwork


def small_network(rng: np.random.Generator, *, dropout: float) -> NumpyNetwork:
    """The standard network's kinds of layer at a size where every weight can be moved, in float64."""
    layers = [
        *(Convolution(rng, 3, 4, padding=1, first=True), ReLU(), Convolution(rng, 4, 5), ReLU(), MaxPool()),
        *(Dropout(rng, dropout), Convolution(rng, 5, 3, padding=1), ReLU(), Flatten()),
        *(Dense(rng, 2 * 2 * 3, 7), ReLU(), Dense(rng, 7, 4)),
    ]
    for layer in layers:
        layer.weights = [rng.normal(scale=0.4, size=weight.shape) for weight in layer.weights]
    return NumpyNetwork(layers=layers)


def test_gradients_agree_with_numerical_differentiation():
    rng = np.random.default_rng(5)
    network = small_network(rng, dropout=0.0)
    images, labels = rng.normal(size=(6, 7, 7, 3)), rng.integers(0, 4, 6)  # 7 -> 7 -> 5 -> 2: the odd row is left out
    network.gradients(images, labels)
    analytic = [[gradient.copy() for gradient in layer.gradients] for layer in network.layers]
    step, checked = 1e-6, 0
    for layer, gradients in zip(network.layers, analytic, strict=True):
        for weight, gradient in zip(layer.weights, gradients, strict=True):
            assert gradient.shape == weight.shape
            for place in rng.choice(weight.size, min(weight.size, 25), replace=False):
                index = np.unravel_index(place, weight.shape)
                value = weight[index]
                weight[index] = value + step
                above = network.evaluate(images, labels)[0]
                weight[index] = value - step
                below = network.evaluate(images, labels)[0]
                weight[index] = value
                numerical = (above - below) / (2 * step) / len(labels)
                assert gradient[index] == pytest.approx(numerical, rel=1e-5, abs=1e-8)
                checked += 1
    assert checked == 148


@pytest.mark.parametrize("padding", [0, 1])
def test_gradient_by_the_input_of_a_convolution(padding):
    rng = np.random.default_rng(6)
    layer = Convolution(rng, 2, 3, padding=padding)
    layer.weights = [rng.normal(size=weight.shape) for weight in layer.weights]
    images = rng.normal(size=(5, 6, 5, 2))  # more images than a block has, and an incomplete last block
    pull = rng.normal(size=layer.forward(images, learning=True).shape)
    gradient = layer.backward(pull)
    for place in rng.choice(images.size, 40, replace=False):
        index = np.unravel_index(place, images.shape)
        moved = images.copy()
        moved[index] += 1e-6
        above = (layer.forward(moved, learning=True) * pull).sum()
        moved[index] -= 2e-6
        below = (layer.forward(moved, learning=True) * pull).sum()
        assert gradient[index] == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-7)


def test_convolution_against_the_definition():
    rng = np.random.default_rng(7)
    layer = Convolution(rng, 2, 3)
    images = rng.random((5, 6, 7, 2), dtype=np.float32)
    weights = layer.weights[0]
    expected = np.zeros((5, 4, 5, 3))
    for row in range(4):
        for column in range(5):
            patch = images[:, row : row + 3, column : column + 3]
            expected[:, row, column] = np.einsum("nijc,ijcf->nf", patch, weights)
    np.testing.assert_allclose(layer.forward(images, learning=False), expected, rtol=1e-4, atol=1e-5)


def test_pool_gives_the_gradient_of_equal_numbers_to_one_of_them():
    pool = MaxPool()
    assert pool.forward(np.ones((1, 3, 3, 1)), learning=True).shape == (1, 1, 1, 1)
    gradient = pool.backward(np.full((1, 1, 1, 1), 2.0))
    assert gradient[0, :, :, 0].tolist() == [[2, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_dropout_keeps_the_mean_and_drops_the_same_on_the_way_back():
    dropout = Dropout(np.random.default_rng(0), 0.25)
    ones = np.ones((200, 200), np.float32)
    out = dropout.forward(ones, learning=True)
    assert out.dtype == np.float32
    assert out.mean() == pytest.approx(1.0, abs=0.02)
    assert (out == 0).mean() == pytest.approx(0.25, abs=0.02)
    np.testing.assert_array_equal(dropout.backward(ones), out)
    assert dropout.forward(ones, learning=False) is ones


def test_loss_of_even_scores_is_the_logarithm_of_the_classes():
    loss, gradient = softmax_cross_entropy(np.full((4, 10), 1e4), np.arange(4))
    assert loss / 4 == pytest.approx(np.log(10))
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-12)


def test_loss_falls():
    images, labels = make_images(24, 0)
    network = NumpyNetwork(seed=0)
    before, _ = network.evaluate(images, labels)
    assert before / 24 == pytest.approx(np.log(10), abs=0.1)  # it has not learned yet
    for _ in range(5):
        network.step(images, labels)
    after, _ = network.evaluate(images, labels)
    assert after < before * 0.99
    assert network.parameters == 1_250_858  # what Keras counts for cifar10_cnn


def test_same_numbers_as_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from memtui.study.workloads.cnn import TorchNetwork

    ours, theirs = NumpyNetwork(seed=0), TorchNetwork(threads=1, seed=0)
    assert theirs.parameters == ours.parameters
    learned = [layer for layer in ours.layers if layer.weights]
    modules = [module for module in theirs.model if hasattr(module, "weight")]
    with torch.no_grad():
        for layer, module in zip(learned, modules, strict=True):
            weight, bias = layer.weights
            if weight.ndim == 4:
                layer.weights[0] = np.ascontiguousarray(module.weight.numpy().transpose(2, 3, 1, 0))
            elif weight.shape[0] == 2304:  # flattened channel by channel there, pixel by pixel here
                as_image = module.weight.numpy().reshape(512, 64, 6, 6)
                layer.weights[0] = np.ascontiguousarray(as_image.transpose(2, 3, 1, 0).reshape(2304, 512))
            else:
                layer.weights[0] = module.weight.numpy().T.copy()
            layer.weights[1] = module.bias.numpy().copy()
            assert bias.shape == layer.weights[1].shape
    for module in theirs.model:
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for layer in ours.layers:
        if isinstance(layer, Dropout):
            layer._share = 0.0
    images, labels = make_images(16, 3)
    for _ in range(4):
        assert ours.step(images, labels) == pytest.approx(theirs.step(images, labels), rel=2e-4)
    assert ours.evaluate(images, labels)[0] == pytest.approx(theirs.evaluate(images, labels)[0], rel=2e-3)


def test_the_deep_network_is_resnet_50_and_learns():
    pytest.importorskip("torch")
    from memtui.study.workloads import resnet
    from memtui.study.workloads.cnn import TorchNetwork

    network = TorchNetwork(threads=1, model=resnet.model)
    assert network.parameters == 25_557_032 - 1_000 * 2049 + 10 * 2049  # torchvision's, with 10 classes
    images, labels = make_images(4, 3)
    losses = [network.step(images, labels) for _ in range(4)]
    assert losses[-1] < losses[0]


def test_the_optimizer_of_torch_makes_the_same_steps():
    torch = pytest.importorskip("torch")
    from memtui.study.workloads.cnn import TorchNetwork

    rng = np.random.default_rng(0)
    images, labels = rng.random((8, 32, 32, 3), np.float32), rng.integers(0, 10, 8)
    ended = []
    for torch_optimizer in (False, True):
        network = TorchNetwork(torch_optimizer=torch_optimizer)
        torch.manual_seed(1)  # of dropout
        losses = [network.step(images, labels) for _ in range(3)]
        ended.append((losses, [parameter.detach().clone() for parameter in network.model.parameters()]))
    assert ended[0][0] == pytest.approx(ended[1][0], rel=1e-4)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ended[0][1], ended[1][1], strict=True))
