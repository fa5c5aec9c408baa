"""The layers of a small convolutional network in numpy: each with a forward and a backward pass.

Images are NHWC. A layer stores the arrays of the last forward pass that its backward pass needs, and owns its weights
and their gradients. All layers follow the dtype of their input, so that gradients can be checked in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Array = NDArray[Any]

_IMAGES_PER_BLOCK = 4  # patches of so many images fit in the cache: 4 * 30 * 30 * 288 * 4 bytes = 4 MiB


class Layer:
    """One step of a network. ``weights`` and ``gradients`` pair up; both empty where nothing is learned."""

    def __init__(self) -> None:
        self.weights: list[Array] = []
        self.gradients: list[Array] = []

    def forward(self, x: Array, *, learning: bool) -> Array:
        """Return the output for ``x``, which the layer may overwrite only where its class says so."""
        raise NotImplementedError

    def backward(self, gradient: Array) -> Array:
        """Fill ``gradients`` and return the gradient of the input, given that of the output."""
        raise NotImplementedError


def glorot(rng: np.random.Generator, shape: tuple[int, ...], inputs: int, outputs: int) -> Array:
    """Return weights, uniform in +-sqrt(6 / (inputs + outputs)), as Keras draws them."""
    limit = np.float32(np.sqrt(6 / (inputs + outputs)))
    return (rng.random(shape, dtype=np.float32) * 2 - 1) * limit


def _patches(x: Array, kernel: int, out: Array) -> Array:
    """Copy every kernel x kernel patch of the images ``x`` into ``out`` and return it as a matrix, a patch per row."""
    n, height, width, channels = x.shape
    sn, sh, sw, sc = x.strides
    rows, columns = height - kernel + 1, width - kernel + 1
    # a row of a patch is contiguous in NHWC, so the copy moves kernel * channels numbers at a time
    view = as_strided(x, (n, rows, columns, kernel, kernel * channels), (sn, sh, sw, sh, sc), writeable=False)
    part = out[:n]
    np.copyto(part, view)
    return part.reshape(n * rows * columns, kernel * kernel * channels)


def _room(kernel: int, padded: Array) -> Array:
    """Return scratch memory for the patches of ``_IMAGES_PER_BLOCK`` images."""
    n, height, width, channels = padded.shape
    shape = (min(n, _IMAGES_PER_BLOCK), height - kernel + 1, width - kernel + 1, kernel, kernel * channels)
    return np.empty(shape, padded.dtype)


def _padded(x: Array, border: int) -> Array:
    if border == 0:
        return np.ascontiguousarray(x)
    n, height, width, channels = x.shape
    out = np.zeros((n, height + 2 * border, width + 2 * border, channels), x.dtype)
    out[:, border:-border, border:-border] = x
    return out


class Convolution(Layer):
    """A square kernel over the image: patches laid out as a matrix (im2col), a few images at a time, times weights."""

    def __init__(
        self,
        rng: np.random.Generator,
        inputs: int,
        outputs: int,
        *,
        kernel: int = 3,
        padding: int = 0,
        first: bool = False,
    ) -> None:
        """``first``: nothing comes before, so no gradient of the input is worked out (it is returned empty)."""
        super().__init__()
        self._kernel, self._padding, self._first = kernel, padding, first
        size = kernel * kernel
        self.weights = [
            glorot(rng, (kernel, kernel, inputs, outputs), size * inputs, size * outputs),
            np.zeros(outputs, np.float32),
        ]
        self._input: Array = np.empty(0)

    def forward(self, x: Array, *, learning: bool) -> Array:
        self._input = _padded(x, self._padding)
        weights, bias = self.weights
        out = self._apply(self._input, weights)
        out += bias
        return out

    def _apply(self, padded: Array, weights: Array) -> Array:
        kernel, _, inputs, outputs = weights.shape
        n, height, width, _ = padded.shape
        rows, columns = height - kernel + 1, width - kernel + 1
        flat = np.ascontiguousarray(weights.reshape(kernel * kernel * inputs, outputs))
        out = np.empty((n, rows, columns, outputs), padded.dtype)
        room = _room(kernel, padded)
        for first in range(0, n, _IMAGES_PER_BLOCK):
            part = slice(first, first + _IMAGES_PER_BLOCK)
            np.matmul(_patches(padded[part], kernel, room), flat, out=out[part].reshape(-1, outputs))
        return out

    def backward(self, gradient: Array) -> Array:
        weights, _ = self.weights
        kernel, _, inputs, outputs = weights.shape
        gradient = np.ascontiguousarray(gradient)
        total = np.zeros((kernel * kernel * inputs, outputs), gradient.dtype)
        room = _room(kernel, self._input)
        for first in range(0, len(gradient), _IMAGES_PER_BLOCK):
            part = slice(first, first + _IMAGES_PER_BLOCK)
            total += _patches(self._input[part], kernel, room).T @ gradient[part].reshape(-1, outputs)
        self.gradients = [total.reshape(weights.shape), gradient.reshape(-1, outputs).sum(axis=0)]
        if self._first:
            return np.empty(0, gradient.dtype)
        # what an input pixel gave to the outputs around it: a convolution with the kernel turned by half a circle
        turned = weights[::-1, ::-1].transpose(0, 1, 3, 2)
        return self._apply(_padded(gradient, kernel - 1 - self._padding), turned)


class ReLU(Layer):
    """Negative numbers become 0. Overwrites its input."""

    def forward(self, x: Array, *, learning: bool) -> Array:
        self._output = np.maximum(x, 0, out=x)
        return self._output

    def backward(self, gradient: Array) -> Array:
        return gradient * (self._output > 0)


class MaxPool(Layer):
    """The largest of each 2 x 2 pixels; an odd last row or column is left out."""

    _CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))

    def _corner(self, x: Array, row: int, column: int) -> Array:
        height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
        return x[:, row:height:2, column:width:2]

    def forward(self, x: Array, *, learning: bool) -> Array:
        corners = [self._corner(x, row, column) for row, column in self._CORNERS]
        out = np.maximum(corners[0], corners[1])
        np.maximum(out, corners[2], out=out)
        np.maximum(out, corners[3], out=out)
        self._input, self._output = x, out
        return out

    def backward(self, gradient: Array) -> Array:
        result = np.zeros(self._input.shape, gradient.dtype)
        free = np.ones(gradient.shape, bool)  # of equal numbers only the first gets the gradient
        for row, column in self._CORNERS:
            chosen = self._corner(self._input, row, column) == self._output
            chosen &= free
            free ^= chosen
            np.multiply(gradient, chosen, out=self._corner(result, row, column))
        return result


class Dropout(Layer):
    """Sets a random share of the numbers to 0 while learning, and scales the others up."""

    def __init__(self, rng: np.random.Generator, share: float) -> None:
        super().__init__()
        self._rng, self._share = rng, share

    def forward(self, x: Array, *, learning: bool) -> Array:
        if not learning:
            return x
        keep = self._rng.random(x.shape, dtype=np.float32) >= self._share
        self._mask = keep.astype(x.dtype)
        self._mask *= x.dtype.type(1 / (1 - self._share))
        return x * self._mask

    def backward(self, gradient: Array) -> Array:
        return gradient * self._mask


class Flatten(Layer):
    """Each image becomes one row."""

    def forward(self, x: Array, *, learning: bool) -> Array:
        self._shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, gradient: Array) -> Array:
        return gradient.reshape(self._shape)


class Dense(Layer):
    """Every input to every output."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weights = [glorot(rng, (inputs, outputs), inputs, outputs), np.zeros(outputs, np.float32)]

    def forward(self, x: Array, *, learning: bool) -> Array:
        self._input = x
        weights, bias = self.weights
        return x @ weights + bias

    def backward(self, gradient: Array) -> Array:
        self.gradients = [self._input.T @ gradient, gradient.sum(axis=0)]
        return gradient @ self.weights[0].T


def softmax_cross_entropy(scores: Array, labels: Array) -> tuple[float, Array]:
    """Return the summed loss of a batch and its gradient by the scores."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    odds = np.exp(shifted)
    total = odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float((np.log(total[:, 0]) - shifted[rows, labels]).sum())
    gradient = odds / total
    gradient[rows, labels] -= 1
    return loss, gradient
