"""The network of ``cnn`` from numpy layers, with RMSprop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memtui.study.workloads.cnn import DECAY, EPSILON, LEARNING_RATE, RHO
from memtui.study.workloads.numpy_layers import (
    Array,
    Convolution,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool,
    ReLU,
    softmax_cross_entropy,
)


class NumpyNetwork:
    """Conv32 Conv32 pool, Conv64 Conv64 pool, Dense512, Dense10, with dropout; RMSprop. See ``training.Network``."""

    def __init__(self, *, seed: int = 0, layers: Sequence[Layer] | None = None) -> None:
        """``layers``: another network than the standard one, for tests."""
        rng = np.random.default_rng((seed, 2))
        self.title = f"numpy {np.__version__}"
        self.layers = list(layers) if layers is not None else _standard_layers(rng)
        self.parameters = sum(weight.size for layer in self.layers for weight in layer.weights)
        self._squares = [[np.zeros_like(weight) for weight in layer.weights] for layer in self.layers]
        self._steps = 0

    def step(self, images: Array, labels: Array) -> float:
        """Make one step of gradient descent on NHWC images; return the loss before it."""
        loss = self.gradients(images, labels)
        rate = np.float32(LEARNING_RATE / (1 + DECAY * self._steps))
        self._steps += 1
        for layer, squares in zip(self.layers, self._squares, strict=True):
            for weight, gradient, square in zip(layer.weights, layer.gradients, squares, strict=True):
                _rmsprop(weight, gradient, square, rate)
        return loss

    def gradients(self, images: Array, labels: Array) -> float:
        """Fill the gradients of all layers for a batch; returns its mean loss."""
        loss, gradient = softmax_cross_entropy(self._scores(images, learning=True), labels)
        gradient /= gradient.dtype.type(len(labels))
        for layer in reversed(self.layers):
            gradient = layer.backward(gradient)
        return loss / len(labels)

    def evaluate(self, images: Array, labels: Array) -> tuple[float, int]:
        """Return the summed loss and the number of right answers."""
        scores = self._scores(images, learning=False)
        loss, _ = softmax_cross_entropy(scores, labels)
        return loss, int((scores.argmax(axis=1) == labels).sum())

    def _scores(self, x: Array, *, learning: bool) -> Array:
        for layer in self.layers:
            x = layer.forward(x, learning=learning)
        return x


def _standard_layers(rng: np.random.Generator) -> list[Layer]:
    return [
        *(Convolution(rng, 3, 32, padding=1, first=True), ReLU(), Convolution(rng, 32, 32), ReLU()),
        *(MaxPool(), Dropout(rng, 0.25)),
        *(Convolution(rng, 32, 64, padding=1), ReLU(), Convolution(rng, 64, 64), ReLU()),
        *(MaxPool(), Dropout(rng, 0.25)),
        *(Flatten(), Dense(rng, 6 * 6 * 64, 512), ReLU(), Dropout(rng, 0.5), Dense(rng, 512, 10)),
    ]


def _rmsprop(weight: Array, gradient: Array, square: Array, rate: np.float32) -> None:
    """Move the weight against its gradient, in steps that do not grow with the gradient's size; all in place."""
    scratch = np.square(gradient)
    scratch *= np.float32(1 - RHO)
    square *= np.float32(RHO)
    square += scratch
    np.sqrt(square, out=scratch)
    scratch += np.float32(EPSILON)
    np.divide(gradient, scratch, out=scratch)
    scratch *= rate
    weight -= scratch
